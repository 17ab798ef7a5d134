"""Measuring a detector: match hits with labels, then precision, recall and average precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from detector import as_rows, overlaps, targets
from modes import Mode
from scenes import Box

FOUND_MIN = 0.5  # intersection over union of a hit with the target that it finds

Hits = list[tuple[float, Box]]


@dataclass(frozen=True)
class Verdict:
    """One hit: its score, and whether it found a target that no better hit had found."""

    score: float
    box: Box
    right: bool


@dataclass(frozen=True)
class Measured:
    """`curve` has one (score, precision, recall) for each hit, best score first."""

    targets: int
    average_precision: float
    curve: tuple[tuple[float, float, float], ...]

    def at(self, threshold: float) -> tuple[float, float]:
        """Precision and recall when only hits of at least `threshold` count.

        Without any hit nothing is claimed, so precision is 1 and recall 0.
        """
        kept = [point for point in self.curve if point[0] >= threshold]
        return (kept[-1][1], kept[-1][2]) if kept else (1.0, 0.0)

    def best_threshold(self) -> float:
        """The score at which F1 is highest."""
        return max(self.curve, key=lambda p: 2 * p[1] * p[2] / (p[1] + p[2] + 1e-12))[0]


def judge(hits: Hits, boxes: list[Box], mode: Mode) -> tuple[list[Verdict], list[Box]]:
    """Verdicts on the hits of one scene, best first, and the targets that none of them found.

    Hits on boxes out of the mode's range do not count.
    """
    wanted, other = targets(boxes, mode)
    rows, others = as_rows(wanted), as_rows(other)
    left = list(range(len(wanted)))
    verdicts = []
    for score, box in hits:
        close = overlaps(as_rows([box]), rows)[0]
        best = max(left, key=lambda number: float(close[number]), default=None)
        if best is not None and close[best] >= FOUND_MIN:
            left.remove(best)
            verdicts.append(Verdict(score, box, right=True))
        elif overlaps(as_rows([box]), others)[0].max(initial=0.0) < FOUND_MIN:
            verdicts.append(Verdict(score, box, right=False))
    return verdicts, [wanted[number] for number in left]


def measure(scenes: Sequence[tuple[Hits, list[Box]]], mode: Mode) -> Measured:
    """Average precision (area under the curve, precision made monotone) over all scenes."""
    verdicts = sorted(
        (verdict for hits, boxes in scenes for verdict in judge(hits, boxes, mode)[0]),
        key=lambda verdict: -verdict.score,
    )
    count = sum(len(targets(boxes, mode)[0]) for _, boxes in scenes)
    right = np.cumsum([verdict.right for verdict in verdicts])
    precision = right / np.arange(1, len(right) + 1)
    recall = right / max(1, count)
    curve = tuple(
        (verdict.score, float(p), float(r))
        for verdict, p, r in zip(verdicts, precision, recall, strict=True)
    )
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    area = float(np.sum(highest * np.diff(recall, prepend=0.0)))
    return Measured(count, area, curve)
