"""A campaign: attacks of several kinds until so many drivers were killed; a table and one line.

    python -m chaos.campaign --kills 200 [--seed N] [--only NAME]

The seed fixes what is drawn, not what the machine does meanwhile: a failure also prints the story
of its run and keeps the folder.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from chaos import checks, demo, synthetic
from chaos.attack import Also, Attack, Moment, Story
from chaos.server import Server, s3_process
from chaos.world import World
from npa.orchestration.state import fold

RUN_KILLS_MAX = 6  # kills of one run; then it is let go to its end, and the next one begins
BUDGET = ("--max-infrastructure-recoveries", "50")


@dataclass(frozen=True)
class Scenario:
    """One kind of attack; `share` is its part of all kills."""

    name: str
    share: int
    demo: bool = False
    remote: bool = False
    also: Also = Also.NOTHING
    moments: tuple[Moment, ...] = tuple(Moment)


SCENARIOS = (
    Scenario("files", 30),
    Scenario("s3", 20, remote=True),
    Scenario("s3 that goes away", 15, remote=True, also=Also.OUTAGE),
    Scenario("shims die too", 10, also=Also.SHIM),
    Scenario("ranks die too", 10, also=Also.RANK),
    Scenario("digits demo", 10, demo=True, moments=(Moment.ANY,)),
    Scenario("digits demo on s3", 5, demo=True, remote=True, moments=(Moment.ANY,)),
)


@dataclass
class Tally:
    """What one scenario came to."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    also: int = 0
    executed: int = 0
    again: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Quiet:
    """A run that nobody disturbs: how long it takes, and what it gives."""

    seconds: float
    result: Mapping[str, object]
    executed: Counter[str]


@dataclass
class Campaign:
    root: Path
    seed: int
    keep: bool = True
    numbers: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    _quiet: dict[tuple[bool, bool], Quiet] = field(default_factory=dict)
    _server: Server | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- attacks -----------------------------------------------------------------------------------

    def run(self, scenario: Scenario, kills: int, *, per_run: int = RUN_KILLS_MAX) -> Tally:
        """Attack runs of one scenario until `kills` drivers were killed."""
        tally = self.tallies.setdefault(scenario.name, Tally())
        quiet = self._quiet_run(scenario)
        begun = time.monotonic()
        dice = random.Random(f"{self.seed}/{scenario.name}")
        while sum(tally.kills.values()) < kills and not tally.wrong:
            left = kills - sum(tally.kills.values())
            world = self._world(scenario)
            door = self._server.door if scenario.remote and self._server else None
            story = Attack(
                *(world, dice, quiet.seconds, scenario.moments, scenario.also, door),
                kills=min(left, per_run),
            ).carry_out()
            self._judge(scenario, quiet, story)
            self._count(tally, story, world)
        tally.seconds += time.monotonic() - begun
        return tally

    def _judge(self, scenario: Scenario, quiet: Quiet, story: Story) -> None:
        """The same result; and without other trouble each step ran exactly as often as usual."""
        essence = demo.essence if scenario.demo else synthetic.essence
        story.wrong += checks.same_result(essence(story.result), quiet.result)
        if scenario.also is Also.NOTHING and story.executed != quiet.executed:
            more = {p: n for p, n in story.executed.items() if n != quiet.executed[p]}
            story.wrong.append(f"steps ran more or less often than in a quiet run: {more}")

    def _count(self, tally: Tally, story: Story, world: World) -> None:
        tally.runs += 1
        tally.kills += story.kills
        tally.also += sum(story.also.values())
        tally.executed += sum(story.executed.values())
        tally.again += sum(len(w.attempts) - 1 for w in fold(world.frames()).waves.values())
        if story.wrong:
            tally.wrong += [*story.wrong, *(f"    {line}" for line in story.lines), str(world.root)]
            world.kill_all()
            world.keep_journal()
        else:
            shutil.rmtree(world.root)

    def _quiet_run(self, scenario: Scenario) -> Quiet:
        kind = (scenario.demo, scenario.remote)
        if kind not in self._quiet:
            world = self._world(scenario)
            begun = time.monotonic()
            driver = world.submit()
            assert driver.end() == 0, driver.said
            seconds = time.monotonic() - begun
            essence = demo.essence if scenario.demo else synthetic.essence
            found = essence(checks.artifacts(world, fold(world.frames())))
            assert found
            self._quiet[kind] = Quiet(seconds, found, checks.executed(world))
            shutil.rmtree(world.root)
        return self._quiet[kind]

    def _world(self, scenario: Scenario) -> World:
        self.numbers += 1
        root = self.root / f"{self.numbers:03d}"
        module = demo if scenario.demo else synthetic
        spec = module.write(root / "project")
        run_id = f"chaos-{os.getpid()}-{self.numbers:03d}"
        extra = demo.environment(root / "project") if scenario.demo else {}
        options = (*BUDGET, *demo.OPTIONS) if scenario.demo else BUDGET
        world = World(root, spec, run_id, env=extra, submit_options=options)
        if scenario.remote:
            server = self._s3()
            world.env = {**extra, **server.environment}
            world.store, world.options = server.uri, server.options
        return world

    def _s3(self) -> Server:
        if self._server is None:
            self._server = self._stack.enter_context(s3_process())
        return self._server

    # -- the report --------------------------------------------------------------------------------

    @property
    def wrong(self) -> list[str]:
        return [f"{name}: {text}" for name, t in self.tallies.items() for text in t.wrong]

    def table(self) -> str:
        kinds = [moment.value for moment in Moment]
        head = ["scenario", "runs", "kills", *kinds, "other", "steps run", "again", "wrong", "s"]
        rows = [
            [
                name,
                t.runs,
                sum(t.kills.values()),
                *(t.kills[kind] for kind in kinds),
                t.also,
                t.executed,
                t.again,
                len(t.wrong),
                f"{t.seconds:.0f}",
            ]
            for name, t in self.tallies.items()
        ]
        cells = [[str(cell) for cell in row] for row in [head, *rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        return "\n".join(
            "  ".join(
                c.ljust(w) if not i else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        )

    def line(self) -> str:
        tallies = self.tallies.values()
        kills = sum(sum(t.kills.values()) for t in tallies)
        return (
            f"chaos: {kills} drivers killed in {sum(t.runs for t in tallies)} runs of "
            f"{len(self.tallies)} scenarios, seed {self.seed}, commit {_commit()}, "
            f"{sum(t.seconds for t in tallies):.0f} s: {len(self.wrong)} violations"
        )


def shares(kills: int, scenarios: Sequence[Scenario]) -> list[int]:
    """`kills` divided by the shares, each at least one; the first takes what is left over."""
    total = sum(one.share for one in scenarios)
    parts = [max(1, kills * one.share // total) for one in scenarios]
    parts[0] += max(0, kills - sum(parts))
    return parts


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="")
    options = parser.parse_args(argv)
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    chosen = [one for one in SCENARIOS if options.only in (one.name, "")]
    root = Path(tempfile.mkdtemp(prefix="npa-chaos-"))
    with Campaign(root, seed) as campaign:
        for scenario, kills in zip(chosen, shares(options.kills, chosen), strict=True):
            campaign.run(scenario, kills)
        print(campaign.table())
        print(campaign.line())
        for text in campaign.wrong:
            print(text)
    if not campaign.wrong:
        shutil.rmtree(root)
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
