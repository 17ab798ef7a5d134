"""The three failure modes of the pipeline: what each detector is for, and on which rows.

`train` chooses the rows of a mode's view: scenes that show its target. `held_out` chooses the rows
that it is measured on: every scene of the mode's conditions, with the target in it or not, so that
a detector that sees people everywhere pays for it.
"""

from __future__ import annotations

from dataclasses import dataclass

DISTANT_PIXELS = 16.0  # a person that is less high than this is distant


@dataclass(frozen=True)
class Mode:
    """One failure mode. `size` is the height and width of a target's window in feature cells."""

    name: str
    title: str
    category: str
    train: str
    held_out: str
    size: tuple[int, int]
    height_max: float = 1000.0  # pixels; a higher box is no target of this mode


MODES = {
    mode.name: mode
    for mode in (
        Mode(
            "rider",
            "Riders",
            "rider",
            train="split = 'train' AND duplicate_of = '' AND riders > 0",
            held_out="split = 'val'",
            size=(6, 4),
        ),
        Mode(
            "nighttime_person",
            "People at night",
            "person",
            train="split = 'train' AND duplicate_of = '' AND persons > 0 AND timeofday = 'night'",
            held_out="split = 'val' AND timeofday = 'night'",
            size=(6, 3),
        ),
        Mode(
            "distant_person",
            "Distant people",
            "person",
            train="split = 'train' AND duplicate_of = '' AND distant_persons > 0",
            held_out="split = 'val'",
            size=(6, 3),
            height_max=DISTANT_PIXELS,
        ),
    )
}
