"""The second engine: SkyPilot 0.12.2 in an environment of its own, one owned API server a run.

`submit_workflow` is the entry of programs, for both engines; it is imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npa.orchestration.skypilot.submit import RunResult, submit_workflow

__all__ = ["RunResult", "submit_workflow"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from npa.orchestration.skypilot import submit

        return getattr(submit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
