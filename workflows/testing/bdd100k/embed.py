"""Embedding backfill: principal components of simple image statistics, as a vector column.

It stands where the cluster's pipeline has CLIP and is no replacement for it: statistics of colour
and edges by region, reduced to 16 numbers by a PCA that is fitted on the training rows alone. What
it is worth is measured: how often the nearest scenes share time of day, and weather.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import table as lance

from npa.stage import StageArtifact

DIMENSIONS = 16
NEIGHBOURS = 5
GRID = (4, 6)  # regions down and across
COLUMN = "embedding"


def statistics(image: np.ndarray) -> np.ndarray:
    """Mean and spread of colour and edges in a grid of regions, and a histogram of light."""
    pixels = image.astype(np.float32) / 255.0
    grey = pixels.mean(axis=2)
    down, right = np.gradient(grey)
    maps = np.dstack([pixels, np.abs(down), np.abs(right)])
    high, wide, channels = maps.shape
    rows, columns = high // GRID[0], wide // GRID[1]
    whole = maps[: rows * GRID[0], : columns * GRID[1]]
    regions = whole.reshape(GRID[0], rows, GRID[1], columns, channels)
    light = np.histogram(grey, bins=16, range=(0.0, 1.0))[0] / grey.size
    return np.concatenate([regions.mean((1, 3)).ravel(), regions.std((1, 3)).ravel(), light])


def components(known: np.ndarray, everything: np.ndarray) -> tuple[np.ndarray, float]:
    """`everything` in the first principal directions of `known`, and their share of its spread."""
    middle, spread = known.mean(axis=0), known.std(axis=0) + 1e-6
    _, strengths, directions = np.linalg.svd((known - middle) / spread, full_matrices=False)
    share = float((strengths[:DIMENSIONS] ** 2).sum() / (strengths**2).sum())
    reduced = (everything - middle) / spread @ directions[:DIMENSIONS].T
    return reduced.astype(np.float32), share


def agreement(table: lance.lancedb.table.Table, column: str) -> float:
    """Of the nearest training scenes of held-out ones, how many have the same `column`."""
    held_out = lance.rows_of(table, ["scene", column, COLUMN], "split = 'val'")
    shared = [
        near[column] == row[column]
        for row in held_out
        for near in table.search(row[COLUMN], vector_column_name=COLUMN)
        .where("split = 'train' AND duplicate_of = ''")
        .select([column, "_distance"])
        .limit(NEIGHBOURS)
        .to_list()
    ]
    return float(np.mean(shared))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--report-uri", required=True)
    options = parser.parse_args()
    table = lance.connect(options.lance_uri).open_table(options.table)
    rows = lance.rows_of(table, ["scene", "split", "image"])
    seen = np.stack([statistics(lance.image_of(row)) for row in rows])
    known = seen[[row["split"] == "train" for row in rows]]
    vectors, share = components(known, seen)
    values = [
        {"scene": row["scene"], COLUMN: vector.tolist()}
        for row, vector in zip(rows, vectors, strict=True)
    ]
    version = lance.fill_in(table, {COLUMN: pa.list_(pa.float32(), DIMENSIONS)}, values)
    report = {
        "column": COLUMN,
        "kind": "PCA of image statistics",
        "dimensions": DIMENSIONS,
        "fitted_on": len(known),
        "rows": len(rows),
        "version": version,
        "spread_explained": share,
        "neighbours": NEIGHBOURS,
        "agreement": {name: agreement(table, name) for name in ("timeofday", "weather")},
    }
    StageArtifact(options.report_uri).write_json(report)
    print(f"{DIMENSIONS} numbers a scene, {share:.0%} of the spread")


if __name__ == "__main__":
    main()
