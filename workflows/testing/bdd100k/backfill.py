"""CPU backfill: columns that are computed from each row, and which scenes show the same thing.

`duplicate_of` names the scene that a row repeats. A training scene that repeats a held-out one is
marked whichever came first, so that nothing is measured on what was trained on.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import table as lance
from modes import DISTANT_PIXELS
from PIL import Image

from npa.stage import StageArtifact

COLUMNS = {
    "brightness": pa.float32(),
    "persons": pa.int32(),
    "riders": pa.int32(),
    "distant_persons": pa.int32(),
    "fingerprint": pa.binary(),
    "duplicate_of": pa.string(),
}
FINGERPRINT = (24, 16)  # width and height in pixels
SAME_MAX = 4.0  # mean difference of two fingerprints that show the same, in 1/256 of white


def fingerprint(image: np.ndarray) -> np.ndarray:
    """A tiny grey image, its overall brightness taken out."""
    tiny = Image.fromarray(image).convert("L").resize(FINGERPRINT, Image.Resampling.BOX)
    grey = np.asarray(tiny, dtype=np.float32)
    return np.clip(grey * (96.0 / max(1.0, float(grey.mean()))), 0, 255).astype(np.uint8)


def repeats(names: list[str], splits: list[str], prints: np.ndarray) -> dict[str, str]:
    """Which scene repeats which; held-out scenes come first, so they are never given up."""
    order = sorted(range(len(names)), key=lambda number: (splits[number] != "val", names[number]))
    flat = prints.reshape(len(prints), -1).astype(np.float32)
    found: dict[str, str] = {}
    kept: list[int] = []
    for number in order:
        apart = np.abs(flat[kept] - flat[number]).mean(axis=1) if kept else np.empty(0)
        if len(apart) and apart.min() < SAME_MAX:
            found[names[number]] = names[kept[int(apart.argmin())]]
        else:
            kept.append(number)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--report-uri", required=True)
    options = parser.parse_args()
    table = lance.connect(options.lance_uri).open_table(options.table)
    rows = lance.rows_of(table, ["scene", "split", "image", "labels"])
    images = [lance.image_of(row) for row in rows]
    prints = np.stack([fingerprint(image) for image in images])
    names, splits = [row["scene"] for row in rows], [row["split"] for row in rows]
    repeated = repeats(names, splits, prints)
    values = []
    for row, image, mark in zip(rows, images, prints, strict=True):
        people = [box for box in lance.boxes_of(row) if box.category == "person"]
        values.append(
            {
                "scene": row["scene"],
                "brightness": float(image.mean()),
                "persons": len(people),
                "riders": sum(label["category"] == "rider" for label in row["labels"]),
                "distant_persons": sum(box.h < DISTANT_PIXELS for box in people),
                "fingerprint": mark.tobytes(),
                "duplicate_of": repeated.get(row["scene"], ""),
            }
        )
    version = lance.fill_in(table, COLUMNS, values)
    split_of = dict(zip(names, splits, strict=True))
    leaks = sum(split_of[a] == "train" and split_of[b] == "val" for a, b in repeated.items())
    StageArtifact(options.report_uri).write_json(
        {
            "columns": list(COLUMNS),
            "rows": len(values),
            "version": version,
            "duplicates": len(repeated),
            "train_scenes_that_repeat_held_out_ones": leaks,
        }
    )
    print(f"{len(COLUMNS)} columns for {len(values)} scenes, {len(repeated)} duplicates")


if __name__ == "__main__":
    main()
