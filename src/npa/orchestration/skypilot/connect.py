"""Put an engine together: one session, one bridge, one folder of launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from npa.orchestration.engine import Job
from npa.orchestration.skypilot import record
from npa.orchestration.skypilot.client import SCRIPT, BridgeClient
from npa.orchestration.skypilot.configs import controller_context, controller_stops
from npa.orchestration.skypilot.engine import Rendering, SkyPilotEngine
from npa.orchestration.skypilot.installer import VERSION
from npa.orchestration.skypilot.launches import Launches
from npa.orchestration.skypilot.readiness import ControllerReadiness
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.spec import SessionSpec, client_environment


def connect(
    spec: SessionSpec, render: Callable[[Job], Rendering], infra: tuple[str, ...] = ()
) -> SkyPilotEngine:
    """An engine over the session of `spec`. Starts nothing: the first use does."""
    facts = {"skypilot": VERSION, "session": spec.user_id, "infra": ",".join(infra)}
    if spec.context:
        facts["context"] = spec.context
    bridge = bridge_of(spec)
    engine = SkyPilotEngine(
        session=Session(spec),
        bridge=bridge,
        launches=Launches(spec.root / "launches"),
        render=render,
        facts=facts,
        infra=infra,
        controller_stops=controller_stops(spec.sky_config),
    )
    context = controller_context(spec.sky_config)
    if context:
        engine.before_controller = ControllerReadiness(bridge.call, context)
    return engine


def bridge_of(spec: SessionSpec) -> BridgeClient:
    """The client of a session's bridge. Its environment names the session's present endpoint."""

    def environment() -> Mapping[str, str]:
        present = record.load(spec.root)
        if present is None:
            raise refuse(Refusal.NOT_RUNNING, f"there is no session in {spec.root}")
        return client_environment(spec, present)

    return BridgeClient(
        argv=bridge_argv(spec.interpreter),
        environment=environment,
        cwd=spec.home,
        log=spec.root / "bridge.log",
    )


def bridge_argv(interpreter: Path) -> tuple[str, ...]:
    """How a bridge is started by SkyPilot's interpreter."""
    # -I: neither the script's folder nor the caller's PYTHONPATH may stand before `sky`.
    return (str(interpreter), "-I", "-u", str(SCRIPT))
