"""Writes the golden journals: runs in the layout of the present version, one frame a line.

    PYTHONPATH=tests .venv/bin/python scripts/golden_journals.py v1

Run once for each released layout, under a new name; what was written before is never written again.
The newest code must read, fold and resume all of them (tests/orchestration/journal/test_golden.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

from npa.orchestration.journal.chain import FOLDER
from simulation import scenarios as s
from simulation.choices import Plan, Scripted, Told
from simulation.faults import Op
from simulation.play import Stage, drive_once, drive_to_the_end
from simulation.scenarios import Scenario
from simulation.world import World

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "orchestration" / "journal" / "golden"

# name -> scenario, what happens, and whether the run is played to its end
RUNS: dict[str, tuple[Scenario, Plan, bool]] = {
    "completed-chain": (s.CHAIN, Scripted(), True),
    "completed-loop": (s.LOOP, Scripted(), True),
    "completed-group": (s.GROUP, Scripted(), True),
    "completed-after-retry-and-recovery": (s.RETRY, Scripted(), True),
    "completed-after-a-phantom": (s.PHANTOM, Scripted(), True),
    "failed-recoveries-exhausted": (s.UNLUCKY, Scripted(), True),
    "cancelled-in-mid-wave": (s.CANCELLED, Scripted(), True),
    "held-and-declared-gone": (s.SINGLE, Told({(Op.LAUNCH, 1): "duplicate-lost"}), True),
    "cut-off-after-the-lease": (s.CHAIN, Told({(Op.CREATE, 2): "kill-before"}), False),
    "cut-off-with-an-open-intent": (s.CHAIN, Told({(Op.LAUNCH, 2): "kill-before"}), False),
    "cut-off-while-running": (s.WINDOW, Told({(Op.OBSERVE, 2): "kill-before"}), False),
    "cut-off-while-cancelling": (
        s.PHANTOM,
        Told({(Op.CANCEL, 1): "kill-between"}),
        False,
    ),
    "cut-off-in-the-second-iteration": (s.LOOP, Told({(Op.LAUNCH, 3): "kill-between"}), False),
}


def main() -> None:
    folder = GOLDEN / sys.argv[1]
    folder.mkdir()
    for name, (scenario, plan, whole) in RUNS.items():
        stage = Stage(scenario, World(plan))
        if whole:
            drive_to_the_end(stage)
        else:
            drive_once(stage)
        frames = [stage.world.store[k] for k in sorted(stage.world.store) if k.startswith(FOLDER)]
        text = b"\n".join(frames) + b"\n"
        (folder / f"{name}.{scenario.name}.jsonl").write_bytes(text)
        print(f"{name}: {len(frames)} frames")


if __name__ == "__main__":
    main()
