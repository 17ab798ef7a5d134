"""Review: one self-contained page for a person, with scenes, labels, hits and measured numbers."""

from __future__ import annotations

import argparse
from typing import Any

import page
import table as lance
from detector import targets
from measure import judge
from modes import MODES, Mode
from scenes import Box

from npa.stage import StageArtifact

SHOWN = 4  # scenes of each kind
NEAR = 4  # training scenes that look like a missed one
Json = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--table", required=True)
    for name in ("reports", "models", "evaluations", "review"):
        parser.add_argument(f"--{name}-uri", required=True)
    options = parser.parse_args()
    table = lance.connect(options.lance_uri).open_table(options.table)
    reports = StageArtifact(options.reports_uri)
    facts = {
        name: reports.join(f"{name}.json").read_json()
        for name in ("facts", "backfill", "embedding", "views")
    }
    rows = lance.rows_of(table, ["scene", "timeofday", "image", "labels", "embedding"])
    scenes = {row["scene"]: row for row in rows}
    sections, summary = [], {}
    for mode in MODES.values():
        evaluation = StageArtifact(options.evaluations_uri).join(f"{mode.name}/")
        metrics = evaluation.join("metrics.json").read_json()
        hits = evaluation.join("hits.json").read_json()
        training = StageArtifact(options.models_uri).join(mode.name, "training.json").read_json()
        sections.append(_section(mode, metrics, training, hits, scenes, table))
        summary[mode.name] = {
            name: metrics[name]
            for name in (
                *("scenes", "targets", "average_precision", "average_precision_untrained"),
                *("threshold", "precision", "recall"),
            )
        }
    review = StageArtifact(options.review_uri)
    html = page.document("Failure modes", page.header(summary, facts), *sections, page.about(facts))
    review.join("review.html").write_text(html)
    review.join("summary.json").write_json({"modes": summary, "table": facts["facts"]})
    print(f"a page with {len(sections)} detectors, {len(html) // 1024} KiB")


def _section(
    mode: Mode,
    metrics: Json,
    training: Json,
    hits: Json,
    scenes: dict[str, lance.Row],
    table: lance.lancedb.table.Table,
) -> str:
    looked = [
        _look(mode, scenes[name], found, metrics["threshold"]) for name, found in hits.items()
    ]
    good = [s for s in looked if s.found and not s.missed]
    missed = [s for s in looked if s.missed]
    false = [s for s in looked if s.false]
    good.sort(key=lambda s: (len(s.false), -len(s.found)))
    missed.sort(key=lambda s: -len(s.missed))
    false.sort(key=lambda s: -s.false[0].score)
    rows = {"Found": good[:SHOWN], "Missed": missed[:SHOWN], "False alarms": false[:SHOWN]}
    near = _near(table, mode, missed[0].row) if missed else []
    return page.mode_section(
        mode,
        metrics,
        training,
        rows,
        near,
        {"scenes": len(looked), "missed": len(missed), "false": len(false)},
    )


def _look(mode: Mode, row: lance.Row, found: list[list[float]], threshold: float) -> page.Shown:
    """One scene with its hits above the threshold, parted into right and false."""
    hits = [(hit[0], Box(mode.category, *hit[1:])) for hit in found if hit[0] >= threshold]
    verdicts, missed = judge(hits, lance.boxes_of(row), mode)
    return page.Shown(
        row,
        tuple(verdict for verdict in verdicts if verdict.right),
        tuple(verdict for verdict in verdicts if not verdict.right),
        tuple(missed),
    )


def _near(table: lance.lancedb.table.Table, mode: Mode, row: lance.Row) -> list[page.Shown]:
    """Training scenes whose embedding is nearest to that of a missed scene, with their targets."""
    found = (
        table.search(row["embedding"], vector_column_name="embedding")
        .where("split = 'train' AND duplicate_of = ''")
        .select(["scene", "timeofday", "image", "labels", "_distance"])
        .limit(NEAR)
        .to_list()
    )
    return [
        page.Shown(near, (), (), tuple(targets(lance.boxes_of(near), mode)[0])) for near in found
    ]


if __name__ == "__main__":
    main()
