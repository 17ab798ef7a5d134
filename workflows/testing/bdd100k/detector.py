"""A small detector: a two-layer network over gradient histograms of windows at many scales.

An image is looked at in several sizes, so that one window of fixed cells fits targets of any size.
A window is described by oriented gradients and brightness of its cells and one cell around. Windows
stand where a target could stand on the street, because the camera's height is known.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from modes import Mode
from PIL import Image
from scenes import HEIGHT, PERSON_OVER_CAMERA, Box

CELL = 4  # pixels
BINS = 9  # orientations of a gradient, 20 degrees each
CHANNELS = BINS + 1
MARGIN = 1  # cells around a window that are seen too
STEP = 1.22  # between two sizes of the image
HORIZON_MIN, HORIZON_MAX = 36.0, 44.0  # rows; the cameras of this table
HIDDEN = 24
OVERLAP_MIN = 0.3  # intersection over union above which two hits mean one thing

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Windows:
    """All windows of one image: features (n x d) and boxes (n x 4: x, y, w, h in pixels)."""

    features: np.ndarray
    boxes: np.ndarray


def windows(image: np.ndarray, mode: Mode) -> Windows:
    """Every window in which a target of `mode` could stand."""
    found = [_level(image, mode, high) for high in _heights(mode)]
    return Windows(
        np.concatenate([part.features for part in found]),
        np.concatenate([part.boxes for part in found]),
    )


def _heights(mode: Mode) -> Iterator[float]:
    """Heights of targets that are looked for, in pixels of the image."""
    high = 9.0
    while high < min(50.0, mode.height_max * STEP):
        yield high
        high *= STEP


def _level(image: np.ndarray, mode: Mode, high: float) -> Windows:
    rows, columns = mode.size
    scale = rows * CELL / high
    cells = _cells(image, scale)
    seen = (rows + 2 * MARGIN, columns + 2 * MARGIN)
    view = np.lib.stride_tricks.sliding_window_view(cells, seen, axis=(0, 1))
    pixels = CELL / scale
    tops = (np.arange(view.shape[0]) + MARGIN) * pixels
    feet = tops + high
    far = feet - high / PERSON_OVER_CAMERA  # where the horizon would be
    kept = np.flatnonzero((far >= HORIZON_MIN - 1) & (far <= HORIZON_MAX + 1) & (feet < HEIGHT))
    view = view[kept].transpose(0, 1, 3, 4, 2)
    lefts = (np.arange(view.shape[1]) + MARGIN) * pixels
    y, x = (grid.ravel() for grid in np.meshgrid(tops[kept], lefts, indexing="ij"))
    boxes = np.stack([x, y, np.full_like(x, columns * pixels), np.full_like(x, high)], axis=1)
    flat = view.reshape(len(x), -1)
    size = np.full((len(x), 1), np.log(high / 20.0), dtype=np.float32)
    return Windows(np.concatenate([flat, size], axis=1), boxes)


def _cells(image: np.ndarray, scale: float) -> np.ndarray:
    """The image at `scale` as cells: normalised histograms of gradients, and brightness."""
    high, wide = image.shape[:2]
    size = (round(wide * scale), round(high * scale))
    smooth = Image.fromarray(image).convert("L").resize(size, Image.Resampling.BILINEAR)
    grey = np.asarray(smooth, dtype=np.float32) / 255.0
    rows, columns = grey.shape[0] // CELL, grey.shape[1] // CELL
    grey = grey[: rows * CELL, : columns * CELL]
    down, right = np.gradient(grey)
    strength = np.hypot(down, right)
    bins = (np.arctan2(down, right) / np.pi * BINS).astype(np.int32) % BINS
    places = np.arange(rows * CELL)[:, None] // CELL * columns + np.arange(columns * CELL) // CELL
    counts = np.bincount(
        (places * BINS + bins).ravel(), strength.ravel(), minlength=rows * columns * BINS
    ).reshape(rows, columns, BINS)
    energy = _around((counts**2).sum(2))
    light = grey.reshape(rows, CELL, columns, CELL).mean((1, 3))
    contrast = (light - _around(light)) / (light.std() + 0.02)
    parts = [counts / np.sqrt(energy + 0.003)[..., None], 0.3 * contrast[..., None]]
    return np.concatenate(parts, axis=2).astype(np.float32)


def _around(values: np.ndarray) -> np.ndarray:
    """The mean over 3 x 3 cells."""
    wide = np.pad(values, 1, mode="edge")
    high, width = values.shape
    return sum(wide[i : i + high, j : j + width] for i in range(3) for j in range(3)) / 9.0


# -- the network -------------------------------------------------------------------------------


def new_model(dimensions: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights: what a detector knows before it has seen anything."""
    first = rng.normal(0, np.sqrt(2 / dimensions), (dimensions, HIDDEN))
    second = rng.normal(0, np.sqrt(2 / HIDDEN), HIDDEN)
    model = {"first": first, "first_bias": np.zeros(HIDDEN), "second": second, "bias": np.zeros(1)}
    return {name: array.astype(np.float32) for name, array in model.items()}


def scores(model: Arrays, features: np.ndarray) -> np.ndarray:
    """How much each window looks like the target, 0 to 1."""
    hidden = np.maximum(features @ model["first"] + model["first_bias"], 0.0)
    logits = np.clip(hidden @ model["second"] + model["bias"], -30, 30)
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def fit(
    model: dict[str, np.ndarray],
    features: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    rate: float,
    rng: np.random.Generator,
) -> list[float]:
    """Train `model` in place with Adam; the mean loss of each epoch."""
    weight = np.where(labels > 0, (labels == 0).sum() / max(1.0, labels.sum()) / 4, 1.0)
    moments = {name: (np.zeros_like(a), np.zeros_like(a)) for name, a in model.items()}
    losses, steps = [], 0
    for _ in range(epochs):
        total = 0.0
        for part in np.array_split(rng.permutation(len(labels)), max(1, len(labels) // 128)):
            steps += 1
            x, y, w = features[part], labels[part], weight[part].astype(np.float32)
            hidden = np.maximum(x @ model["first"] + model["first_bias"], 0.0)
            logits = np.clip(hidden @ model["second"] + model["bias"], -30, 30)
            p = 1.0 / (1.0 + np.exp(-logits))
            total += float(-(w * np.log(np.where(y > 0, p, 1 - p) + 1e-7)).sum())
            error = (w * (p - y) / len(part)).astype(np.float32)
            back = error[:, None] * model["second"] * (hidden > 0)
            slopes = {
                "first": x.T @ back + 1e-3 * model["first"],
                "first_bias": back.sum(0),
                "second": hidden.T @ error,
                "bias": error.sum(keepdims=True),
            }
            for name, slope in slopes.items():
                mean, square = moments[name]
                mean += 0.1 * (slope - mean)
                square += 0.001 * (slope**2 - square)
                own = mean / (1 - 0.9**steps)
                model[name] -= rate * own / (np.sqrt(square / (1 - 0.999**steps)) + 1e-8)
        losses.append(total / len(labels))
    return losses


# -- hits --------------------------------------------------------------------------------------


def detect(model: Arrays, image: np.ndarray, mode: Mode) -> list[tuple[float, Box]]:
    """Hits, best first; of several that overlap only the best is kept."""
    seen = windows(image, mode)
    marks = scores(model, seen.features)
    order = np.argsort(-marks)[:200]
    order = order[marks[order] > 0.02]
    hits: list[tuple[float, Box]] = []
    boxes, left = seen.boxes[order], marks[order]
    while len(left):
        hits.append((float(left[0]), Box(mode.category, *map(float, boxes[0]))))
        apart = overlaps(boxes, boxes[:1])[:, 0] <= OVERLAP_MIN
        boxes, left = boxes[apart], left[apart]
    return hits


def overlaps(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Intersection over union of each box of `one` with each of `two` (rows: x, y, w, h)."""
    a, b = one[:, None], two[None]
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    whole = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - shared
    return np.asarray(shared / whole)


def targets(boxes: list[Box], mode: Mode) -> tuple[list[Box], list[Box]]:
    """Boxes that `mode` looks for, and those of its category that it may find without blame."""
    mine = [box for box in boxes if box.category == mode.category]
    wanted = [box for box in mine if box.h < mode.height_max]
    return wanted, [box for box in mine if box.h >= mode.height_max]


def as_rows(boxes: list[Box]) -> np.ndarray:
    return np.array([(b.x, b.y, b.w, b.h) for b in boxes], dtype=np.float32).reshape(-1, 4)


# -- models as files ---------------------------------------------------------------------------


def pack(model: Arrays) -> bytes:
    """A model as plain arrays; reading it cannot run code."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **model)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
