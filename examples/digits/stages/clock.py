"""When a stage started and ended, as the stage itself saw it. Import this module first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from npa.stage import Stage

STARTED = time.time()  # seconds since the epoch; before NumPy is loaded, so that imports count


@contextmanager
def timed(stage: Stage) -> Iterator[None]:
    """Write the times of this stage as an artifact once its body has run."""
    yield
    stage.output("digits.timing.v1").write_json(times(stage))


def times(stage: Stage) -> dict[str, object]:
    return {
        "path": stage.path,
        "rank": stage.rank,
        "attempt": stage.attempt,
        "start": STARTED,
        "end": time.time(),
    }
