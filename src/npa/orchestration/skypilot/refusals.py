"""Every way in which a session is refused, each with its way out."""

from __future__ import annotations

from enum import Enum

from npa.errors import EngineError


class Refusal(Enum):
    """Why an API server is not used. The value is the error's code."""

    PLATFORM = "SESSION_PLATFORM"
    LOCKED = "SESSION_LOCKED"
    FOLDER = "SESSION_FOLDER"
    RECORD = "SESSION_RECORD"
    IDENTITY = "SESSION_IDENTITY"
    INTERPRETER = "SESSION_INTERPRETER"
    UNPROVEN = "SESSION_UNPROVEN"
    AMBIGUOUS = "SESSION_AMBIGUOUS"
    PORT = "SESSION_PORT"
    NAMESPACE = "SESSION_NAMESPACE"
    CONFIG = "SESSION_CONFIG"
    NOT_RUNNING = "SESSION_NOT_RUNNING"
    START = "SESSION_START"
    STOP = "SESSION_STOP"
    PENDING = "SESSION_PENDING_SMOKE"


WAY_OUT: dict[Refusal, str] = {
    Refusal.PLATFORM: (
        "run it on a Linux host with /proc; validate, plan and render work everywhere"
    ),
    Refusal.LOCKED: "another npa is starting or stopping this session: wait for it to end",
    Refusal.FOLDER: "name a folder that is yours alone (mode 0700) with `--isolated-config-dir`",
    Refusal.RECORD: (
        "the session's record is unreadable: restore `session.json`, or move the session's folder "
        "away once none of its jobs is needed any more"
    ),
    Refusal.IDENTITY: (
        "set these back to what the session was started with, or finish its jobs and stop it "
        "before you start another one"
    ),
    Refusal.INTERPRETER: (
        "name the SkyPilot that the session was started with (`--sky-bin`), or stop the session"
    ),
    Refusal.UNPROVEN: (
        "nothing was sent to that process; end it yourself if it is yours, then try again"
    ),
    Refusal.AMBIGUOUS: "end all but the one that holds your jobs, then try again",
    Refusal.PORT: "end what listens on that port, then try again",
    Refusal.NAMESPACE: "run npa in the network namespace (container) in which it was started",
    Refusal.CONFIG: "take that setting out: an owned server keeps its state in its own folder",
    Refusal.NOT_RUNNING: "start it again: `npa workbench workflow resume RUN` does",
    Refusal.START: "the session's `server.log` says why; nothing was left running",
    Refusal.STOP: "the named processes are still there; end them yourself, then stop it again",
    Refusal.PENDING: (
        "an earlier GPU smoke of this cluster is not proven gone: run it again to take it up, or "
        "remove its workload"
    ),
}


def refuse(why: Refusal, message: str, *, not_done: str = "nothing was started") -> EngineError:
    """The error for `why`; its hint is the way out."""
    return EngineError(message, not_done=not_done, hint=WAY_OUT[why], code=why.value)
