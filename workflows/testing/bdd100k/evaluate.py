"""Evaluate one detector on held-out scenes: average precision, precision and recall, its hits.

The same scenes are put to an untrained network of the same shape: that is the floor to compare to.
"""

from __future__ import annotations

import argparse

import numpy as np
import table as lance
from detector import detect, new_model, unpack
from measure import FOUND_MIN, Hits, Measured, measure
from modes import MODES
from scenes import Box

from npa.stage import StageArtifact

SHOWN_MIN = 0.1  # hits below this score are in no artifact


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--mode", choices=sorted(MODES), required=True)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--model-uri", required=True)
    parser.add_argument("--output-uri", required=True)
    options = parser.parse_args()
    mode = MODES[options.mode]
    model_at = StageArtifact(options.model_uri)
    model = unpack(model_at.join("model.npz").read_bytes())
    training = model_at.join("training.json").read_json()
    table = lance.connect(options.lance_uri).open_table(options.table)
    rows = lance.rows_of(table, ["scene", "image", "labels"], mode.held_out)
    seen = sorted({row["scene"] for row in rows} & set(training["scenes"]))
    if seen:
        raise SystemExit(f"{len(seen)} held-out scenes were trained on, {seen[0]} for one")
    scenes = [(lance.image_of(row), lance.boxes_of(row)) for row in rows]
    blank = new_model(len(model["first"]), np.random.default_rng(0))
    hits: list[tuple[Hits, list[Box]]] = [(detect(model, i, mode), b) for i, b in scenes]
    measured = measure(hits, mode)
    floor = measure([(detect(blank, i, mode), b) for i, b in scenes], mode)
    threshold = float(training["threshold"])
    precision, recall = measured.at(threshold)
    output = StageArtifact(options.output_uri)
    output.join("hits.json").write_json(
        {
            row["scene"]: [
                [round(s, 4), *(round(v, 2) for v in (b.x, b.y, b.w, b.h))]
                for s, b in found
                if s >= SHOWN_MIN
            ]
            for row, (found, _) in zip(rows, hits, strict=True)
        }
    )
    output.join("metrics.json").write_json(
        {
            "mode": mode.name,
            "held_out": mode.held_out,
            "scenes": len(rows),
            "targets": measured.targets,
            "overlap_min": FOUND_MIN,
            "average_precision": measured.average_precision,
            "average_precision_untrained": floor.average_precision,
            "threshold": threshold,
            "precision": precision,
            "recall": recall,
            "curve": _steps(measured),
        }
    )
    print(
        f"{mode.title}: average precision {measured.average_precision:.3f} on {len(rows)} scenes "
        f"with {measured.targets} targets; untrained {floor.average_precision:.3f}"
    )


def _steps(measured: Measured) -> list[list[float]]:
    """(score, precision, recall) of the hits that raise the recall: all that a curve needs."""
    kept, before = [], 0.0
    for score, precision, recall in measured.curve:
        if recall > before:
            kept.append([round(score, 4), round(precision, 4), round(recall, 4)])
        before = recall
    return kept


if __name__ == "__main__":
    main()
