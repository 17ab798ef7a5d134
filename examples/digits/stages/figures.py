"""The report's figures, as inline SVG that takes its text colour and its font from the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

INK = "#010203"  # stands for the page's text colour, replaced by `currentColor`
BLUE, ORANGE, GREEN, GREY = "#3b7dd8", "#e07b39", "#2f9e6e", "#8a8f98"
LADDER = ("#9dbfea", "#5b97e0", "#1f5fb8", "#12386e")
Json = Mapping[str, Any]

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "digits",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": GREY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": GREY,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
)


def wilson(right: float, total: int) -> tuple[float, float]:
    """The 95 % interval of a proportion after Wilson (1927); good near 0 and 1."""
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    reach = z * (share * (1 - share) / total + z * z / (4 * total * total)) ** 0.5
    scale = 1 + z * z / total
    return (middle - reach) / scale, min(1.0, (middle + reach) / scale)


def svg(figure: Figure, title: str, alt: str) -> str:
    """`figure` as an <svg> element with an accessible name, free of ids and outside references."""
    buffer = io.StringIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, bbox_inches="tight", metadata=empty)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', head)
    assert box is not None  # noqa: S101 - matplotlib always writes one
    width = float(box[1].split()[2])
    label = f'role="img" aria-label="{alt}"'
    head = f'<svg viewBox="{box[1]}" style="max-width:{width * 1.34:.0f}px" {label}'
    return f"{head}><title>{title}</title>{body}".replace(INK, "currentColor")


def accuracies(models: Sequence[Json], threshold: float) -> str:
    """Validation and test accuracy of each model, with 95 % intervals and the threshold."""
    figure = Figure(figsize=(7.4, 0.5 * len(models) + 1.1))
    axes = figure.add_subplot()
    for row, model in enumerate(reversed(models)):
        for part, colour, lift in (("validation", BLUE, 0.13), ("test", ORANGE, -0.13)):
            share, total = model[part], model[f"{part}_samples"]
            low, high = wilson(share * total, total)
            axes.plot([low, high], [row + lift] * 2, color=colour, lw=1.6, alpha=0.65)
            axes.plot(share, row + lift, "o", color=colour, ms=6, label=None if row else part)
    axes.axvline(threshold, color=INK, lw=1, ls=(0, (4, 3)), label=f"threshold {threshold:g}")
    axes.set_yticks(range(len(models)), [model["name"] for model in reversed(models)])
    axes.set_ylim(-0.6, len(models) - 0.4)
    axes.set_xlabel("accuracy, with 95 % interval")
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    words = "; ".join(
        f"{m['name']}: {m['validation']:.1%} on validation, {m['test']:.1%} on test" for m in models
    )
    return svg(figure, "Accuracy of each model", f"Accuracies. {words}. Threshold {threshold:g}.")


def confusions(models: Sequence[Json]) -> str:
    """Confusion tables side by side: blue is right, orange is a mistake."""
    figure = Figure(figsize=(8.6, 8.9))
    for place, model in enumerate(models, start=1):
        axes = figure.add_subplot(2, 2, place)
        table = model["confusion"]
        _table(axes, table)
        wrong = sum(map(sum, table)) - sum(table[i][i] for i in range(len(table)))
        axes.set_title(f"{model['name']}: {wrong} wrong")
    figure.subplots_adjust(wspace=0.18, hspace=0.28)
    words = "; ".join(f"{m['name']}: {m['test']:.1%} right" for m in models)
    return svg(figure, "Confusion tables on the test part", f"Confusion tables. {words}.")


def _table(axes: Axes, table: Sequence[Sequence[int]]) -> None:
    for truth, row in enumerate(table):
        for guess, count in enumerate(row):
            right = truth == guess
            colour = BLUE if right else ORANGE
            share = count / max(1, sum(row))
            alpha = 0.2 + 0.75 * share if right else min(0.95, 0.35 + 2 * share)
            face = colour if count else "none"
            axes.add_patch(Rectangle((guess, truth), 1, 1, fc=face, alpha=alpha, ec=GREY, lw=0.25))
            if count:
                strong = right and share > 0.5
                axes.text(
                    guess + 0.5,
                    truth + 0.54,
                    str(count),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="#ffffff" if strong else INK,
                )
    axes.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", xlabel="read as", ylabel="is")
    axes.set_xticks([i + 0.5 for i in range(10)], "0123456789")
    axes.set_yticks([i + 0.5 for i in range(10)], "0123456789")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def curves(networks: Sequence[Json], threshold: float) -> str:
    """Validation accuracy and training loss by epoch, the plain network and each refinement."""
    figure = Figure(figsize=(8.6, 3.3))
    left, right = figure.subplots(1, 2)
    for place, run in enumerate(networks):
        colour = GREY if place == 0 else LADDER[min(place, len(LADDER)) - 1]
        epochs = [point["epoch"] for point in run["curve"]]
        for axes, key in ((left, "validation"), (right, "loss")):
            axes.plot(
                epochs, [point[key] for point in run["curve"]], color=colour, label=run["name"]
            )
    left.axhline(threshold, color=INK, lw=1, ls=(0, (4, 3)))
    left.set(title="Validation accuracy", xlabel="epoch")
    left.set_ylim(0.8, 1.005)
    right.set(title="Training loss", xlabel="epoch", yscale="log")
    for axes in (left, right):
        axes.grid()
    left.legend(loc="lower right")
    figure.subplots_adjust(wspace=0.2)
    ends = "; ".join(f"{run['name']} ends at {run['accuracy']:.1%}" for run in networks)
    return svg(figure, "Learning curves", f"Learning curves by epoch. {ends}.")


def timeline(bars: Sequence[Json]) -> str:
    """One bar a stage, seconds since the first stage started."""
    figure = Figure(figsize=(8.6, 0.27 * len(bars) + 0.8))
    axes = figure.add_subplot()
    zero = min(bar["start"] for bar in bars)
    end = max(bar["end"] for bar in bars) - zero
    for row, bar in enumerate(bars):
        start, length = bar["start"] - zero, bar["end"] - bar["start"]
        colour = {"train": BLUE, "refine": GREEN, "cross-check": ORANGE}.get(bar["kind"], GREY)
        axes.barh(row, length, left=start, height=0.62, color=colour)
        axes.text(start + length + end * 0.008, row, f"{length:.1f} s", va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [bar["path"] for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, end * 1.08)
    axes.set_xlabel("seconds since the first stage started")
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    words = "; ".join(f"{b['path']} {b['end'] - b['start']:.1f} s" for b in bars)
    return svg(figure, "Timeline of the stages", f"Timeline. {words}.")
