"""A controller is created only where the Kubernetes API has been good for ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from npa.orchestration.engine import Evidence
from npa.orchestration.skypilot.client import Answer, Broken, Refused, Reply
from npa.orchestration.skypilot.configs import (
    Controller,
    controller_context,
    kubernetes_config,
    nebius_config,
    slurm_config,
)
from npa.orchestration.skypilot.connect import connect
from npa.orchestration.skypilot.jobqueue import Clock
from npa.orchestration.skypilot.readiness import (
    DEADLINE_SECONDS,
    ControllerReadiness,
    Sample,
    StableReadiness,
    sample_of,
)
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.spec import SessionSpec

G, T, A = Sample.GOOD, Sample.TRANSPORT, Sample.AUTHENTICATION


class World:
    def __init__(self, *samples: Sample, then: Sample = G) -> None:
        self.at = 0.0
        self.taken = 0
        self._samples: Iterator[Sample] = iter(samples)
        self._then = then

    def sample(self) -> Sample:
        self.taken += 1
        return next(self._samples, self._then)

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def ask(self) -> Evidence | None:
        clock = Clock(now=lambda: self.at, monotonic=lambda: self.at, sleep=self.sleep)
        return StableReadiness(self.sample, clock)()


@pytest.mark.req("D-03")
def test_three_good_samples_over_ten_seconds() -> None:
    world = World()
    assert world.ask() is None
    assert (world.taken, world.at) == (3, 10.0)


@pytest.mark.req("D-03")
def test_one_bad_sample_starts_the_count_anew() -> None:
    world = World(G, G, T)
    assert world.ask() is None
    assert (world.taken, world.at) == (6, 25.0)


@pytest.mark.req("D-03")
def test_a_refusal_that_no_waiting_cures_ends_it_at_once() -> None:
    world = World(G, A)
    assert world.ask() == Evidence("AUTHENTICATION", "readyz")
    assert world.taken == 2


@pytest.mark.req("D-03")
def test_an_api_that_never_settles_is_given_up_with_its_last_trouble() -> None:
    world = World(then=Sample.SERVER)
    told = world.ask()
    assert told is not None
    assert told.code == "KUBERNETES_SERVER"
    assert world.at <= DEADLINE_SECONDS


# -- what the bridge tells ---------------------------------------------------------------------


@pytest.mark.req("D-03")
@pytest.mark.parametrize(
    ("reply", "sample"),
    [
        (Answer({"status": 200}), Sample.GOOD),
        (Answer({"status": 0}), Sample.TRANSPORT),
        (Answer({"status": 401}), Sample.AUTHENTICATION),
        (Answer({"status": 403}), Sample.AUTHORIZATION),
        (Answer({"status": 429}), Sample.RATE_LIMIT),
        (Answer({"status": 503}), Sample.SERVER),
        (Answer({"status": 404}), Sample.SERVER),
        (Refused("authentication", "Refused", "no user"), Sample.AUTHENTICATION),
        (Refused("unknown", "ModuleNotFoundError", "kubernetes"), Sample.TRANSPORT),
        (Broken("timeout", "no answer"), Sample.TRANSPORT),
    ],
)
def test_each_answer_is_one_sample(reply: Reply, sample: Sample) -> None:
    assert sample_of(reply) is sample


class Bridge:
    """Answers `controller` with one word, and `ready` with one status after the other."""

    def __init__(self, state: Reply, *statuses: int) -> None:
        self.at = 0.0
        self.state = state
        self.statuses = list(statuses)
        self.contexts: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def call(self, op: str, seconds: float, **fields: Any) -> Reply:
        if op == "controller":
            return self.state
        self.contexts.append(fields["context"])
        return Answer({"status": self.statuses.pop(0)})

    def ask(self) -> Evidence | None:
        clock = Clock(now=lambda: self.at, monotonic=lambda: self.at, sleep=self.sleep)
        return ControllerReadiness(self.call, "ctx", clock)()


@pytest.mark.req("D-03")
@pytest.mark.parametrize("state", ["up", "stopped"])
def test_a_usable_controller_is_not_waited_for(state: str) -> None:
    bridge = Bridge(Answer({"state": state}))
    assert bridge.ask() is None
    assert bridge.contexts == []


@pytest.mark.req("D-03")
@pytest.mark.parametrize(
    "state", [Answer({"state": "absent"}), Answer({"state": "init"}), Broken("died", "it ended")]
)
def test_a_controller_that_may_be_created_needs_a_stable_api(state: Reply) -> None:
    bridge = Bridge(state, 200, 503, 200, 200, 200)
    assert bridge.ask() is None
    assert (bridge.at, bridge.contexts) == (20.0, ["ctx"] * 5)
    assert Bridge(state, 403).ask() == Evidence("AUTHORIZATION", "readyz")


@pytest.mark.req("A-12", "D-03")
def test_only_a_session_whose_controller_is_a_pod_asks(tmp_path: Path) -> None:
    asks = {
        "pod": kubernetes_config("ctx"),
        "vm": kubernetes_config("ctx", Controller.VM),
        "beside": kubernetes_config("ctx", Controller.CONSOLIDATED),
        "slurm": slurm_config(),
        "nebius": nebius_config(),
    }
    assert {name: controller_context(config) for name, config in asks.items()} == {
        "pod": "ctx",
        "vm": "",
        "beside": "",
        "slurm": "",
        "nebius": "",
    }
    for name, config in asks.items():
        spec = SessionSpec(tmp_path, Kind.RUN, tmp_path / "python", {}, sky_config=config)
        engine = connect(spec, lambda _job: pytest.fail("nothing is rendered"))
        assert isinstance(engine.before_controller, ControllerReadiness) == (name == "pod")
