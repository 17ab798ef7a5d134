"""Training a detector: windows as examples, then the windows that it got wrong as more of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from detector import Windows, as_rows, fit, new_model, overlaps, scores, targets, windows
from modes import Mode
from scenes import Box

SAME, OTHER = 0.6, 0.35  # overlap with a target from which a window shows it, or does not
NEGATIVES_FIRST, NEGATIVES_HARD = 40, 15  # of one image and round
ROUNDS = 2  # of looking for hard negatives


@dataclass(frozen=True)
class Trained:
    model: dict[str, np.ndarray]
    losses: list[float]
    positives: int
    negatives: int


def train(
    images: list[np.ndarray],
    boxes: list[list[Box]],
    mode: Mode,
    *,
    epochs: int,
    rate: float,
    seed: int,
) -> Trained:
    """A detector for `mode`; the same seed on the same machine gives the same one."""
    rng = np.random.default_rng(seed)
    positive, negative = [], []
    for image, labels in zip(images, boxes, strict=True):
        for picture, mine in ((image, labels), (image[:, ::-1], _mirrored(labels, image.shape[1]))):
            seen = windows(picture, mode)
            shown, away = _sorted_out(seen, mine, mode)
            positive.append(seen.features[shown])
            chosen = rng.choice(away, min(NEGATIVES_FIRST, len(away)), replace=False)
            negative.append(seen.features[chosen])
    model = new_model(positive[0].shape[1], rng)
    losses = _fit(model, positive, negative, epochs, rate, rng)
    for _ in range(ROUNDS):
        for image, labels in zip(images, boxes, strict=True):
            seen = windows(image, mode)
            _, away = _sorted_out(seen, labels, mode)
            worst = away[np.argsort(-scores(model, seen.features[away]))[:NEGATIVES_HARD]]
            negative.append(seen.features[worst])
        losses += _fit(model, positive, negative, epochs, rate, rng)
    return Trained(model, losses, sum(map(len, positive)), sum(map(len, negative)))


def _fit(
    model: dict[str, np.ndarray],
    positive: list[np.ndarray],
    negative: list[np.ndarray],
    epochs: int,
    rate: float,
    rng: np.random.Generator,
) -> list[float]:
    good, bad = np.concatenate(positive), np.concatenate(negative)
    labels = np.concatenate([np.ones(len(good)), np.zeros(len(bad))]).astype(np.float32)
    return fit(model, np.concatenate([good, bad]), labels, epochs=epochs, rate=rate, rng=rng)


def _sorted_out(seen: Windows, boxes: list[Box], mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of windows that show a target, and of those that show none."""
    wanted, other = targets(boxes, mode)
    nearest = overlaps(seen.boxes, as_rows([*wanted, *other])).max(axis=1, initial=0.0)
    shown = overlaps(seen.boxes, as_rows(wanted)).max(axis=1, initial=0.0)
    return np.flatnonzero(shown >= SAME), np.flatnonzero(nearest < OTHER)


def _mirrored(boxes: list[Box], wide: int) -> list[Box]:
    return [Box(b.category, wide - b.x - b.w, b.y, b.w, b.h) for b in boxes]
