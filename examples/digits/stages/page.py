"""The report as one HTML page that needs nothing from outside: no script, font or image file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Json = Mapping[str, Any]

STYLE = """
:root{color-scheme:light dark;--paper:#fbfbfa;--ink:#1c2024;--soft:#5d656e;--line:#e2e4e7;
--card:#fff;--good:#1d7a53;--bad:#b4541a;--accent:#3b7dd8}
@media (prefers-color-scheme:dark){:root{--paper:#15181b;--ink:#e8eaec;--soft:#9aa3ac;
--line:#2c3238;--card:#1c2024;--good:#5cc79a;--bad:#f0975c;--accent:#7db0f2}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:60rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header{border-bottom:1px solid var(--line);padding-bottom:1.75rem}
.kicker{margin:0 0 .5rem;color:var(--soft);font-size:.85rem;letter-spacing:.04em}
h1{margin:0;font-size:2.1rem;line-height:1.2;letter-spacing:-.015em}
h2{margin:3rem 0 .35rem;font-size:1.3rem;letter-spacing:-.01em}
p{margin:.4rem 0 1rem;max-width:46rem;text-wrap:pretty}.soft{color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.9rem;
margin:1.6rem 0 0}
.numbers div{background:var(--card);border:1px solid var(--line);border-radius:.6rem;
padding:.8rem 1rem}
.numbers b{display:block;font-size:1.7rem;line-height:1.25;font-weight:650;
font-variant-numeric:tabular-nums;letter-spacing:-.01em}
.numbers span{color:var(--soft);font-size:.85rem}
.figure{overflow-x:auto;margin:.8rem 0}
.figure>svg{display:block;width:100%;height:auto;min-width:34rem}
.figure text{font-family:inherit!important}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.93rem}
th,td{padding:.42rem .7rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left;padding-left:0}
thead th{color:var(--soft);font-weight:550;font-size:.84rem;vertical-align:bottom}
tr.on td{font-weight:650}
.digits{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.5rem,1fr));gap:1rem;
margin:1rem 0;padding:0}
.digits figure{margin:0;text-align:center;font-size:.85rem}
.digits svg{width:100%;background:#fff;border:1px solid var(--line);border-radius:.4rem}
.digits figcaption{color:var(--soft);margin-top:.25rem}.digits b{color:var(--ink)}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--soft);
font-size:.85rem}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
@media print{main{padding:0}h2{break-after:avoid}.figure,table,.digits figure{break-inside:avoid}}
"""


def document(title: str, body: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def section(heading: str, text: str, *parts: str) -> str:
    return f"<section><h2>{escape(heading)}</h2><p>{text}</p>{''.join(parts)}</section>"


def figure(svg: str) -> str:
    return f'<div class="figure">{svg}</div>'


def numbers(pairs: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<div><b>{escape(b)}</b><span>{escape(a)}</span></div>" for b, a in pairs)
    return f'<div class="numbers">{cells}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], marked: int = -1) -> str:
    """A table of text cells; row `marked` stands out."""
    lines = [
        f"<tr{' class=on' if n == marked else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for n, row in enumerate(rows)
    ]
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def digit(image: Sequence[float], label: int, guesses: Sequence[int], of: int, row: int) -> str:
    """One 8 x 8 picture, ink 0 to 1, what it is, and what `len(guesses)` of `of` models read."""
    squares = "".join(
        f'<rect x="{i % 8}" y="{i // 8}" width="1" height="1" fill-opacity="{ink:.2f}"/>'
        for i, ink in enumerate(image)
        if ink > 0
    )
    read = " or ".join(map(str, sorted(set(guesses))))
    alt = f"Image {row}: a {label}, read as {read} by {len(guesses)} of {of} models"
    return (
        f'<figure><svg viewBox="0 0 8 8" role="img" aria-label="{alt}" fill="#11161c" '
        f'shape-rendering="crispEdges">{squares}'
        f"</svg><figcaption>is <b>{label}</b>, read as <b>{read}</b><br>"
        f"by {len(guesses)} of {of} models</figcaption></figure>"
    )


def digits(pictures: Iterable[str]) -> str:
    return f'<div class="digits">{"".join(pictures)}</div>'
