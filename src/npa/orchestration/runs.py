"""Runs: create, find, open, drive, cancel, reopen. What the command line and the SDK call.

Everything that reads the environment was resolved before (`Host`); nothing here looks at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from npa.errors import RunError, StorageError, UsageError
from npa.orchestration import manifests, registry, snapshots
from npa.orchestration.claims import StoredClaims
from npa.orchestration.decide import Goal
from npa.orchestration.driven import driven_elsewhere
from npa.orchestration.driver import Driver, Identity, Outcome, Plan, Snapshot, World
from npa.orchestration.engine import Engine
from npa.orchestration.evidence import Klass
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Appended, Journal, Lost, Unknown
from npa.orchestration.payloads import CheckedArtifacts
from npa.orchestration.prepare import Prepared, Request, is_placeholder, prepare, present
from npa.orchestration.seal import differences, digest_of, seal_of
from npa.orchestration.source import SourceTree, snapshot
from npa.orchestration.state import DriverView, RunState
from npa.orchestration.taskenv import JobSettings, build_job
from npa.storage import Store, Stores, open_store, probe_conditional_create, split_uri
from npa.target.credentials import StorageAccess
from npa.target.home import Home
from npa.target.host import (
    ProcessIdentity,
    is_alive,
    is_stopped,
    own_identity,
    this_host,
)
from npa.target.secret import Secret
from npa.workflow.asks import hangs_on
from npa.workflow.step import Artifact, Step
from npa.workflow.suggest import Suggester
from npa.workflow.tools import Tools

APPEND_TRIES = 10  # of a person's own entry (cancel, reopen) while others write
APPEND_PAUSE_SECONDS = 0.5

EngineFactory = Callable[[Request, Home], Engine]


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Host(Struct, frozen=True, eq=False):
    """Everything of this machine and user that runs need, resolved once and passed down."""

    home: Home
    storage: StorageAccess
    tools: Tools
    engine: EngineFactory
    environment: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    def open_store(self, uri: str) -> Store:
        return open_store(uri, self.storage.options)


class OpenRun(Struct):
    """A run whose journal has been read."""

    place: registry.RunPlace
    store: Store
    journal: Journal
    state: RunState

    @property
    def request(self) -> Request:
        return Request.from_json(self.state.request)


# -- creating ----------------------------------------------------------------------------------


def create(host: Host, prepared: Prepared, *, now: Callable[[], float] = time.time) -> OpenRun:
    """Begin a run: probe the store, put up the signpost, write the genesis.

    Raises UsageError (bad ID, placeholder bucket, the run exists), StoreUnfit, StorageError.
    Nothing is launched.
    """
    request = prepared.request
    registry.check_run_id(request.run_id)
    refuse_placeholders(prepared)
    store = host.open_store(request.run_uri)
    probe_conditional_create(store)
    place = registry.RunPlace(request.run_id, request.run_uri, prepared.workflow.name, now())
    registry.note_run(host.home, place)
    journal = Journal(store, now)
    if journal.read():
        raise _exists(request.run_id)
    parts = prepared.parts(_target(host, request))
    entry = e.Genesis(seal_of(parts), parts, request.to_json())
    state = RunState()
    result = journal.append([entry], epoch=0)
    for _ in range(APPEND_TRIES):
        if not isinstance(result, Unknown):
            break
        time.sleep(APPEND_PAUSE_SECONDS)
        result = journal.settle() or Lost(())
    match result:
        case Appended(frame=frame):
            state.apply([frame])
        case Lost():
            raise _exists(request.run_id)
        case Unknown(cause=cause):
            raise StorageError(
                f"the run's first entry could not be written ({cause.cause}): {cause.detail}",
                not_done="nothing was launched",
                hint="the same command may be given again with another run ID",
            )
    store.create("workflow.yaml", request.spec_text.encode())
    manifests.keep(store, prepared.tree)
    return OpenRun(place, store, journal, state)


def refuse_placeholders(prepared: Prepared) -> None:
    """A live run never writes to `example-bucket`. Raises UsageError."""
    bucket = prepared.context.config.get("bucket")
    if not isinstance(bucket, str) or not bucket or not is_placeholder(bucket):
        return
    texts = [o.uri for s in prepared.workflow.states.values() for o in (*s.outputs, *s.inputs)]
    config = [v for v in prepared.context.config.values() if isinstance(v, str)]
    if any(t.startswith(f"s3://{bucket}/") for t in (*texts, *config)):
        raise UsageError(
            f"`config.bucket` is the placeholder `{bucket}`",
            not_done="nothing was started",
            next_command=f"npa workflow submit {prepared.request.spec_path} --var bucket=NAME",
        )


def _exists(run_id: str) -> UsageError:
    return UsageError(
        f"run `{run_id}` exists already",
        not_done="nothing was created or changed",
        hint=f"`npa workflow resume {run_id}` goes on with it; another `--run-id` begins a new one",
        next_command=f"npa workflow status {run_id}",
        code="RUN_EXISTS",
    )


def _target(host: Host, request: Request) -> dict[str, str]:
    """Identity of what a run is aimed at: engine, machine, store, storage principal."""
    remote = split_uri(request.run_uri).scheme not in ("file", "memory")
    options = dict(request.engine_options)
    options.pop("session", "")  # where it is kept is not what it is aimed at
    return {
        **({"options": digest_of(options)} if options else {}),
        "engine": request.engine,
        "host": this_host().name if request.engine == "local" else "",
        "run_uri": request.run_uri,
        "endpoint": host.storage.endpoint_host if remote else "",
        "principal": host.storage.principal if remote else "",
    }


# -- opening -----------------------------------------------------------------------------------


def open_run(host: Host, name: str, *, now: Callable[[], float] = time.time) -> OpenRun:
    """Find and read a run. Raises RunError (unknown, corrupt) or StorageError (cannot look)."""
    place = registry.find_run(host.home, name)
    store = host.open_store(place.run_uri)
    journal = Journal(store, now)
    state = snapshots.read(store, journal)
    if state.genesis is None:
        raise RunError(
            f"run `{place.run_id}` was not begun: it has no journal",
            hint="its submission ended before the first entry; submit it again",
            code="RUN_NOT_FOUND",
        )
    return OpenRun(place, store, journal, state)


def driver_alive(view: DriverView) -> bool | None:
    """Does that driver live? None when it cannot be seen from this machine."""
    here = this_host()
    if view.host != here.name:
        return None
    if view.boot != here.boot_id:
        return False
    try:
        return is_alive(view.pid, view.start_ticks, view.boot)
    except OSError:
        return None


def driver_stopped(view: DriverView) -> bool:
    """Does that driver live on this machine, held by a signal? Then it neither acts nor ends."""
    with suppress(OSError):
        return driver_alive(view) is True and is_stopped(view.pid)
    return False


# -- driving -----------------------------------------------------------------------------------


class Drive(Struct):
    """A driver that is ready to run, and what must be let go of afterwards.

    `left` says what of the engine stayed behind although the run is over; it changes no verdict.
    """

    driver: Driver
    engine: Engine
    changed: tuple[str, ...] = ()
    left: str = ""

    def run(self, *, take_over: bool = False) -> Outcome:
        try:
            get_ready(self.engine)
            outcome = self.driver.run(take_over=take_over)
            if self.driver.state.lifecycle.over:
                self.left = settle(self.engine, self.driver.state)
            return outcome
        finally:
            self.engine.close()


def get_ready(engine: Engine) -> None:
    """Let an engine that can start its helpers do so while the driver reads its journal."""
    if engine.name != "local":
        return
    from npa.orchestration.local.engine import LocalEngine

    if isinstance(engine, LocalEngine):
        engine.get_ready()


def settle(engine: Engine, state: RunState | None) -> str:
    """Let go of what an engine keeps for one run, once the run is over (None: was not begun).

    Best effort, as a run's end depends on nothing of it: what stayed is said in the answer.
    """
    if engine.name != "skypilot":
        return ""
    from npa.orchestration.skypilot.afterwards import settle
    from npa.orchestration.skypilot.engine import SkyPilotEngine

    return settle(engine, state) if isinstance(engine, SkyPilotEngine) else ""


def stage(host: Host, request: Request, store: Store, tree: SourceTree | None) -> str:
    """Pin the source for the tasks: a folder of this machine, or an archive in the run's store.

    Raises UsageError when a file changed since it was scanned, StorageError.
    """
    if request.engine == "skypilot":
        from npa.orchestration.skypilot import staging

        return staging.stage(store, request.run_uri, tree)
    return str(snapshot(tree, host.home.path / "sources")) if tree is not None else ""


def make_drive(
    host: Host,
    run: OpenRun,
    *,
    goal: Goal = Goal.COMPLETE,
    observer: Callable[[Snapshot], None] = lambda _snapshot: None,
    prepared: Prepared | None = None,
) -> Drive:
    """Prepare a driver for an open run from present inputs, and compare the seal.

    `prepared` is what the run was begun with a moment ago: the driver starts from exactly that.
    Raises InvalidWorkflow or UsageError when the present inputs make no sense at all.
    """
    request = run.request
    changed: tuple[str, ...] = ()
    if prepared is None and goal is Goal.COMPLETE:
        prepared, changed = compare(host, run)
    elif prepared is None:
        prepared = _as_sealed(host, run)
    workdir = ""
    if goal is Goal.COMPLETE:
        workdir = stage(host, request, run.store, prepared.tree)
    settings = JobSettings(
        run_id=request.run_id,
        run_uri=request.run_uri,
        workflow=prepared.workflow.name,
        workdir=workdir,
        env={**_store_env(host, request), **host.env},
        secrets={**_store_secrets(host, request), **_shared_secrets(host, prepared)},
        named_secrets=host.secrets,
        grace_seconds=prepared.policy.grace_seconds,
        defaults=prepared.defaults,
    )
    engine = host.engine(request, host.home)
    plan = Plan(
        run_id=request.run_id,
        new_walk=prepared.new_walk,
        downstream=prepared.downstream,
        build_job=lambda attempt, steps: build_job(settings, attempt, steps),
    )
    driver = Driver(
        World(
            run.journal,
            engine,
            CheckedArtifacts(Stores(host.storage.options), prepared.schemas),
            SystemClock(),
            _claims(run, engine),
        ),
        plan,
        prepared.policy,
        _identity(own_identity()),
        goal=goal,
        seal_equal=not changed,
        is_alive=driver_alive,
        observer=observer,
    )
    return Drive(driver, engine, changed)


def compare(host: Host, run: OpenRun) -> tuple[Prepared, tuple[str, ...]]:
    """The run prepared from present inputs, and which parts of the seal differ."""
    request = present(run.request)
    prepared = prepare(request, host.tools, environment=host.environment)
    return prepared, differences(run.state.parts, prepared.parts(_target(host, request)))


def changes(host: Host, run: OpenRun) -> tuple[str, ...]:
    """What of the sealed inputs differs now, for people: parts of the seal, files of the source."""
    prepared, parts = compare(host, run)
    if "source" not in parts:
        return parts
    files = manifests.changed_files(run.store, run.state.parts.get("source"), prepared.tree)
    return (*(p for p in parts if p != "source"), *(files or ("source",)))


def _as_sealed(host: Host, run: OpenRun) -> Prepared:
    """The run as its journal has it, without looking at present files (cancel needs no more)."""
    return prepare(
        replace(run.request, source=""),
        host.tools,
        environment=host.environment,
        with_schemas=False,
    )


def _claims(run: OpenRun, engine: Engine) -> StoredClaims | None:
    """The payload fence, for engines whose launches may still be in flight when nothing is seen."""
    if not engine.launch_window_seconds:
        return None
    return StoredClaims(run.store, f"{this_host().name} {own_identity().pid}")


def _identity(me: ProcessIdentity) -> Identity:
    return Identity(this_host().name, me.boot_id, me.pid, me.start_ticks)


def _remote(request: Request) -> bool:
    return split_uri(request.run_uri).scheme not in ("file", "memory")


def _store_env(host: Host, request: Request) -> Mapping[str, str]:
    return host.storage.env if _remote(request) else {}


def _store_secrets(host: Host, request: Request) -> Mapping[str, Secret]:
    return host.storage.secrets if _remote(request) else {}


def _shared_secrets(host: Host, prepared: Prepared) -> Mapping[str, Secret]:
    """Secrets that no state names go to every task, others only to the states that name them."""
    named = {name for state in prepared.workflow.states.values() for name in state.secrets}
    return {name: secret for name, secret in host.secrets.items() if name not in named}


# -- a person's own entries --------------------------------------------------------------------


def request_cancel(run: OpenRun, reason: str, by: str) -> bool:
    """Write down that the run is to be cancelled; False if it is over or was asked before.

    Raises StorageError when the entry could not be written.
    """

    def wanted(state: RunState) -> Sequence[e.Entry]:
        if state.lifecycle.over or state.cancel is not None:
            return ()
        return (e.CancelRequested(reason, by),)

    return _say(run, wanted)


def declare_gone(run: OpenRun, job: str, *, reason: str, by: str) -> bool:
    """A person states that nothing of the job `job` runs, or can still come to run.

    Its attempt ends as cancelled (DECLARED_GONE). Only for a job that holds the run: what can be
    observed is not a matter of statements. False if the attempt is over already.
    Raises UsageError for an unknown job, RunError for one that does not hold the run.
    """

    def wanted(state: RunState) -> Sequence[e.Entry]:
        attempt = next((a for a in state.attempts.values() if a.name == job), None)
        if attempt is None:
            raise UsageError(f"run `{run.place.run_id}` has no job `{job}`")
        if not attempt.open:
            return ()
        if attempt.wave not in state.held:
            raise RunError(
                f"job `{job}` does not hold the run",
                not_done="nothing was changed",
                hint="only what holds the run can be declared gone; cancel it instead",
                next_command=f"npa workflow cancel {run.place.run_id}",
                code="JOB_NOT_HELD",
            )
        gone = e.MemberEnd(e.Result.CANCELLED, Klass.CANCELLED.value, "DECLARED_GONE")
        return (
            e.Vouched(attempt.key, by, reason),
            e.Ended(
                key=attempt.key,
                result=e.Result.CANCELLED,
                klass=Klass.CANCELLED.value,
                code="DECLARED_GONE",
                members=dict.fromkeys(attempt.members, gone),
            ),
        )

    return _say(run, wanted)


def reopen(
    host: Host,
    run: OpenRun,
    *,
    reason: str,
    accept_changes: bool = False,
    from_states: Sequence[str] = (),
) -> bool:
    """Let a run go on after its end, with changed inputs if they are accepted.

    `from_states` are run again, with all that depends on them. False if nothing had to be written.
    Raises RunError while an attempt is live or unknown (it must be settled first), UsageError for
    unknown states.
    """
    prepared, changed = compare(host, run)
    unknown = [s for s in from_states if s not in prepared.graph.index]
    if unknown:
        names = tuple(prepared.graph.index)
        state = unknown[0].rpartition("/")[2].partition("[")[0]
        raise UsageError(
            f"no state `{unknown[0]}` is in {prepared.request.spec_path}",
            not_done="nothing was changed",
            hint=f"a state is named, not one step of it: `--from {state}`"
            if state in names and state != unknown[0]
            else Suggester().did_you_mean(unknown[0], names),
        )
    again = prepared.downstream(from_states) | set(from_states) if from_states else frozenset()
    parts = prepared.parts(_target(host, prepared.request))

    def wanted(state: RunState) -> Sequence[e.Entry]:
        accepting = bool(changed) and accept_changes
        if not state.lifecycle.over and not accepting and not again:
            return ()
        if state.live:
            raise RunError(
                f"{len(state.live)} attempts of the run are live or unknown",
                not_done="nothing was changed",
                hint="cancel the run first, or let it end",
                next_command=f"npa workflow cancel {run.place.run_id}",
                code="RUN_LIVE",
            )
        reopened = (
            e.Reopened(reason, seal_of(parts), parts, prepared.request.to_json())
            if accepting
            else e.Reopened(reason)
        )
        paths = tuple(
            path
            for path, attempt in state.latest.items()
            if attempt.state_of(path) in again and state.success_of(path) is not None
        )
        questions = (*state.decisions, *state.expansions)
        stale = (*paths, *(q for q in questions if hangs_on(q, paths, again)))
        return (reopened, e.Invalidated(stale, e.Cause.OPERATOR.value)) if stale else (reopened,)

    if changed and accept_changes:
        manifests.keep(run.store, prepared.tree)
    return _say(run, wanted)


def _say(run: OpenRun, wanted: Callable[[RunState], Sequence[e.Entry]]) -> bool:
    """Append a person's entries, deciding anew whenever somebody else wrote first."""
    for _ in range(APPEND_TRIES):
        entries = wanted(run.state)
        if not entries:
            return False
        result = run.journal.append(entries, epoch=0)
        match result:
            case Appended(frame=frame):
                run.state.apply([frame])
                return True
            case Lost(frames=frames):
                run.state.apply(frames)
            case Unknown():
                time.sleep(APPEND_PAUSE_SECONDS)
                settled = run.journal.settle()
                if isinstance(settled, Appended):
                    run.state.apply([settled.frame])
                    return True
                if isinstance(settled, Lost):
                    run.state.apply(settled.frames)
                elif settled is None:
                    run.state.apply(run.journal.refresh())
    raise StorageError(
        f"the journal of run `{run.place.run_id}` could not be written",
        not_done="nothing was changed",
        hint="the same command may be given again",
    )


def refuse_if_driven(run: OpenRun) -> None:
    """Raises DrivenElsewhere when the run has a driver that is seen to live."""
    view = run.state.driver
    if view is None or view.released:
        return
    if driver_alive(view):
        stopped = driver_stopped(view)
        raise driven_elsewhere(run.place.run_id, view, alive=True, stopped=stopped)


def artifacts_of(state: RunState) -> tuple[tuple[str, Artifact, int, str], ...]:
    """All validated outputs so far: (step path, artifact, size in bytes, etag)."""
    found: list[tuple[str, Artifact, int, str]] = []
    for path in state.latest:
        success = state.success_of(path)
        if success is not None:
            found.extend((path, Artifact(u), size, etag) for u, size, etag in success[1].outputs)
    return tuple(found)


def steps_of(prepared: Prepared) -> tuple[Step, ...]:
    """Every step of the pessimistic plan (each loop's whole budget), for preflights."""
    from npa.workflow.decisions import LOOP_BACK
    from npa.workflow.plan import make_plan

    return make_plan(prepared.graph, prepared.context, LOOP_BACK).steps


def spec_folder(path: Path) -> str:
    """The folder that is staged for a pipeline file."""
    return str(path.resolve().parent)
