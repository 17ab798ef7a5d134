"""The two programs of a task: packaged scripts with a few lines of settings before them."""

from __future__ import annotations

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

SELF_HOSTED_VLM = "self-hosted-vlm"
_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")
_TRUE = frozenset(["1", "true", "yes", "on"])


@lru_cache(maxsize=8)
def script(name: str) -> str:
    """A packaged script; `setup.sh` carries `task.py` inside."""
    folder = resources.files("npa.orchestration.skypilot").joinpath("scripts")
    text = folder.joinpath(name).read_text(encoding="utf-8")
    if name == "setup.sh":
        helper = folder.joinpath("task.py").read_text(encoding="utf-8").rstrip("\n")
        text = text.replace("@TASK_PY@", helper)
    return text


def render_setup(step: Step, entry: Entry | None, *, isaac: bool) -> str:
    """What prepares the node: licence, claim, source, interpreter, requirements, own setup."""
    text = _assignments(_settings(step, entry, isaac)) + script("setup.sh")
    if step.command.setup:
        text += f"\n# The step's own setup.\n{step.command.setup.rstrip()}\n"
    return text


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
