"""Split: training, validation and test parts, the same share of each digit in all three.

Models are fitted on the first, selected on the second, and the third is only reported.
"""

from __future__ import annotations

import clock
import numpy as np
from common import CLASSES, pack, unpack

from npa.stage import Stage

PARTS = ("train", "validation", "test")


def divide(labels: np.ndarray, shares: tuple[float, float], seed: int) -> list[np.ndarray]:
    """Row numbers of the three parts. `shares` are those of training and validation, 0 to 1."""
    chance = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[], [], []]
    for digit in CLASSES:
        rows = chance.permutation(np.flatnonzero(labels == digit))
        cuts = (np.cumsum(shares) * len(rows)).round().astype(int)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def main() -> None:
    stage = Stage.from_env()
    with clock.timed(stage):
        data = unpack(stage.input("digits.images.v1").read_bytes())
        shares = (float(stage.params["train_share"]), float(stage.params["validation_share"]))
        parts = divide(data["labels"], shares, int(stage.params["seed"]))
        seen: set[bytes] = set()
        for name, rows in zip(PARTS, parts, strict=True):
            images = data["images"][rows]
            pictures = {image.tobytes() for image in images}
            if seen & pictures:
                raise SystemExit(f"the {name} part shares images with an earlier part")
            seen |= pictures
            arrays = {"rows": rows, "images": images, "labels": data["labels"][rows]}
            stage.output(f"digits.{name}.v1").write_bytes(pack(arrays))
        stage.output("digits.split.v1").write_json(
            {name: len(rows) for name, rows in zip(PARTS, parts, strict=True)}
        )


if __name__ == "__main__":
    main()
