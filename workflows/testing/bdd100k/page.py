"""The review page's pieces: HTML and SVG text, nothing from outside, readable by day and night."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from measure import Verdict
from modes import MODES, Mode
from scenes import HEIGHT, WIDTH, Box

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    """One scene as it is shown: a row of the table, and what a detector made of it."""

    row: Json
    found: tuple[Verdict, ...]
    false: tuple[Verdict, ...]
    missed: tuple[Box, ...]


STYLE = """
:root{color-scheme:light dark;--ink:#1d2329;--soft:#5b6670;--paper:#fff;--line:#d9dee3;
--card:#f5f7f8;
--good:#2fbf8a;--bad:#ff6a50;--lost:#e5ac27}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaed;--soft:#9aa6b0;--paper:#14181b;--line:#2c343a;
--card:#1b2125}}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1060px;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:0 0 .5rem}h2{font-size:1.4rem;margin:3rem 0 .25rem}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
p{max-width:44rem;margin:.4rem 0}.soft{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:1rem;
margin:1.5rem 0}
.card{background:var(--card);border-radius:8px;padding:1rem}
.card b{display:block;font-size:1.7rem;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:.9rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}
th,td{text-align:left;padding:.35rem 1.1rem .35rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500;font-size:.9rem}
.two{display:flex;flex-wrap:wrap;gap:2rem;align-items:flex-start}
.scenes{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:.8rem}
figure{margin:0}figure svg{width:100%;height:auto;display:block;border-radius:6px}
figcaption{color:var(--soft);font-size:.85rem;padding:.25rem .1rem}
.key i{display:inline-block;width:.9rem;height:.9rem;border:2.5px solid;vertical-align:-2px;
margin:0 .35rem 0 1rem;border-radius:2px}.key i:first-child{margin-left:0}
"""


def document(title: str, *parts: str) -> str:
    """The whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def header(summary: Json, facts: Json) -> str:
    """What was found, in one look."""
    cards = "".join(
        f'<div class="card"><span>{escape(MODES[name].title)}</span>'
        f"<b>{found['average_precision']:.2f}</b><span>average precision; "
        f"{found['average_precision_untrained']:.3f} untrained</span></div>"
        for name, found in summary.items()
    )
    table = facts["facts"]
    return (
        "<h1>Three failure modes, three detectors</h1>"
        f"<p>{table['rows']} drawn driving scenes, {table['by_split']['train']} to train on and "
        f"{table['by_split']['val']} held out. Each detector learned from the scenes of its own "
        "view, and every number on this page was measured on held-out scenes alone.</p>"
        f'<div class="cards">{cards}</div>'
        '<p class="key soft"><i style="color:var(--good)"></i>found'
        '<i style="color:var(--bad)"></i>false alarm'
        '<i style="color:var(--lost)"></i>missed, or a label</p>'
    )


def mode_section(
    mode: Mode,
    metrics: Json,
    training: Json,
    rows: Mapping[str, Sequence[Shown]],
    near: Sequence[Shown],
    counts: Mapping[str, int],
) -> str:
    """One detector: its numbers, its curve, and scenes to judge it by."""
    numbers = (
        ("average precision", f"{metrics['average_precision']:.3f}"),
        ("untrained network", f"{metrics['average_precision_untrained']:.3f}"),
        ("precision at the threshold", f"{metrics['precision']:.1%}"),
        ("recall at the threshold", f"{metrics['recall']:.1%}"),
        ("held-out scenes", f"{metrics['scenes']}"),
        ("targets in them", f"{metrics['targets']}"),
        ("scenes fitted on", f"{training['fitted_on']}"),
        ("time to fit", f"{training['fit_seconds']:.1f} s"),
    )
    cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in numbers)
    groups = "".join(
        f"<h3>{escape(title)}</h3>{_scenes(shown)}" for title, shown in rows.items() if shown
    )
    if near:
        groups += (
            "<h3>Training scenes nearest to the first missed one, by embedding</h3>" + _scenes(near)
        )
    return (
        f"<h2>{escape(mode.title)}</h2>"
        f'<p class="soft">Of {counts["scenes"]} scenes, {counts["missed"]} have a missed target '
        f"and {counts['false']} a false alarm. The threshold {metrics['threshold']:.2f} was chosen "
        f"on {training['threshold_chosen_on']} training scenes that were not fitted on. A hit "
        f"finds a target when they overlap by half.</p>"
        f'<div class="two"><table>{cells}</table>{_curve(metrics)}</div>{groups}'
    )


def about(facts: Json) -> str:
    """Where the rows come from and what each column is worth."""
    views = "".join(
        f"<tr><td>{escape(view['view'])}</td><td>{view['rows']}</td>"
        f"<td><code>{escape(view['where'])}</code></td></tr>"
        for view in facts["views"]["views"].values()
    )
    filled, vector = facts["backfill"], facts["embedding"]
    agreement = vector["agreement"]
    return (
        "<h2>The table</h2>"
        f"<p>{filled['duplicates']} scenes repeat another one; "
        f"{filled['train_scenes_that_repeat_held_out_ones']} of them are training scenes that "
        "repeat a held-out one, and no view has them. The embedding is a "
        f"{escape(vector['kind'])} in {vector['dimensions']} numbers: of the {vector['neighbours']}"
        f" nearest training scenes of a held-out one, {agreement['timeofday']:.0%} share its time "
        f"of day and {agreement['weather']:.0%} its weather.</p>"
        f"<table><tr><th>view</th><th>scenes</th><th>rows</th></tr>{views}</table>"
    )


def _scenes(shown: Sequence[Shown]) -> str:
    return f'<div class="scenes">{"".join(map(_scene, shown))}</div>'


def _scene(shown: Shown) -> str:
    data = base64.b64encode(shown.row["image"]).decode()
    boxes = [_box(box, "--lost", "") for box in shown.missed]
    boxes += [_box(hit.box, "--good", f"{hit.score:.2f}") for hit in shown.found]
    boxes += [_box(hit.box, "--bad", f"{hit.score:.2f}") for hit in shown.false]
    caption = f"{shown.row['scene']}, {shown.row['timeofday']}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(caption)}">'
        f'<image href="data:image/png;base64,{data}" width="{WIDTH}" height="{HEIGHT}"/>'
        f"{''.join(boxes)}</svg><figcaption>{escape(caption)}</figcaption></figure>"
    )


def _box(box: Box, colour: str, text: str) -> str:
    label = f'<text x="{box.x:.1f}" y="{box.y - 1.5:.1f}" font-size="5.5" fill="var({colour})">'
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}" '
        f'fill="none" stroke="var({colour})" stroke-width="1"/>'
        + (f"{label}{text}</text>" if text else "")
    )


def _curve(metrics: Json) -> str:
    """Precision over recall, with the point of the chosen threshold."""
    wide, high, left, low = 260, 180, 34, 26

    def place(recall: float, precision: float) -> str:
        return f"{left + recall * wide:.1f},{8 + (1 - precision) * high:.1f}"

    points = " ".join(place(recall, precision) for _, precision, recall in metrics["curve"])
    x, y = place(metrics["recall"], metrics["precision"]).split(",")
    ticks = "".join(
        f'<line x1="{left}" x2="{left + wide}" y1="{8 + (1 - t) * high}" y2="{8 + (1 - t) * high}" '
        f'stroke="var(--line)"/><text x="{left - 6}" y="{12 + (1 - t) * high}" font-size="11" '
        f'text-anchor="end" fill="var(--soft)">{t:g}</text>'
        f'<text x="{left + t * wide}" y="{high + 24}" font-size="11" text-anchor="middle" '
        f'fill="var(--soft)">{t:g}</text>'
        for t in (0, 0.5, 1)
    )
    return (
        f'<svg width="{left + wide + 16}" height="{high + low + 22}" role="img" '
        f'aria-label="precision over recall">{ticks}'
        f'<polyline points="{points}" fill="none" stroke="var(--ink)" stroke-width="1.8"/>'
        f'<circle cx="{x}" cy="{y}" r="4.5" fill="var(--good)"/>'
        f'<text x="{left + wide / 2}" y="{high + 42}" font-size="12" text-anchor="middle" '
        'fill="var(--soft)">recall (precision upwards)</text></svg>'
    )
