"""When a step runs Isaac, whose licence must have been accepted.

The catalogue says it for its tools:

isaac                   always
isaac-when-selected     only if `config.base_profile` or `config.base_image` selects Isaac
isaac-when-simulating   only if the config asks for Isaac simulation
"""

from __future__ import annotations

from npa.catalog.entry import Entry
from npa.orchestration.skypilot.render_images import Image
from npa.workflow.step import Step

ISAAC = "isaac"
_IMAGES = ("isaac-lab", "npa-sonic")
_SELECTING = ("base_profile", "base_image")
_SIMULATING = ("sim_backend", "simulation_backend", "groot_runtime", "sim")


def needs_isaac_licence(step: Step, entry: Entry | None, image: Image) -> bool:
    """Does the step run Isaac?"""
    licence = entry.licence if entry is not None else ""
    if licence == ISAAC:
        return True
    if licence == "isaac-when-selected" and _names_isaac(step, _SELECTING):
        return True
    if licence == "isaac-when-simulating" and _names_isaac(step, _SIMULATING):
        return True
    name = image.reference.partition("@")[0].rpartition("/")[2]
    return any(part in name for part in _IMAGES)


def _names_isaac(step: Step, keys: tuple[str, ...]) -> bool:
    return any(ISAAC in str(step.config.get(key) or "").lower() for key in keys)
