"""Ingest: draw the scenes of this run and store them in a new LanceDB table, images and labels."""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import table as lance
from scenes import draw_scene, retake

from npa.stage import StageArtifact

RETAKES = 0.08  # share of scenes that are another's almost identical next frame
HELD_OUT = 1 / 3


def draw_rows(count: int, seed: int) -> list[lance.Row]:
    """`count` rows. A retake may land in the other part: to find those is the backfill's work."""
    rng = np.random.default_rng(seed)
    scenes, rows = [], []
    for number in range(count):
        again = bool(scenes) and rng.random() < RETAKES
        scene = retake(scenes[rng.integers(len(scenes))], rng) if again else draw_scene(rng)
        scenes.append(scene)
        rows.append(
            {
                "scene": f"scene-{number:05d}",
                "split": "val" if rng.random() < HELD_OUT else "train",
                "timeofday": scene.timeofday,
                "weather": scene.weather,
                "image": lance.png(scene.image),
                "labels": [lance.label_of(box) for box in scene.boxes],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--scenes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--report-uri", required=True)
    options = parser.parse_args()
    rows = draw_rows(options.scenes, options.seed)
    database = lance.connect(options.lance_uri)
    table = database.create_table(options.table, rows, schema=lance.SCHEMA, mode="overwrite")
    kinds = Counter(label["category"] for row in rows for label in row["labels"])
    facts = {
        "table": options.table,
        "version": table.version,
        "rows": table.count_rows(),
        "seed": options.seed,
        "images": "synthetic, drawn by this stage",
        "by_split": Counter(row["split"] for row in rows),
        "by_timeofday": Counter(row["timeofday"] for row in rows),
        "by_category": kinds,
    }
    StageArtifact(options.report_uri).write_json(facts)
    print(f"{table.count_rows()} scenes in {options.table}, {sum(kinds.values())} labels")


if __name__ == "__main__":
    main()
