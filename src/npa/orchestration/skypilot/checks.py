"""What a check-only session can tell: which clouds are usable, and which GPUs there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from npa.errors import EngineError
from npa.orchestration.skypilot.client import Answer, BridgeClient, Broken, Refused, Reply
from npa.orchestration.skypilot.connect import bridge_argv, bridge_of
from npa.orchestration.skypilot.engine import cloud_names
from npa.orchestration.skypilot.validation import MakeSpec, check_session


class Gpus(Struct, frozen=True):
    """GPUs of one product at one place. `per_node` are the counts that a task may ask for."""

    where: str
    product: str
    per_node: tuple[int, ...]
    total: int
    free: int


class Checked(Struct, frozen=True):
    """`enabled` names the clouds that SkyPilot can use. It is made only after the session ended."""

    enabled: tuple[str, ...]
    gpus: tuple[Gpus, ...] = ()

    def has(self, infra: str) -> bool:
        cloud = infra.partition("/")[0].lower()
        return {"k8s": "kubernetes"}.get(cloud, cloud) in self.enabled


def check(scope: Path, make_spec: MakeSpec, infra: str, *, gpus: bool = False) -> Checked:
    """Look at `infra` (`k8s/<context>`, `slurm/<cluster>`) through a session of its own.

    Raises EngineError if anything could not be seen, or if the session is not proven stopped.
    """
    with check_session(scope, make_spec) as session:
        bridge = bridge_of(session.spec)
        try:
            cloud = infra.partition("/")[0]
            enabled = _value(bridge.call("check", 240.0, infra=[cloud]), "check")
            seen = Checked(tuple(sorted(cloud_names(enabled.get("enabled")))))
            if gpus and seen.has(infra):
                session.prove()
                found = _gpus(_value(bridge.call("gpus", 180.0, infra=infra), "gpus"))
                seen = replace(seen, gpus=found)
        finally:
            bridge.close()
    return seen


def ambient_gpus(interpreter: Path, environ: Mapping[str, str], npa_home: Path) -> tuple[Gpus, ...]:
    """The GPUs of every Kubernetes context, asked of the server that SkyPilot finds or starts.

    Nothing of that server is npa's, and it is left as it is. Raises EngineError.
    """
    folder = npa_home / "skypilot"
    folder.mkdir(mode=0o700, exist_ok=True)
    bridge = BridgeClient(
        argv=bridge_argv(interpreter),
        environment=lambda: environ,
        cwd=folder,
        log=folder / "ambient-bridge.log",
    )
    try:
        return _gpus(_value(bridge.call("gpus", 180.0, infra="k8s"), "gpus"))
    finally:
        bridge.close()


def _gpus(value: Mapping[str, Any]) -> tuple[Gpus, ...]:
    try:
        return tuple(
            Gpus(g["where"], g["gpu"], tuple(g["per_node"]), int(g["total"]), int(g["free"]))
            for g in value["gpus"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _failed("gpus", "schema", str(error)) from error


def _value(reply: Reply, op: str) -> Mapping[str, Any]:
    match reply:
        case Answer(value=value):
            return value
        case Refused(code=code, message=message):
            raise _failed(op, code, message)
        case Broken(cause=cause, detail=detail):
            raise _failed(op, cause, detail)
        case _:
            assert_never(reply)


def _failed(op: str, code: str, detail: str) -> EngineError:
    return EngineError(
        f"SkyPilot's {op} gave no usable answer ({code})",
        not_done="nothing is concluded from it",
        hint=" ".join(detail.split())[:300],
        code="SKYPILOT_CHECK",
    )
