"""Cross-check, a gang of ranks: each evaluates its shard of the test part, rank 0 adds them up.

Rank r takes the rows r, r + n, r + 2n, ... and writes its shard. Rank 0 waits for all shards, with
a deadline, and insists that they cover the test part exactly once and agree with its own count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import clock
import numpy as np
from common import Arrays, confusion, misread, predict, unpack

from npa.stage import Stage

POLL_SECONDS = 0.1
Shard = Mapping[str, Any]


def measure(rank: int, ranks: int, model: Arrays, test: Arrays) -> dict[str, Any]:
    """What one rank says of its own rows."""
    mine = {name: array[rank::ranks] for name, array in test.items()}
    predicted = predict(model, mine["images"])
    return {
        "rank": rank,
        "ranks": ranks,
        "rows": mine["rows"].tolist(),
        "correct": int((mine["labels"] == predicted).sum()),
        "confusion": confusion(mine["labels"], predicted),
        "misread": misread(mine, predicted),
    }


def problems(
    shards: Sequence[Shard], ranks: int, test: Arrays, whole: list[list[int]]
) -> list[str]:
    """Why the shards do not add up to `whole`, the confusion table of the full test part."""
    found = []
    present = Counter(shard["rank"] for shard in shards)
    found += [f"shard {rank} is missing" for rank in range(ranks) if not present[rank]]
    found += [f"shard {rank} is there {n} times" for rank, n in sorted(present.items()) if n > 1]
    found += [f"shard {rank} is no rank of this gang" for rank in sorted(present) if rank >= ranks]
    rows = Counter(row for shard in shards for row in shard["rows"])
    expected = set(test["rows"].tolist())
    if lost := expected - rows.keys():
        found.append(f"{len(lost)} test images are in no shard")
    if doubled := [row for row, n in rows.items() if n > 1]:
        found.append(f"{len(doubled)} test images are in more than one shard")
    if foreign := rows.keys() - expected:
        found.append(f"{len(foreign)} images are not of the test part")
    total = sum((np.array(shard["confusion"]) for shard in shards), np.zeros((10, 10), dtype=int))
    if total.tolist() != whole:
        found.append(
            "the sum of the confusion tables differs from the table of the whole test part"
        )
    if sum(shard["correct"] for shard in shards) != int(np.trace(whole)):
        found.append("the correct answers of the shards do not add up")
    return found


def gather(look: Callable[[int], Shard | None], ranks: int, deadline_seconds: float) -> list[Shard]:
    """The shards that turn up before the deadline; fewer than `ranks` if it passes."""
    end = time.monotonic() + deadline_seconds
    shards: dict[int, Shard] = {}
    while True:
        for rank in range(ranks):
            if rank not in shards and (shard := look(rank)) is not None:
                shards[rank] = shard
        if len(shards) == ranks or time.monotonic() >= end:
            return [shards[rank] for rank in sorted(shards)]
        time.sleep(POLL_SECONDS)


def main() -> None:
    stage = Stage.from_env()
    test = unpack(stage.input("digits.test.v1").read_bytes())
    model = unpack(stage.input("digits.model.v1").read_bytes())
    shards = stage.output("digits.shards.v1")
    own = measure(stage.rank, stage.num_nodes, model, test)
    # The attempt is part of a shard's name: a shard of an earlier attempt must never count.
    name = "{attempt}/shard-{rank}.json"
    shards.join(name.format(attempt=stage.attempt_id, rank=stage.rank)).write_json(
        {**own, "timing": clock.times(stage)}
    )
    if stage.rank != 0:
        return

    def look(rank: int) -> Shard | None:
        shard = shards.join(name.format(attempt=stage.attempt_id, rank=rank))
        return shard.read_json() if shard.exists() else None

    found = gather(look, stage.num_nodes, float(stage.params["shard_deadline_seconds"]))
    whole = confusion(test["labels"], predict(model, test["images"]))
    if wrong := problems(found, stage.num_nodes, test, whole):
        raise SystemExit("the shards do not add up: " + "; ".join(wrong))
    total = len(test["labels"])
    correct = sum(shard["correct"] for shard in found)
    stage.output("digits.cross_check.v1").write_json(
        {
            "ranks": stage.num_nodes,
            "samples": total,
            "correct": correct,
            "accuracy": correct / total,
            "confusion": whole,
            "misread": sorted((m for s in found for m in s["misread"]), key=lambda m: m["row"]),
            "shards": [
                {
                    "rank": shard["rank"],
                    "samples": len(shard["rows"]),
                    "correct": shard["correct"],
                    "first_row": shard["rows"][0],
                    "last_row": shard["rows"][-1],
                    "timing": shard["timing"],
                }
                for shard in found
            ],
        }
    )
    stage.output("digits.timing.v1").write_json(clock.times(stage))


if __name__ == "__main__":
    main()
