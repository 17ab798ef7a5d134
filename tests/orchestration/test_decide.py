"""The table: one test a row, then properties over the whole space of situations."""

from __future__ import annotations

import itertools

import pytest

from changed import replace
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration import decide as d
from npa.orchestration.decide import Check, Fence, Goal, OutputsKind, Situation, decide, judge
from npa.orchestration.engine import Evidence, ExactJob, JobStatus, MemberStatus, Phase
from npa.orchestration.evidence import TABLE, Klass, klass_of, strongest
from npa.orchestration.state import Stage

EXACT = ExactJob("job", "7", 0.0, "here")
PAYLOAD = Evidence("PAYLOAD_EXIT_NONZERO", "shim", exit_code=3)
BROKEN_SPEC = Evidence("IMAGE_NOT_FOUND", "pod")
TRANSIENT = Evidence("NODE_NOT_READY", "node")
STRANGE = Evidence("SOMETHING_NEW", "provider")


def found(
    phase: Phase,
    *evidence: Evidence,
    settled: bool = True,
    capacity: bool = False,
    observable: bool = True,
    native: str = "7",
) -> Found[JobStatus]:
    exact = replace(EXACT, native_id=native)
    status = JobStatus(
        exact,
        phase,
        settled,
        (MemberStatus("a", phase, evidence),),
        observable=observable,
        capacity=capacity,
        evidence=evidence,
    )
    return Found(status, "queue", 0.0)


UNAVAILABLE = Unavailable("timeout", "", "queue", 0.0)
AMBIGUOUS = Ambiguous(("7", "8"), "queue", 0.0)
ABSENT_LATE = Absent("complete queue", "queue", 0.0, late_possible=True)
ABSENT = Absent("sealed claim", "local", 0.0)

BASE = Situation(
    goal=Goal.COMPLETE,
    superseded=False,
    seal_equal=True,
    stage=Stage.LAUNCHED,
    observation=found(Phase.RUNNING, settled=False),
    outputs=OutputsKind.NOT_LOOKED,
    since_intent=5.0,
    window=60.0,
    skew=10.0,
    deadline=0.0,
    native_id="7",
    cancel_why="",
    cancels=0,
    since_cancel=0.0,
    cancel_patience=300.0,
    cancel_repeat=30.0,
    recoveries_left=1,
    check=Check.PASSED,
)
INTENDED = replace(BASE, stage=Stage.INTENDED, native_id="")
RESERVED = replace(BASE, stage=Stage.RESERVED, native_id="", observation=ABSENT)


def test_row_1_a_superseded_driver_does_nothing() -> None:
    assert decide(replace(BASE, superseded=True)) == d.Superseded()


@pytest.mark.req("A-07")
def test_row_2_changed_inputs_hold_the_run() -> None:
    assert isinstance(decide(replace(BASE, seal_equal=False)), d.Hold)


@pytest.mark.req("A-07")
def test_changed_inputs_do_not_stop_a_cancel() -> None:
    step = decide(replace(BASE, seal_equal=False, goal=Goal.CANCELLED))
    assert step == d.Cancel(EXACT, "user")


def test_row_3_not_seeing_is_waiting() -> None:
    assert isinstance(decide(replace(BASE, observation=UNAVAILABLE)), d.Wait)


@pytest.mark.req("D-04")
@pytest.mark.parametrize("goal", list(Goal))
def test_row_4_ambiguous_holds_whatever_the_goal(goal: Goal) -> None:
    step = decide(replace(BASE, observation=AMBIGUOUS, goal=goal))
    assert isinstance(step, d.Hold)
    assert "7, 8" in step.reason


@pytest.mark.req("D-05")
def test_row_4_another_id_under_our_name_holds() -> None:
    step = decide(replace(BASE, observation=found(Phase.RUNNING, settled=False, native="8")))
    assert isinstance(step, d.Hold)


@pytest.mark.req("D-02")
def test_row_5_an_open_intent_adopts_what_it_finds() -> None:
    step = decide(replace(INTENDED, observation=found(Phase.PENDING, settled=False)))
    assert step == d.Adopt("7", "queue")


@pytest.mark.req("E-06")
def test_row_6_a_phantom_row_is_looked_at_then_cancelled_never_forgotten() -> None:
    phantom = found(Phase.PENDING, settled=False, observable=False)
    assert decide(replace(INTENDED, observation=phantom)) == d.Adopt("7", "queue")
    adopted = replace(BASE, observation=phantom)
    assert decide(adopted) == d.LookAtOutputs()
    absent = replace(adopted, outputs=OutputsKind.ABSENT)
    assert decide(absent) == d.Cancel(EXACT, "transient:PRE_PAYLOAD_TRANSPORT")
    assert isinstance(decide(replace(adopted, outputs=OutputsKind.MIXED)), d.Hold)
    assert isinstance(decide(replace(adopted, outputs=OutputsKind.UNSEEN)), d.Wait)


@pytest.mark.req("E-06")
def test_row_6_after_the_cancel_outputs_are_looked_at_again_and_the_preflight_is_fresh() -> None:
    gone = replace(
        BASE,
        observation=found(Phase.CANCELLED),
        cancel_why="transient:PRE_PAYLOAD_TRANSPORT",
        cancels=1,
    )
    assert decide(gone) == d.LookAtOutputs()
    again = replace(gone, outputs=OutputsKind.ABSENT)
    assert decide(replace(again, check=Check.STALE)) == d.RunPreflight()
    assert isinstance(decide(replace(again, check=Check.FAILED)), d.Hold)
    step = decide(again)
    assert isinstance(step, d.Fail)
    assert (step.klass, step.code) == (Klass.TRANSIENT, "PRE_PAYLOAD_TRANSPORT")


@pytest.mark.req("D-06")
def test_row_7_an_absent_job_may_still_arrive() -> None:
    assert isinstance(decide(replace(INTENDED, observation=ABSENT_LATE)), d.Wait)


@pytest.mark.req("D-06")
def test_row_8_absent_after_the_window_is_refused() -> None:
    late = replace(INTENDED, observation=ABSENT_LATE, since_odd=70.1)
    assert decide(late) == d.EndRefused("LAUNCH_VERIFIED_ABSENT")


@pytest.mark.req("D-06")
def test_row_8_a_wall_clock_never_shows_that_nothing_comes_any_more() -> None:
    jumped = replace(INTENDED, observation=ABSENT_LATE, since_intent=9999.0, since_odd=0.5)
    assert isinstance(decide(jumped), d.Wait)


@pytest.mark.req("D-01", "D-06")
def test_row_8_the_claim_is_taken_before_a_launch_is_given_up() -> None:
    late = replace(INTENDED, observation=ABSENT_LATE, since_odd=70.1, fence=Fence.NOT_TRIED)
    assert decide(late) == d.Seal()
    assert isinstance(decide(replace(late, fence=Fence.UNSEEN)), d.Wait)
    assert decide(replace(late, fence=Fence.SEALED)) == d.EndRefused("LAUNCH_VERIFIED_ABSENT")
    assert isinstance(decide(replace(late, fence=Fence.TAKEN)), d.Wait)
    taken = decide(replace(late, fence=Fence.TAKEN, since_odd=late.odd_patience + 1))
    assert isinstance(taken, d.Hold)
    assert taken.code == "CLAIMED"


def test_row_8_a_proof_against_late_arrival_needs_no_waiting() -> None:
    assert decide(replace(INTENDED, observation=ABSENT)) == d.EndRefused("LAUNCH_VERIFIED_ABSENT")


@pytest.mark.parametrize("goal", [Goal.CANCELLED, Goal.GONE])
def test_row_9_a_reservation_is_sealed_by_a_cancel(goal: Goal) -> None:
    assert decide(replace(RESERVED, goal=goal)) == d.EndCancelled(launched=False)
    assert decide(RESERVED) == d.Launch()


@pytest.mark.req("E-04", "F-03")
def test_row_10_cancel_is_repeated_and_finite() -> None:
    asked = replace(BASE, goal=Goal.CANCELLED, cancel_why="user", cancels=1)
    assert isinstance(decide(replace(asked, since_cancel=5)), d.Wait)
    assert decide(replace(asked, since_cancel=31)) == d.Cancel(EXACT, "user")
    step = decide(replace(asked, since_cancel=301))
    assert isinstance(step, d.Hold)
    assert step.code == "CANCELLATION_UNVERIFIED"


@pytest.mark.req("E-04")
def test_row_10_cancelled_counts_only_when_seen_and_settled() -> None:
    asked = replace(BASE, goal=Goal.CANCELLED, cancel_why="user", cancels=1)
    cleaning = replace(asked, observation=found(Phase.CANCELLED, settled=False))
    assert isinstance(decide(cleaning), d.Wait)
    done = replace(asked, observation=found(Phase.CANCELLED))
    assert decide(done) == d.EndCancelled(launched=True)


@pytest.mark.req("E-02")
def test_row_11_configuration_is_cancelled_while_live_and_final() -> None:
    live = replace(BASE, observation=found(Phase.PENDING, BROKEN_SPEC, settled=False))
    assert decide(live) == d.Cancel(EXACT, "configuration:IMAGE_NOT_FOUND")
    over = replace(BASE, observation=found(Phase.FAILED, BROKEN_SPEC))
    step = decide(over)
    assert isinstance(step, d.Fail)
    assert step.klass is Klass.CONFIGURATION


@pytest.mark.req("E-02")
def test_row_12_a_payload_failure_is_one() -> None:
    step = decide(replace(BASE, observation=found(Phase.FAILED, PAYLOAD)))
    assert step == d.Fail(Klass.PAYLOAD, "PAYLOAD_EXIT_NONZERO", PAYLOAD)


def test_rows_13_to_15_success_is_proven_by_outputs() -> None:
    over = replace(BASE, observation=found(Phase.SUCCEEDED))
    assert decide(over) == d.LookAtOutputs()
    assert decide(replace(over, outputs=OutputsKind.VALID)) == d.Succeed()
    assert decide(replace(over, outputs=OutputsKind.NONE)) == d.Succeed()
    missing = decide(replace(over, outputs=OutputsKind.MIXED))
    assert isinstance(missing, d.Fail)
    assert missing.code == "DECLARED_OUTPUT_MISSING"
    assert isinstance(decide(replace(over, outputs=OutputsKind.UNSEEN)), d.Wait)


def test_a_terminal_word_counts_only_when_the_providers_clean_up_is_over() -> None:
    step = decide(replace(BASE, observation=found(Phase.SUCCEEDED, settled=False)))
    assert isinstance(step, d.Wait)


@pytest.mark.req("E-06")
def test_row_16_a_foreign_cancellation_is_never_a_reason_to_relaunch() -> None:
    step = decide(replace(BASE, observation=found(Phase.CANCELLED)))
    assert step == d.Fail(Klass.CANCELLED, "FOREIGN_CANCELLATION", None)
    assert (
        judge(
            Klass.CANCELLED,
            goal=Goal.COMPLETE,
            retries_left=9,
            recoveries_left=9,
            exhausted=False,
        )
        is d.Verdict.FINAL
    )


def test_row_17_the_users_deadline_cancels_and_fails() -> None:
    late = replace(BASE, deadline=10.0, since_intent=10.1)
    assert decide(late) == d.Cancel(EXACT, "deadline")
    over = replace(late, cancel_why="deadline", cancels=1, observation=found(Phase.CANCELLED))
    step = decide(over)
    assert isinstance(step, d.Fail)
    assert step.code == "DEADLINE"


@pytest.mark.req("C-02")
def test_row_18_waiting_for_capacity_is_no_failure() -> None:
    step = decide(replace(BASE, observation=found(Phase.PENDING, settled=False, capacity=True)))
    assert isinstance(step, d.Wait)
    assert step.capacity


@pytest.mark.req("E-02")
def test_row_20_a_live_transient_is_cancelled_by_exact_id_first() -> None:
    live = replace(
        BASE,
        observation=found(Phase.STARTING, TRANSIENT, settled=False),
        outputs=OutputsKind.ABSENT,
    )
    assert decide(live) == d.Cancel(EXACT, "transient:NODE_NOT_READY")


@pytest.mark.req("E-05")
def test_row_21_valid_outputs_are_reused_before_any_budget_is_asked() -> None:
    over = replace(BASE, observation=found(Phase.FAILED, TRANSIENT), outputs=OutputsKind.VALID)
    assert decide(replace(over, recoveries_left=0)) == d.Succeed(reused=True)


def test_row_22_half_an_output_holds() -> None:
    over = replace(BASE, observation=found(Phase.FAILED, TRANSIENT), outputs=OutputsKind.MIXED)
    assert isinstance(decide(over), d.Hold)


@pytest.mark.req("E-03")
def test_row_23_the_recovery_budget_is_finite() -> None:
    over = replace(
        BASE,
        observation=found(Phase.FAILED, TRANSIENT),
        outputs=OutputsKind.ABSENT,
        recoveries_left=0,
    )
    step = decide(over)
    assert isinstance(step, d.Fail)
    assert step.code == "INFRASTRUCTURE_RECOVERY_EXHAUSTED"


def test_row_26_an_unexplained_failure_holds() -> None:
    assert isinstance(decide(replace(BASE, observation=found(Phase.FAILED))), d.Hold)
    assert isinstance(decide(replace(BASE, observation=found(Phase.FAILED, STRANGE))), d.Hold)
    word = replace(BASE, observation=found(Phase.UNKNOWN))
    assert isinstance(decide(word), d.Wait)
    assert isinstance(decide(replace(word, since_odd=601.0)), d.Hold)


def test_an_end_whose_clean_up_never_ends_holds() -> None:
    ended = replace(BASE, observation=found(Phase.SUCCEEDED, settled=False))
    step = decide(replace(ended, since_odd=601.0))
    assert isinstance(step, d.Hold)
    assert step.code == "UNSETTLED"


@pytest.mark.req("F-03")
@pytest.mark.parametrize("facts", [(), (STRANGE,), (TRANSIENT,)])
@pytest.mark.parametrize("outputs", list(OutputsKind))
def test_a_cancelled_run_is_over_when_its_job_is_whatever_it_died_of(
    facts: tuple[Evidence, ...], outputs: OutputsKind
) -> None:
    over = replace(
        BASE, goal=Goal.CANCELLED, observation=found(Phase.FAILED, *facts), outputs=outputs
    )
    assert decide(over) == d.EndCancelled(launched=True)
    cancelled_before = replace(over, cancel_why="transient:X", cancels=1)
    assert decide(cancelled_before) == d.EndCancelled(launched=True)


@pytest.mark.req("E-02", "E-05")
def test_outputs_that_an_earlier_attempt_may_have_left_are_no_success_of_this_one() -> None:
    over = replace(BASE, observation=found(Phase.FAILED, TRANSIENT), outputs=OutputsKind.VALID)
    assert isinstance(decide(replace(over, outputs_own=False)), d.Hold)
    gone = replace(BASE, observation=ABSENT, outputs=OutputsKind.VALID)
    assert isinstance(decide(replace(gone, outputs_own=False)), d.Hold)


@pytest.mark.req("E-06")
def test_outputs_beside_a_row_that_never_ran_hold_and_are_not_reused() -> None:
    phantom = found(Phase.PENDING, settled=False, observable=False)
    before = decide(replace(BASE, observation=phantom, outputs=OutputsKind.VALID))
    assert isinstance(before, d.Hold)
    after = replace(
        BASE,
        observation=found(Phase.CANCELLED),
        outputs=OutputsKind.VALID,
        cancel_why=d.NEVER_RAN,
        cancels=1,
    )
    assert isinstance(decide(after), d.Hold)


def test_a_job_that_vanished_counts_only_by_its_outputs() -> None:
    assert isinstance(decide(replace(BASE, observation=ABSENT_LATE, since_odd=70.0)), d.Wait)
    gone = replace(BASE, observation=ABSENT)
    assert decide(gone) == d.LookAtOutputs()
    assert decide(replace(gone, outputs=OutputsKind.VALID)) == d.Succeed(reused=True)
    assert isinstance(decide(replace(gone, outputs=OutputsKind.NONE)), d.Hold)
    assert isinstance(decide(replace(gone, outputs=OutputsKind.ABSENT)), d.Hold)


# -- the whole space ---------------------------------------------------------------------------

OBSERVATIONS: list[Observation[JobStatus]] = [
    UNAVAILABLE,
    AMBIGUOUS,
    ABSENT,
    ABSENT_LATE,
    *(
        found(phase, *facts, settled=settled)
        for phase in Phase
        for facts in ((), (PAYLOAD,), (BROKEN_SPEC,), (TRANSIENT,), (STRANGE,))
        for settled in (True, False)
    ),
    *(
        found(phase, settled=settled, capacity=capacity, observable=observable, native=native)
        for phase in Phase
        for settled in (True, False)
        for capacity, observable, native in (
            (True, True, "7"),
            (False, False, "7"),
            (False, True, "8"),
        )
    ),
]


FENCES = tuple(Fence)


def situations(observations: list[Observation[JobStatus]]) -> itertools.chain[Situation]:
    axes = itertools.product(
        observations,
        Goal,
        (Stage.RESERVED, Stage.INTENDED, Stage.LAUNCHED),
        OutputsKind,
        (5.0, 1000.0),
        ((("", 0, 0.0)), ("user", 1, 5.0), ("transient:X", 1, 301.0)),
        (0, 1),
        Check,
        (True, False),
    )
    return itertools.chain(
        Situation(
            goal=goal,
            superseded=False,
            seal_equal=seal,
            stage=stage,
            observation=seen,
            outputs=outputs,
            since_intent=age,
            window=60.0,
            skew=10.0,
            deadline=100.0,
            native_id="" if stage is Stage.RESERVED else "7",
            cancel_why=cancel[0],
            cancels=cancel[1],
            since_cancel=cancel[2],
            cancel_patience=300.0,
            cancel_repeat=30.0,
            recoveries_left=left,
            check=check,
            since_odd=age,
            fence=FENCES[number % len(FENCES)],
            outputs_own=number % 3 > 0,
        )
        for number, (seen, goal, stage, outputs, age, cancel, left, check, seal) in enumerate(axes)
    )


EFFECTS = (d.Launch, d.Cancel)
ENDS = (d.Succeed, d.Fail, d.EndCancelled, d.EndRefused)


@pytest.mark.req("D-04", "E-01")
def test_what_cannot_be_seen_never_leads_to_an_effect_or_an_end() -> None:
    count = 0
    for s in situations([UNAVAILABLE, AMBIGUOUS]):
        if s.stage is Stage.RESERVED:
            continue  # nothing was launched, so nothing is looked at
        count += 1
        assert isinstance(decide(s), (d.Wait, d.Hold)), s
    assert count > 1000


def test_outputs_that_cannot_be_seen_never_lead_to_success_or_relaunch() -> None:
    for s in situations(OBSERVATIONS[2:]):
        if s.outputs is OutputsKind.UNSEEN and s.stage is Stage.LAUNCHED:
            step = decide(s)
            assert not isinstance(step, d.Succeed), s
            if isinstance(step, d.Fail):
                assert step.klass is not Klass.TRANSIENT, s


def test_decide_is_total_and_its_acts_rest_on_what_they_must() -> None:
    seen_steps = set()
    for s in situations(OBSERVATIONS):
        step = decide(s)
        seen_steps.add(type(step))
        if isinstance(step, d.Cancel):
            assert isinstance(s.observation, Found)
            assert step.exact is s.observation.value.exact
            assert step.exact.native_id == s.native_id
        if isinstance(step, d.Launch):
            assert s.stage is Stage.RESERVED
            assert s.goal is Goal.COMPLETE
            assert s.seal_equal
        if isinstance(step, d.Succeed):
            assert s.outputs in (OutputsKind.VALID, OutputsKind.NONE)
        if isinstance(step, ENDS) and isinstance(s.observation, Found):
            assert s.observation.value.settled or s.stage is Stage.RESERVED
    assert seen_steps == {
        d.Launch,
        d.Adopt,
        d.Cancel,
        d.LookAtOutputs,
        d.Seal,
        d.RunPreflight,
        d.Succeed,
        d.Fail,
        d.EndCancelled,
        d.EndRefused,
        d.Wait,
        d.Hold,
    }


# -- evidence and verdicts ---------------------------------------------------------------------


@pytest.mark.req("E-02")
def test_evidence_that_is_not_in_the_table_is_unknown() -> None:
    assert klass_of("NO_SUCH_CODE") is Klass.UNKNOWN
    assert set(TABLE.values()) <= set(Klass)


@pytest.mark.req("E-02")
def test_free_text_never_changes_a_class() -> None:
    told = Evidence("PAYLOAD_EXIT_NONZERO", "shim", hint="nvidia.com/gpu quota exceeded, eof")
    assert strongest([told])[0] is Klass.PAYLOAD


def test_the_most_binding_fact_speaks() -> None:
    assert strongest([TRANSIENT, PAYLOAD])[0] is Klass.PAYLOAD
    assert strongest([TRANSIENT, STRANGE])[0] is Klass.UNKNOWN
    assert strongest([])[0] is Klass.UNKNOWN


@pytest.mark.req("E-03")
@pytest.mark.parametrize(
    ("klass", "retries", "recoveries", "verdict"),
    [
        (Klass.PAYLOAD, 1, 0, d.Verdict.AGAIN_RETRY),
        (Klass.PAYLOAD, 0, 5, d.Verdict.FINAL),
        (Klass.TRANSIENT, 5, 0, d.Verdict.FINAL),
        (Klass.TRANSIENT, 0, 1, d.Verdict.AGAIN_RECOVERY),
        (Klass.CONFIGURATION, 5, 5, d.Verdict.FINAL),
        (Klass.UNKNOWN, 5, 5, d.Verdict.FINAL),
    ],
)
def test_the_two_budgets_never_mix(
    klass: Klass, retries: int, recoveries: int, verdict: d.Verdict
) -> None:
    kwargs = {"retries_left": retries, "recoveries_left": recoveries, "exhausted": False}
    assert judge(klass, goal=Goal.COMPLETE, **kwargs) is verdict
    assert judge(klass, goal=Goal.CANCELLED, **kwargs) is d.Verdict.FINAL
