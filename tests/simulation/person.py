"""The person at the keyboard: cancels, gives up waiting, and does what a hold asks for.

A person sees the provider as it is (its console), acts on the run only through the production
commands' own functions, and follows the command that a hold names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

from npa.orchestration import registry, runs
from npa.orchestration.decide import Hold
from npa.orchestration.journal.chain import Journal
from npa.orchestration.runs import OpenRun
from npa.orchestration.state import RunState
from simulation.scenarios import NoTools
from simulation.store import ROOT, SimStorage
from simulation.watch import PERSON

if TYPE_CHECKING:
    from simulation.world import World

PATIENCE_SECONDS = 80.0  # with a job that runs for ever
LONG_PATIENCE_SECONDS = 2000.0


class Person:
    def __init__(self, world: World) -> None:
        self._world = world
        self.asked_to_cancel = False
        self.remedies: list[str] = []
        self._next_patience = PATIENCE_SECONDS

    def open(self) -> OpenRun:
        """The run as its journal has it now."""
        world = self._world
        storage = SimStorage(world, faulty=False)
        journal = Journal(storage, world.now, by="person", readers=1)
        state = RunState()
        state.apply(journal.read())
        place = registry.RunPlace("r", ROOT, "sim", world.wall)
        return OpenRun(place, storage, journal, state)  # type: ignore[arg-type]

    def cancel(self, reason: str) -> bool:
        """`npa workflow cancel`, while a driver drives (or nobody does)."""
        self._world.watch.author = PERSON
        try:
            self.asked_to_cancel = True
            return runs.request_cancel(self.open(), reason, "person")
        finally:
            self._world.watch.author = 0

    def reopen(self, *from_states: str) -> bool:
        """`npa workflow resume --from STATE`."""
        host = SimpleNamespace(
            tools=NoTools(),
            environment={},
            storage=SimpleNamespace(endpoint_host="", principal=""),
        )
        self._world.watch.author = PERSON
        try:
            return runs.reopen(host, self.open(), reason="again", from_states=from_states)  # type: ignore[arg-type]
        finally:
            self._world.watch.author = 0

    def apply(self, holds: Mapping[str, Hold]) -> None:
        """Follow each hold: put the world in order by hand, then do what the command says."""
        run = self.open()
        for wave, hold in holds.items():
            for attempt in run.state.live.values():
                if attempt.wave == wave:
                    self._put_in_order(hold.code, attempt.key, attempt.name)
                    self._command(hold.remedy)
        self._world.advance(5.0)

    def _put_in_order(self, code: str, key: str, name: str) -> None:
        """What a person does at the provider's console or in the store."""
        provider = self._world.provider
        if code == "OUTPUT_EVIDENCE":
            for path in self._world.watch.tries[key].paths:
                for uri in self._world.watch.declared.get(path, ()):
                    provider.artifacts.pop(uri, None)
            return
        for row in provider.rows:
            if row.name == name:
                provider.destroy(row)
        self._world.advance(5.0)

    def _command(self, remedy: str) -> None:
        """Type the command that the hold names; `resume` itself is what the stage does next."""
        words = remedy.split("`")[1].split()
        assert words[:2] == ["npa", "workflow"]
        assert words[2] in ("resume", "cancel")
        if "--gone" not in words:
            return
        self._world.watch.author = PERSON
        try:
            job = words[words.index("--gone") + 1]
            runs.declare_gone(self.open(), job, reason="removed by hand", by="person")
        finally:
            self._world.watch.author = 0

    def waits_longer(self, seconds: float) -> None:
        """The machine slept: that does not count."""
        self._next_patience += seconds

    def patience(self) -> None:
        """Nobody waits for ever: after a while the run is cancelled."""
        world = self._world
        endless = any(fault == "forever" for _, fault in world.plan.taken)
        if world.mono > self._next_patience + (0.0 if endless else LONG_PATIENCE_SECONDS):
            self._next_patience += PATIENCE_SECONDS
            self.cancel("it took too long")
