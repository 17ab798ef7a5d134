"""Report: one self-contained page for both ends of the pipeline, and a summary for programs.

`params.form` is `promoted` or `shortfall`. The page must agree with the decision that the gate
wrote; a report that says otherwise is never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import figures
import numpy as np
import page
from common import under, unpack

from npa.stage import Stage

FORMS = {"promote_checkpoint": "promoted", "loop_back_to_inner_loop": "shortfall"}
MISREAD_SHOWN_MAX = 18
Json = dict[str, Any]


def main() -> None:
    stage = Stage.from_env()
    facts = collect(stage)
    summary = summarise(facts)
    html = render(facts, summary)
    stage.output("digits.report.v1").write_bytes(html.encode())
    stage.output("digits.summary.v1").write_json(summary)
    print(
        f"{summary['outcome']}: {summary['model']}, {summary['validation_accuracy']:.4f} measured"
    )


def collect(stage: Stage) -> Json:
    """All that the page is made of, read from the artifacts."""
    decision = stage.input("npa.decision.v1").read_json()
    form = str(stage.params["form"])
    decided = FORMS.get(decision["decision"], "")
    if decided != form:
        raise SystemExit(f"the gate decided {decision['decision']}, which is no {form} report")
    refinements = stage.input("digits.refinements.v1")
    gates = under(refinements, "/decision.json")
    rounds = [
        {**metrics, "gate": FORMS[gates[name.replace("metrics", "decision")]["decision"]]}
        for name, metrics in under(refinements, "/metrics.json").items()
    ]
    return {
        "form": form,
        "threshold": float(stage.params["accuracy_threshold"]),
        "budget": int(stage.params["max_iterations"]),
        "run": stage.run_id,
        "workflow": stage.workflow,
        "data": stage.input("digits.facts.v1").read_json(),
        "split": stage.input("digits.split.v1").read_json(),
        "evaluation": stage.input("digits.evaluation.v1").read_json(),
        "check": stage.input("digits.cross_check.v1").read_json(),
        "rounds": sorted(rounds, key=lambda metrics: metrics["iteration"]),
        "timings": list(under(stage.input("digits.timings.v1"), ".json").values()),
        "test": unpack(stage.input("digits.test.v1").read_bytes()),
    }


def summarise(facts: Json) -> Json:
    last, check = facts["rounds"][-1], facts["check"]
    low, high = figures.wilson(check["correct"], check["samples"])
    plain = {m["name"]: m for m in facts["evaluation"]["models"]}
    return {
        "outcome": facts["form"],
        "model": last["name"],
        "iteration": last["iteration"],
        "max_iterations": facts["budget"],
        "accuracy_threshold": facts["threshold"],
        "validation_accuracy": last["accuracy"],
        "test_accuracy": check["accuracy"],
        "test_interval_95": [low, high],
        "best_plain_model": facts["evaluation"]["best"],
        "plain_models": {
            name: {"validation_accuracy": m["accuracy"], "test_accuracy": m["test_accuracy"]}
            for name, m in plain.items()
        },
        "refinements": [
            {"iteration": r["iteration"], "width": r["width"], "validation_accuracy": r["accuracy"]}
            for r in facts["rounds"]
        ],
        "shards": check["ranks"],
        "run": facts["run"],
    }


def render(facts: Json, summary: Json) -> str:
    title = f"Digits: {summary['outcome']}"
    return page.document(
        title,
        (
            header(facts, summary),
            models_section(facts),
            refine_section(facts),
            confusion_section(facts),
            classes_section(facts),
            misread_section(facts),
            shards_section(facts),
            timeline_section(facts),
            footer(facts),
        ),
    )


def header(facts: Json, summary: Json) -> str:
    measured, threshold = summary["validation_accuracy"], summary["accuracy_threshold"]
    promoted = facts["form"] == "promoted"
    rounds = len(facts["rounds"])
    if promoted:
        head = '<span class="good">Promoted.</span> The refined model passed its gate'
        text = (
            f"Refinement {rounds} of at most {facts['budget']} reached {measured:.2%} on the "
            f"validation part; {threshold:.2%} were asked for."
        )
    else:
        head = '<span class="bad">Shortfall.</span> No refinement passed the gate'
        text = (
            f"All {rounds} refinements were tried. The last one reached {measured:.2%} on the "
            f"validation part, {100 * (threshold - measured):.2f} points short of the "
            f"{threshold:.2%} that were asked for. Nothing was promoted."
        )
    cells = page.numbers(
        (
            (f"{measured:.2%}", f"validation accuracy, threshold {threshold:.2%}"),
            (f"{summary['test_accuracy']:.2%}", "test accuracy, not used for any choice"),
            (f"{rounds} of {facts['budget']}", f"refinements, last is {summary['model']}"),
            (f"{facts['check']['ranks']} agree", "shards of the test part, counted twice"),
        )
    )
    return (
        f'<header><p class="kicker">Handwritten digits, run {escape(facts["run"])}</p>'
        f"<h1>{head}</h1><p>{text}</p>{cells}</header>"
    )


def tested(facts: Json) -> list[Json]:
    """The plain models and the refined one, in one shape."""
    last, check = facts["rounds"][-1], facts["check"]
    plain = facts["evaluation"]["models"]
    refined = {
        **last,
        "test_accuracy": check["accuracy"],
        **{key: check[key] for key in ("confusion", "misread")},
    }
    return [
        {
            "name": model["name"],
            "validation": model["accuracy"],
            "validation_samples": model["measured_on"],
            "test": model["test_accuracy"],
            "test_samples": check["samples"],
            "confusion": model["confusion"],
            "misread": model["misread"],
            "numbers": model["numbers"],
            "fitted_on": model["fitted_on"],
            "fit_seconds": model["fit_seconds"],
        }
        for model in (*plain, refined)
    ]


def models_section(facts: Json) -> str:
    models = tested(facts)
    rows = [
        (
            m["name"],
            f"{m['validation']:.2%}",
            f"{m['test']:.2%}",
            f"{m['numbers']:,}",
            f"{m['fitted_on']:,}",
            f"{m['fit_seconds']:.2f} s",
        )
        for m in models
    ]
    names = ("model", "validation", "test", "numbers in it", "images fitted on", "time to fit")
    return page.section(
        "How good each model is",
        f"Three plain models were trained side by side; the best of them on validation is the "
        f"{escape(facts['evaluation']['best'])}. Bars are 95 % intervals: with "
        f"{models[0]['validation_samples']} and {models[0]['test_samples']} images, differences "
        "of half a point are within chance.",
        page.figure(figures.accuracies(models, facts["threshold"])),
        page.table(names, rows, marked=len(rows) - 1),
    )


def refine_section(facts: Json) -> str:
    networks = [m for m in facts["evaluation"]["models"] if m["curve"]] + facts["rounds"]
    rows = [
        (
            str(r["iteration"]),
            f"{r['width']}",
            f"{r['numbers']:,}",
            f"{r['accuracy']:.2%}",
            f"{100 * (r['accuracy'] - facts['threshold']):+.2f} points",
            "promoted" if r["gate"] == "promoted" else "looped back",
        )
        for r in facts["rounds"]
    ]
    names = ("refinement", "width", "numbers in it", "validation", "against the threshold", "gate")
    return page.section(
        "How it was refined",
        "Each refinement trains a wider network, on each training image and four copies of it, "
        "moved by one pixel each way. The gate reads the measured accuracy: promote, or loop back.",
        page.table(names, rows, marked=len(rows) - 1),
        page.figure(figures.curves(networks, facts["threshold"])),
    )


def confusion_section(facts: Json) -> str:
    return page.section(
        "What is mistaken for what",
        "Test part; a row is the true digit, a column what the model read.",
        page.figure(figures.confusions(tested(facts))),
    )


def classes_section(facts: Json) -> str:
    table = np.array(facts["check"]["confusion"])
    rows = []
    for digit in range(10):
        right, there, read = table[digit, digit], table[digit].sum(), table[:, digit].sum()
        precision, recall = right / max(1, read), right / max(1, there)
        balance = 2 * precision * recall / max(1e-12, precision + recall)
        rows.append((str(digit), str(there), f"{precision:.1%}", f"{recall:.1%}", f"{balance:.3f}"))
    return page.section(
        "Digit by digit",
        f"The refined model ({escape(facts['rounds'][-1]['name'])}) on the test part. "
        "Precision: how many of those read as this digit are it. Recall: how many of this digit "
        "were found.",
        page.table(("digit", "images", "precision", "recall", "F1"), rows),
    )


def misread_section(facts: Json) -> str:
    models = tested(facts)
    guesses: dict[int, list[int]] = {}
    labels: dict[int, int] = {}
    for model in models:
        for wrong in model["misread"]:
            guesses.setdefault(wrong["row"], []).append(wrong["predicted"])
            labels[wrong["row"]] = wrong["label"]
    hardest = sorted(guesses, key=lambda row: (-len(guesses[row]), row))
    place = {int(row): at for at, row in enumerate(facts["test"]["rows"])}
    pictures = [
        page.digit(facts["test"]["images"][place[row]], labels[row], guesses[row], len(models), row)
        for row in hardest[:MISREAD_SHOWN_MAX]
    ]
    return page.section(
        "Digits that were misread",
        f"{len(hardest)} of {facts['check']['samples']} test images were misread by at least one "
        f"of the {len(models)} models, {len(models[-1]['misread'])} by the refined one. "
        f"The {len(pictures)} hardest are shown.",
        page.digits(pictures),
    )


def shards_section(facts: Json) -> str:
    check = facts["check"]
    rows = [
        (
            f"rank {s['rank']}",
            str(s["samples"]),
            str(s["correct"]),
            f"{s['correct'] / s['samples']:.2%}",
            f"{s['timing']['end'] - s['timing']['start']:.2f} s",
        )
        for s in check["shards"]
    ]
    rows.append(
        ("together", str(check["samples"]), str(check["correct"]), f"{check['accuracy']:.2%}", "")
    )
    return page.section(
        "Counted again by a gang",
        f"{check['ranks']} ranks evaluated disjoint shards of the test part at the same time. "
        "Rank 0 checked that each image was counted exactly once and that the shards add up to "
        "the table of the whole part.",
        page.table(("shard", "images", "correct", "accuracy", "time"), rows, marked=len(rows) - 1),
    )


def bars(timings: Sequence[Json], check: Json) -> list[Json]:
    """Timeline bars in order of start; the gang's other ranks come from their shards."""
    found = [{**t, "path": t["path"]} for t in timings if t["path"] != check["path"]]
    found += [
        {**shard["timing"], "path": f"{check['path']}, rank {shard['rank']}"}
        for shard in check["shards"]
    ]
    kinds = ("train", "refine", "cross-check")
    for bar in found:
        bar["kind"] = next((kind for kind in kinds if bar["path"].startswith(kind)), "")
    return sorted(found, key=lambda bar: (bar["start"], bar["path"]))


def timeline_section(facts: Json) -> str:
    stages = bars(facts["timings"], {**facts["check"], "path": "cross-check"})
    return page.section(
        "When each stage ran",
        "As the stages themselves recorded it, without this report. Gaps are the engine at work, "
        "and the gates, which are a tool of the catalogue.",
        page.figure(figures.timeline(stages)),
    )


def footer(facts: Json) -> str:
    split = facts["split"]
    parts = ", ".join(f"{count} {name}" for name, count in split.items())
    return (
        f"<footer><p>{escape(facts['data']['source'])}: {facts['data']['samples']} images, "
        f"split into {parts}, the same share of each digit in each part. The copy says not who "
        "wrote which digit, so one writer may be in several parts: on new writers, expect less."
        f"</p><p>Data SHA-256 <code>{facts['data']['sha256'][:16]}</code>, workflow "
        f"<code>{escape(facts['workflow'])}</code>.</p></footer>"
    )


if __name__ == "__main__":
    main()
