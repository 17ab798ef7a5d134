"""A controller is created only where the Kubernetes API has been good for ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from npa.orchestration.engine import Evidence
from npa.orchestration.skypilot.jobqueue import Clock
from npa.orchestration.skypilot.readiness import DEADLINE_SECONDS, Sample, StableReadiness

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
