"""Ingest: the UCI handwritten digits that ship with scikit-learn, checked and stored once."""

from __future__ import annotations

import hashlib

import clock
import numpy as np
from common import pack
from sklearn.datasets import load_digits

from npa.stage import Stage

SAMPLES, PIXELS = 1797, 64  # UCI "Optical Recognition of Handwritten Digits", the test part


def main() -> None:
    stage = Stage.from_env()
    with clock.timed(stage):
        images, labels = load_digits(return_X_y=True)
        if images.shape != (SAMPLES, PIXELS) or not ((images >= 0) & (images <= 16)).all():
            raise SystemExit(f"the data set is not the known one: shape {images.shape}")
        images = images / 16.0  # ink, 0 to 1
        stage.output("digits.images.v1").write_bytes(pack({"images": images, "labels": labels}))
        stage.output("digits.facts.v1").write_json(
            {
                "source": "UCI Optical Recognition of Handwritten Digits (8 x 8, 10 classes)",
                "samples": len(labels),
                "distinct_images": len(np.unique(images, axis=0)),
                "per_class": np.bincount(labels).tolist(),
                "sha256": hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
            }
        )


if __name__ == "__main__":
    main()
