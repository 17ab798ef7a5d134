"""The environment of a task: what the driver gives, what the catalogue and the options add."""

from __future__ import annotations

import re
from collections.abc import Mapping

from npa.catalog.entry import Entry
from npa.orchestration.engine import Task
from npa.orchestration.skypilot.options import (
    MODEL_CACHE_PATH,
    RenderOptions,
    StagedSource,
)
from npa.orchestration.skypilot.render_errors import RenderError
from npa.orchestration.skypilot.render_images import Image, source_commit

VALUE_BYTES_MAX = 120_000
"""Linux takes at most 131,072 bytes as one variable, its name included."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON_NAMES = ("NPA_PARAMS", "NPA_INPUTS", "NPA_OUTPUTS")
_CACHES = {
    "HF_HOME": "huggingface",
    "HF_HUB_CACHE": "huggingface/hub",
    "TORCH_HOME": "torch",
    "XDG_CACHE_HOME": "xdg",
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
}


def render_environment(
    task: Task,
    entry: Entry | None,
    image: Image,
    options: RenderOptions,
    *,
    key: str,
    package: StagedSource | None,
    isaac: bool,
    cache: bool,
) -> dict[str, str]:
    """The public variables of a task, sorted. `key` is the attempt's. Raises RenderError."""
    env = {**(entry.env if entry is not None else {}), **options.env}
    env |= {name: f"{MODEL_CACHE_PATH}/{folder}" for name, folder in _CACHES.items() if cache}
    if cache:
        env["NPA_MODEL_CACHE_DIR"] = MODEL_CACHE_PATH
    env |= {name: _escaped(name, value) for name, value in task.env.items()}
    if image.reference:
        env["NPA_TASK_IMAGE"] = image.reference
    commit = source_commit(task.step)
    if commit:
        env["NPA_SIM2REAL_SOURCE_SHA"] = commit
    if isaac:
        env["ACCEPT_EULA"] = "Y" if options.accept_eula else ""
    # Public tools read these two as well; one attempt is one launch here.
    env["NPA_WORKFLOW_FENCE_SEQUENCE"] = "1"
    env["NPA_WORKFLOW_FENCE_ATTEMPT"] = env.get("NPA_WORKFLOW_ATTEMPT", "1")
    env |= _staging(options, package, key)
    for name, value in env.items():
        _check(name, value, task.step.path)
    return dict(sorted(env.items()))


def render_secrets(task: Task, options: RenderOptions, image: Image) -> dict[str, str | None]:
    """Names of secrets, each without its value: the launch supplies it or fails."""
    names = {*task.secrets, *options.secrets}
    secrets: dict[str, str | None] = dict.fromkeys(sorted(names))
    if image.host in options.private_hosts:
        secrets["SKYPILOT_DOCKER_SERVER"] = image.host
        secrets["SKYPILOT_DOCKER_USERNAME"] = secrets["SKYPILOT_DOCKER_PASSWORD"] = None
    return secrets


def _staging(options: RenderOptions, package: StagedSource | None, key: str) -> Mapping[str, str]:
    env = {}
    if options.source is not None:
        env["NPA_SOURCE_URI"] = options.source.uri
        env["NPA_SOURCE_SHA256"] = options.source.sha256
    if package is not None:
        env["NPA_SRC_S3_URI"] = package.uri
        env["NPA_SRC_SHA256"] = package.sha256
        env["NPA_SRC_OVERLAY"] = "1"
    if options.claims_uri:
        env["NPA_CLAIM_URI"] = f"{options.claims_uri}{key}/claim"
        env["NPA_PROVIDER"] = options.provider
    return env


def _escaped(name: str, value: str) -> str:
    """JSON keeps its meaning without the signs that would read as placeholders."""
    if name not in _JSON_NAMES:
        return value
    return value.replace("$", "\\u0024").replace("{{", "{\\u007b")


def _check(name: str, value: str, path: str) -> None:
    if not _NAME.fullmatch(name):
        raise RenderError(f"'{name}' is no name of a variable", path=path)
    if name.startswith("SKYPILOT_"):
        raise RenderError(f"`{name}` belongs to the provider and cannot be set", path=path)
    if "\0" in value or len(value.encode()) > VALUE_BYTES_MAX:
        raise RenderError(
            f"the value of `{name}` is too large for a variable", path=path, code="ENV_TOO_LARGE"
        )
