"""The digits example: each stage works alone, results repeat, and the report says what is true."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from examples.digits_harness import EXAMPLE, Pipeline
from npa.catalog.loader import Catalog
from npa.workflow.load import load_file

pytest.importorskip("sklearn", reason="the `demo` extra is not installed")
pytest.importorskip("matplotlib", reason="the `demo` extra is not installed")


@pytest.fixture(scope="module")
def stages() -> Iterator[Any]:
    """Imports a stage's module the way a stage does: its folder is on the path."""
    before = set(sys.modules)
    sys.path.insert(0, str(EXAMPLE / "stages"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    sys.path.remove(str(EXAMPLE / "stages"))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXAMPLE)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = Pipeline(tmp_path_factory.mktemp("promoted"))
    assert pipeline.whole() == "report-promoted"
    return pipeline


@pytest.fixture(scope="module")
def shortfall(promoted: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The same data and models, a budget of one refinement, a threshold that nothing reaches."""
    overrides = {"accuracy_threshold": "1.01", "max_iterations": "1"}
    pipeline = Pipeline(tmp_path_factory.mktemp("shortfall"), overrides)
    pipeline.borrow(promoted, "ingest", "split", "models", "evaluate", "timeline")
    assert pipeline.finish() == "report-shortfall"
    return pipeline


def page_of(pipeline: Pipeline) -> str:
    return (pipeline.root / "artifacts/report/report.html").read_text()


def arrays(pipeline: Pipeline, name: str) -> dict[str, np.ndarray]:
    with np.load(pipeline.root / "artifacts" / name) as archive:
        return dict(archive)


@pytest.mark.parametrize("overrides", [{}, {"accuracy_threshold": "1.01"}])
def test_the_file_is_clean(overrides: dict[str, str]) -> None:
    loaded = load_file(EXAMPLE / "pipeline.yaml", tools=Catalog.load(), overrides=overrides)
    assert loaded.diagnostics == ()
    assert loaded.workflow is not None


def test_the_parts_share_no_image_and_cover_all(promoted: Pipeline) -> None:
    parts = [arrays(promoted, f"split/{name}.npz") for name in ("train", "validation", "test")]
    rows = np.concatenate([part["rows"] for part in parts])
    assert sorted(rows.tolist()) == list(range(1797))
    pictures = [{image.tobytes() for image in part["images"]} for part in parts]
    assert not pictures[0] & pictures[1]
    assert not pictures[0] & pictures[2]
    assert not pictures[1] & pictures[2]


def test_each_part_holds_its_share_of_each_digit(promoted: Pipeline) -> None:
    counts = {
        name: np.bincount(arrays(promoted, f"split/{name}.npz")["labels"], minlength=10)
        for name in ("train", "validation", "test")
    }
    whole = sum(counts.values())
    assert np.abs(counts["train"] - 0.6 * whole).max() <= 1
    assert np.abs(counts["validation"] - 0.2 * whole).max() <= 1


def test_the_gate_loops_back_once_and_then_promotes(promoted: Pipeline) -> None:
    decisions = [promoted.read(f"refine/{n}/decision.json")["decision"] for n in (1, 2)]
    assert decisions == ["loop_back_to_inner_loop", "promote_checkpoint"]
    measured = [promoted.read(f"refine/{n}/metrics.json")["accuracy"] for n in (1, 2)]
    assert measured[0] < 0.975 <= measured[1]


def test_training_again_gives_the_same_numbers(promoted: Pipeline, tmp_path: Path) -> None:
    again = Pipeline(tmp_path)
    again.through_split()
    for state, model in (("train-network", "network"), ("train-svm", "svm")):
        again.run(state)
        first, second = (p.read(f"models/{model}/metrics.json") for p in (promoted, again))
        assert first["curve"] == second["curve"]
        assert first["accuracy"] == second["accuracy"]


def test_stored_models_predict_as_the_library_does(promoted: Pipeline, stages: Any) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    common = stages("common")
    train, test = (arrays(promoted, f"split/{name}.npz") for name in ("train", "test"))
    gamma = 1 / (64 * train["images"].var())
    fresh = {"logistic": LogisticRegression(max_iter=500), "svm": SVC(gamma=gamma)}
    for name, learner in fresh.items():
        stored = arrays(promoted, f"models/{name}/model.npz")
        expected = learner.fit(train["images"], train["labels"]).predict(test["images"])
        assert (common.predict(stored, test["images"]) == expected).all()


def test_measured_accuracy_is_that_of_the_stored_model(promoted: Pipeline, stages: Any) -> None:
    common = stages("common")
    validation = arrays(promoted, "split/validation.npz")
    for folder in ("models/logistic", "models/svm", "models/network", "refine/2"):
        model = arrays(promoted, f"{folder}/model.npz")
        hits = common.predict(model, validation["images"]) == validation["labels"]
        assert promoted.read(f"{folder}/metrics.json")["accuracy"] == hits.mean()


def test_models_that_hold_objects_are_refused(stages: Any) -> None:
    common = stages("common")
    file = io.BytesIO()
    np.savez(file, weights0=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        common.unpack(file.getvalue())


class TestCrossCheck:
    @pytest.fixture
    def parts(self, promoted: Pipeline, stages: Any) -> Any:
        check, common = stages("cross_check"), stages("common")
        test = arrays(promoted, "split/test.npz")
        model = arrays(promoted, "refine/2/model.npz")
        shards = [check.measure(rank, 2, model, test) for rank in range(2)]
        whole = common.confusion(test["labels"], common.predict(model, test["images"]))
        return check, shards, test, whole

    def test_honest_shards_add_up(self, parts: Any) -> None:
        check, shards, test, whole = parts
        assert check.problems(shards, 2, test, whole) == []

    def test_a_missing_shard_is_named(self, parts: Any) -> None:
        check, shards, test, whole = parts
        found = check.problems(shards[:1], 2, test, whole)
        assert found[0] == "shard 1 is missing"
        assert f"{len(shards[1]['rows'])} test images are in no shard" in found

    def test_a_doubled_shard_is_named(self, parts: Any) -> None:
        check, shards, test, whole = parts
        found = check.problems([*shards, shards[1]], 2, test, whole)
        assert "shard 1 is there 2 times" in found
        assert any("more than one shard" in problem for problem in found)

    def test_the_same_rows_under_another_rank_are_found(self, parts: Any) -> None:
        check, shards, test, whole = parts
        found = check.problems([shards[0], {**shards[0], "rank": 1}], 2, test, whole)
        assert any("more than one shard" in problem for problem in found)
        assert any("in no shard" in problem for problem in found)

    def test_a_miscounted_shard_is_found(self, parts: Any) -> None:
        check, shards, test, whole = parts
        liar = {**shards[1], "correct": shards[1]["correct"] + 1}
        assert check.problems([shards[0], liar], 2, test, whole) == [
            "the correct answers of the shards do not add up"
        ]

    def test_rank_0_fails_when_a_shard_stays_away(self, promoted: Pipeline, tmp_path: Path) -> None:
        alone = Pipeline(tmp_path)
        alone.borrow(promoted, "split", "refine")
        code, said = alone.attempt("cross-check", 0, 2, shard_deadline_seconds=0.2)
        assert code != 0
        assert "shard 1 is missing" in said
        assert not (tmp_path / "artifacts/cross-check/cross-check.json").exists()


class TestReport:
    HEADINGS = (
        "How good each model is",
        "How it was refined",
        "What is mistaken for what",
        "Digit by digit",
        "Digits that were misread",
        "Counted again by a gang",
        "When each stage ran",
    )

    @pytest.fixture(params=["promoted", "shortfall"])
    def ended(self, request: pytest.FixtureRequest) -> Pipeline:
        return request.getfixturevalue(request.param)  # type: ignore[no-any-return]

    def test_it_has_every_section(self, ended: Pipeline) -> None:
        page = page_of(ended)
        assert [heading for heading in self.HEADINGS if f"<h2>{heading}</h2>" not in page] == []

    def test_it_reaches_for_nothing_outside(self, ended: Pipeline) -> None:
        page = page_of(ended)
        assert "://" not in page
        assert not re.findall(r"<(?:script|link|img|iframe|object)\b|@import|url\((?!#)", page)
        assert not [
            target for target in re.findall(r'href="([^"]*)"', page) if not target.startswith("#")
        ]

    def test_every_picture_has_a_text(self, ended: Pipeline) -> None:
        pictures = re.findall(r"<svg [^>]*>", page_of(ended))
        assert len(pictures) >= 4
        assert [p for p in pictures if not re.search(r'role="img" aria-label="[^"]+"', p)] == []

    def test_it_says_how_it_ended(self, promoted: Pipeline, shortfall: Pipeline) -> None:
        assert '<span class="good">Promoted.</span>' in page_of(promoted)
        assert '<span class="bad">Shortfall.</span>' in page_of(shortfall)

    def test_the_summary_holds_what_was_measured(self, promoted: Pipeline) -> None:
        summary, check = (
            promoted.read("report/summary.json"),
            promoted.read("cross-check/cross-check.json"),
        )
        assert summary["outcome"] == "promoted"
        assert summary["iteration"] == 2
        assert summary["validation_accuracy"] == promoted.read("refine/2/metrics.json")["accuracy"]
        assert summary["test_accuracy"] == check["correct"] / check["samples"]
        assert f"{summary['test_accuracy']:.2%}" in page_of(promoted)

    def test_the_shortfall_is_stated_in_points(self, shortfall: Pipeline) -> None:
        summary = shortfall.read("report/summary.json")
        assert summary["outcome"] == "shortfall"
        missing = 100 * (1.01 - summary["validation_accuracy"])
        assert f"{missing:.2f} points short" in re.sub(r"\s+", " ", page_of(shortfall))

    def test_the_timeline_shows_every_stage_that_ran(self, promoted: Pipeline) -> None:
        (line,) = re.findall(r'aria-label="Timeline\. ([^"]*)"', page_of(promoted))
        for path in (
            "ingest",
            "split",
            "train-svm",
            "refine[1]/refine-train",
            "cross-check, rank 1",
        ):
            assert path in line

    def test_it_contradicts_no_gate(self, promoted: Pipeline) -> None:
        code, said = promoted.attempt("report-shortfall")
        assert code != 0
        assert "no shortfall report" in said
        assert promoted.read("report/summary.json")["outcome"] == "promoted"


def test_stages_name_only_schemas_that_the_file_declares(promoted: Pipeline) -> None:
    used: set[str] = set()
    for script in (EXAMPLE / "stages").glob("*.py"):
        used |= set(re.findall(r'"(digits\.\w+\.v1)"', script.read_text()))
    text = json.dumps(promoted.document)
    assert [schema for schema in sorted(used) if schema not in text] == []
