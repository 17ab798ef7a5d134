"""The two programs of a task: packaged scripts with a few lines of settings before them.

A document holds what differs between tasks, and what it takes to reach the store. What is the same
for all (`PROGRAMS`) is staged once a run, and each document states its hash.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from npa.catalog.entry import Entry
from npa.orchestration.skypilot.render_errors import RenderError
from npa.orchestration.skypilot.render_images import requires_baked
from npa.orchestration.skypilot.render_package import package_need
from npa.workflow.step import Step

PROGRAMS = ("task.py", "setup.sh")
"""What `begin.sh` brings from the run's store."""
SELF_HOSTED_VLM = "self-hosted-vlm"
_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")
_TRUE = frozenset(["1", "true", "yes", "on"])


@lru_cache(maxsize=8)
def script(name: str) -> str:
    """A packaged script."""
    folder = resources.files("npa.orchestration.skypilot").joinpath("scripts")
    return folder.joinpath(name).read_text(encoding="utf-8")


def program_digest(name: str) -> str:
    """SHA-256 of a packaged script: its name in a run's store."""
    return hashlib.sha256(script(name).encode()).hexdigest()


def render_setup(step: Step, entry: Entry | None, *, isaac: bool, programs_uri: str) -> str:
    """What prepares the node: licence, claim, source, interpreter, requirements, own setup.

    Only what every node needs to reach the store stands in the document. The rest is brought from
    `programs_uri` by its hash, or stands there too when that is "".
    """
    text = _assignments(_settings(step, entry, isaac)) + begin(programs_uri)
    if step.command.setup:
        text += f"\n# The step's own setup.\n{step.command.setup.rstrip()}\n"
    return text


@lru_cache(maxsize=8)
def begin(programs_uri: str) -> str:
    """How every setup begins; its own settings come before."""
    store = script("npa_store.py").rstrip("\n")
    text = script("begin.sh").replace("@STORE_PY@", store)
    if not programs_uri:
        helper = f"npa_put task.py <<'NPA_TASK_PY'\n{script('task.py')}NPA_TASK_PY\n"
        return text + helper + script("setup.sh")
    lines = ["# The same for all tasks, so it lies in the run's store: each file under its hash.\n"]
    for name in PROGRAMS:
        words = shlex.join([programs_uri, program_digest(name), name])
        lines.append(f'"$npa_system" "$npa_home/npa_store.py" bring {words} || exit "$?"\n')
    return text + "".join(lines) + '. "$npa_home/setup.sh"\n'


def render_run(step: Step, entry: Entry | None) -> str:
    """What runs the command: environment, a service that it needs, the command itself."""
    text = script("run.sh")
    if entry is not None and entry.preamble:
        text += _preamble(step, entry.preamble)
    return f"{text}{command_line(step)}\n"


def command_line(step: Step) -> str:
    """The command as one shell word list; every argument is quoted. Raises RenderError."""
    command = step.command
    if command.argv:
        return shlex.join(command.argv)
    if command.shell:
        return f"bash -c {shlex.quote(command.shell)}"
    raise RenderError(
        "there is nothing to run", path=step.path, hint="give the state a `toolRef` or a `run`"
    )


def _settings(step: Step, entry: Entry | None, isaac: bool) -> dict[str, str]:
    settings = {}
    if isaac:
        settings["NPA_LICENCE"] = "isaac"
    settings["NPA_NEEDS_PACKAGE"] = package_need(step, entry).value
    if requires_baked(step):
        settings["NPA_REQUIRE_BAKED"] = "1"
    extras = [entry.extra] if entry is not None and entry.extra else []
    own = str(step.config.get("pip_extra") or "").strip()
    if own and own not in extras:
        extras.append(own)
    for extra in extras:
        if not _EXTRA.fullmatch(extra):
            raise RenderError(f"'{extra}' is no name of a package extra", path=step.path)
    if extras:
        settings["NPA_EXTRA"] = ",".join(extras)
    if entry is not None and entry.interpreters:
        settings["NPA_INTERPRETERS"] = " ".join(entry.interpreters)
    if entry is not None and entry.requirements:
        settings["NPA_REQUIREMENTS"] = "\n".join(
            f"{item.probe}\t{item.requirement}" for item in entry.requirements
        )
    return settings


def _preamble(step: Step, name: str) -> str:
    if name != SELF_HOSTED_VLM:
        raise RenderError(f"the catalogue names the unknown preamble '{name}'", path=step.path)
    if step.config.get("vlm_backend") != "self-hosted":
        return ""
    return _assignments(_model_server(step)) + script("model_server.sh")


def _model_server(step: Step) -> dict[str, str]:
    """Settings of the model server, from the config keys that the public format documents."""
    models = str(step.config.get("vlm_model") or step.config.get("vlm_models") or "")
    model = models.split(",")[0].strip()
    if not model:
        raise RenderError(
            "a self-hosted backend needs a model",
            path=step.path,
            hint="set `config.vlm_model`, or choose `vlm_backend: api`",
        )
    seconds = step.config.get("vlm_serve_ready_seconds") or step.config.get("vlm_ready_timeout_s")
    flashinfer = _flag(step.config, "vlm_use_flashinfer_sampler")
    return {
        "NPA_VLM_MODEL": model,
        "NPA_VLM_PORT": str(_integer(step, "vlm_serve_port", 8000)),
        "NPA_VLM_READY_SECONDS": str(max(5, _whole(step, seconds or 900))),
        "NPA_VLM_FLASHINFER": "1" if flashinfer else "0",
        "NPA_VLM_FLAGS": "--trust-remote-code"
        if _flag(step.config, "vlm_trust_remote_code")
        else "",
    }


def _flag(config: Mapping[str, object], key: str) -> bool:
    return str(config.get(key, "")).strip().lower() in _TRUE


def _integer(step: Step, key: str, default: int) -> int:
    return _whole(step, step.config.get(key) or default)


def _whole(step: Step, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise RenderError(f"{value!r} is not a whole number", path=step.path) from None


def _assignments(settings: Mapping[str, str]) -> str:
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items() if value]
    return "".join(lines)
