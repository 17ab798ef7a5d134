"""The bdd100k pipeline: its file is sound, and its programs measure what they say they measure."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npa.catalog.loader import Catalog
from npa.workflow.load import Loaded, load_file
from npa.workflow.meaning import Workflow

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "workflows" / "testing"
SPEC = FOLDER / "bdd100k-pipeline.yaml"
PUBLIC = Path(os.environ.get("NPA_COMPAT_SPECS", ROOT.parent / "shared" / "specs"))

np = pytest.importorskip("numpy", reason="the `demo` extra is not installed")
pytest.importorskip("PIL", reason="the `demo` extra is not installed")


@pytest.fixture(scope="module")
def programs() -> Iterator[Any]:
    """Imports a program's module the way the program does: its folder is on the path."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER / "bdd100k"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    sys.path.remove(str(FOLDER / "bdd100k"))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def loaded() -> Loaded:
    return load_file(SPEC, tools=Catalog.load(FOLDER / "bdd100k-catalog.yaml"), overrides={})


def in_order(workflow: Workflow) -> list[str]:
    """Leaf states in the order of the main line."""
    names: list[str] = []
    at = workflow.initial
    while at:
        state = workflow.states[at]
        names += state.sequence or [at]
        at = state.next
    return names


def test_the_file_is_clean() -> None:
    result = loaded()
    assert result.diagnostics == ()
    assert result.workflow is not None


def test_the_stages_are_those_of_the_public_pipeline_in_its_order() -> None:
    path = PUBLIC / "bdd100k-pipeline.yaml"
    if not path.exists():
        pytest.skip("the public specs are not here (NPA_COMPAT_SPECS)")
    ours = loaded().workflow
    public = load_file(path, tools=Catalog.built_in(), overrides={}).workflow
    assert ours is not None
    assert public is not None
    renamed = {"backfill-clip": "backfill-embedding"}
    assert in_order(ours) == [renamed.get(name, name) for name in in_order(public)]


def test_the_same_seed_draws_the_same_scenes(programs: Any) -> None:
    scenes = programs("scenes")
    one, two, other = (scenes.draw_scene(np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert (one.image == two.image).all()
    assert one.boxes == two.boxes
    assert other.boxes != one.boxes


def test_every_label_lies_within_its_scene(programs: Any) -> None:
    scenes = programs("scenes")
    rng = np.random.default_rng(0)
    boxes = [box for _ in range(40) for box in scenes.draw_scene(rng).boxes]
    assert {box.category for box in boxes} == {"person", "rider", "car"}
    for box in boxes:
        assert box.x >= 0
        assert box.x + box.w <= scenes.WIDTH
        assert box.y >= 0
        assert box.y + box.h <= scenes.HEIGHT


class TestMeasuring:
    @pytest.fixture
    def kit(self, programs: Any) -> tuple[Any, Any, Any]:
        return programs("measure"), programs("modes").MODES, programs("scenes").Box

    def test_average_precision_of_a_known_ranking(self, kit: Any) -> None:
        """Right, wrong, right of two targets: (1 + 2/3) / 2."""
        measure, modes, box = kit
        labels = [box("rider", 10, 10, 20, 30), box("rider", 80, 10, 20, 30)]
        hits = [(0.9, labels[0]), (0.8, box("rider", 45, 10, 20, 30)), (0.7, labels[1])]
        measured = measure.measure([(hits, labels)], modes["rider"])
        assert measured.average_precision == pytest.approx((1 + 2 / 3) / 2)
        assert measured.at(0.85) == (1.0, 0.5)
        assert measured.at(0.95) == (1.0, 0.0)

    def test_a_target_is_found_once(self, kit: Any) -> None:
        measure, modes, box = kit
        label = box("rider", 10, 10, 20, 30)
        verdicts, missed = measure.judge([(0.9, label), (0.8, label)], [label], modes["rider"])
        assert [verdict.right for verdict in verdicts] == [True, False]
        assert missed == []

    def test_a_near_person_is_neither_found_nor_a_false_alarm_of_the_distant_mode(
        self, kit: Any
    ) -> None:
        measure, modes, box = kit
        near, far = box("person", 10, 10, 16, 40), box("person", 80, 40, 5, 12)
        verdicts, missed = measure.judge([(0.9, near)], [near, far], modes["distant_person"])
        assert verdicts == []
        assert missed == [far]

    def test_another_category_is_a_false_alarm(self, kit: Any) -> None:
        measure, modes, box = kit
        person = box("person", 10, 10, 16, 40)
        verdicts, _ = measure.judge([(0.9, person)], [person], modes["rider"])
        assert [verdict.right for verdict in verdicts] == [False]

    def test_nothing_found_is_zero(self, kit: Any) -> None:
        measure, modes, box = kit
        measured = measure.measure([([], [box("rider", 10, 10, 20, 30)])], modes["rider"])
        assert (measured.targets, measured.average_precision) == (1, 0.0)


def test_windows_fit_what_is_looked_for(programs: Any) -> None:
    """Each target has a window that overlaps it enough to be learned from."""
    scenes, detector = programs("scenes"), programs("detector")
    modes = programs("modes").MODES
    rng = np.random.default_rng(2)
    met: list[float] = []
    for _ in range(12):
        scene = scenes.draw_scene(rng)
        for mode in modes.values():
            wanted, _ = detector.targets(list(scene.boxes), mode)
            if wanted:
                seen = detector.windows(scene.image, mode)
                met += detector.overlaps(seen.boxes, detector.as_rows(wanted)).max(axis=0).tolist()
    assert np.mean(np.array(met) >= 0.6) > 0.95


def test_training_learns_and_repeats(programs: Any) -> None:
    scenes, training, detector = programs("scenes"), programs("training"), programs("detector")
    mode = programs("modes").MODES["rider"]
    rng = np.random.default_rng(5)
    drawn = [scenes.draw_scene(rng) for _ in range(30)]
    kept = [s for s in drawn if any(b.category == "rider" for b in s.boxes)][:8]
    images, boxes = [s.image for s in kept], [list(s.boxes) for s in kept]
    one, two = (training.train(images, boxes, mode, epochs=2, rate=3e-3, seed=1) for _ in "ab")
    assert one.losses[-1] < one.losses[0] / 2
    assert all((one.model[name] == two.model[name]).all() for name in one.model)
    again = detector.unpack(detector.pack(one.model))
    assert all((again[name] == one.model[name]).all() for name in one.model)


class TestRepeats:
    @pytest.fixture
    def backfill(self, programs: Any) -> Any:
        pytest.importorskip("lancedb", reason="the `bdd100k` extra is not installed")
        return programs("backfill")

    def test_retakes_are_found_and_other_scenes_are_not(self, backfill: Any, programs: Any) -> None:
        scenes = programs("scenes")
        rng = np.random.default_rng(1)
        drawn = [scenes.draw_scene(rng) for _ in range(60)]
        again = [scenes.retake(scene, rng) for scene in drawn[:20]]
        names = [f"scene-{number:03d}" for number in range(80)]
        prints = np.stack([backfill.fingerprint(scene.image) for scene in drawn + again])
        found = backfill.repeats(names, ["train"] * 80, prints)
        assert found == {names[60 + number]: names[number] for number in range(20)}

    def test_of_a_repeated_pair_the_training_scene_is_given_up(self, backfill: Any) -> None:
        prints = np.zeros((2, 16, 24), dtype=np.uint8)
        assert backfill.repeats(["a", "b"], ["train", "val"], prints) == {"a": "b"}
