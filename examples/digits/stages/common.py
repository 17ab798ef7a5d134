"""What the stages share: arrays as bytes, and models that are plain arrays.

A model is stored as the numbers that define it, never as a pickle: reading an artifact must not be
able to run code, and a stage that only predicts need not import the library that trained.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from npa.stage import StageArtifact

Arrays = Mapping[str, np.ndarray]
CLASSES = np.arange(10)


def pack(arrays: Arrays) -> bytes:
    """Arrays as the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an .npz file; object arrays (pickles) are refused."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def predict(model: Arrays, images: np.ndarray) -> np.ndarray:
    """The digit that `model` reads in each row of `images`."""
    if "support" in model:
        return _vote(model, images)
    signal = images
    layers = len(model) // 2
    for layer in range(layers):
        signal = signal @ model[f"weights{layer}"] + model[f"bias{layer}"]
        if layer < layers - 1:
            signal = np.maximum(signal, 0.0)
    return np.asarray(np.argmax(signal, axis=1))


def _vote(model: Arrays, images: np.ndarray) -> np.ndarray:
    """A kernel machine: each pair of classes casts a vote, the lowest class wins a tie."""
    support, dual = model["support"], model["dual"]
    square = (images**2).sum(1)[:, None] + (support**2).sum(1) - 2 * images @ support.T
    kernel = np.exp(-model["gamma"] * square)
    ends = np.cumsum(model["counts"])
    part = [slice(end - count, end) for end, count in zip(ends, model["counts"], strict=True)]
    votes = np.zeros((len(images), len(CLASSES)), dtype=int)
    for pair, (a, b) in enumerate(combinations(range(len(CLASSES)), 2)):
        margin = kernel[:, part[a]] @ dual[b - 1, part[a]] + kernel[:, part[b]] @ dual[a, part[b]]
        wins = margin + model["intercept"][pair] > 0
        votes[wins, a] += 1
        votes[~wins, b] += 1
    return np.asarray(np.argmax(votes, axis=1))


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float((predicted == labels).mean())


def confusion(labels: np.ndarray, predicted: np.ndarray) -> list[list[int]]:
    """Counts, one row a true digit, one column a predicted digit."""
    table = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    np.add.at(table, (labels, predicted), 1)
    return table.tolist()


def misread(part: Arrays, predicted: np.ndarray) -> list[dict[str, int]]:
    """The images of `part` that `predicted` got wrong, by their row in the data set."""
    return [
        {"row": int(row), "label": int(label), "predicted": int(guess)}
        for row, label, guess in zip(part["rows"], part["labels"], predicted, strict=True)
        if label != guess
    ]


def under(prefix: StageArtifact, suffix: str) -> dict[str, dict[str, Any]]:
    """The JSON objects below `prefix` whose names end in `suffix`, by name."""
    return {name: prefix.join(name).read_json() for name in prefix.list() if name.endswith(suffix)}
