"""When a frame survives a loss of power: before its effects, or while what ends with it starts."""

from __future__ import annotations

import pytest

from simulation import scenarios
from simulation.choices import Scripted
from simulation.faults import Op
from simulation.play import play


@pytest.mark.req("D-01")
def test_a_launch_of_a_job_that_ends_with_the_machine_is_hardened_before_anything_else() -> None:
    trace = play(scenarios.LOCAL, Scripted()).world.trace
    launches = [n for n, op in enumerate(trace) if op is Op.LAUNCH]
    assert launches
    assert all(trace[n + 1] is Op.HARDEN for n in launches)
    creates = [n for n, op in enumerate(trace) if op is Op.CREATE]
    assert all(Op.HARDEN in trace[n : n + 3] for n in creates[1:])  # the first takes the lease


@pytest.mark.req("D-01")
def test_what_outlives_the_machine_is_launched_after_its_frame_is_durable() -> None:
    trace = play(scenarios.SINGLE, Scripted()).world.trace
    assert Op.LAUNCH in trace
    assert Op.HARDEN not in trace  # each create is durable by itself


def test_a_frame_that_cannot_be_hardened_stops_everything_but_the_waiting() -> None:
    calm = play(scenarios.LOCAL, Scripted()).world.trace
    point = next(n for n, op in enumerate(calm, 1) if op is Op.HARDEN)
    played = play(scenarios.LOCAL, Scripted({point: "outage"}))
    trace = played.world.trace[point - 1 :]
    between = trace[: max(n for n, op in enumerate(trace[:12]) if op is Op.HARDEN)]
    assert set(between) == {Op.HARDEN, Op.WAIT}
    assert len(between) > 4
    assert any("cannot be made durable" in text for text in played.shown)
