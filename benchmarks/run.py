"""What the engine itself costs: no-op workflows, start-up, planning; beside floors and peers.

    python benchmarks/run.py --quick                 # a minute or two
    python benchmarks/run.py --peers --json out.json # everything, an hour

It prints tables on stdout, progress on stderr, and what could not run with the reason. Figures are
the best of several runs, because the rest of the machine only ever adds. Nothing is written
outside a temporary folder and the cache (`--cache`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import engines
import shapes
import tables
from measure import run
from tables import Row, Skipped

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STEPS = {True: (100,), False: (100, 1000)}  # by --quick
PLAN_STATES = {True: (1000,), False: (1000, 10_000)}
HISTORY_STEPS = {True: (1000,), False: (1000, 10_000)}
RENDER_STATES = (1000,)
REPEATS = {True: 1, False: 3}
STARTS = {True: 5, False: 15}
LIMIT_SECONDS = {True: 120.0, False: 900.0}


@dataclass(frozen=True, slots=True)
class Bench:
    """What a benchmark needs to know of this invocation."""

    quick: bool
    peers: bool
    repeats: int
    cache: Path
    work: Path

    def best(self, name: str, prepare: engines.Engine, shape: str, steps: int) -> Row:
        costs = []
        for attempt in range(self.repeats):
            folder = self.work / f"{name}-{shape}-{steps}-{attempt}".replace(" ", "-")
            folder.mkdir()
            call = prepare.prepare(folder, shape, steps)
            limit = LIMIT_SECONDS[self.quick]
            cost = run(call.argv, cwd=folder, log=folder / "log", env=call.env, limit_s=limit)
            costs.append(cost)
            if cost.problem:
                break
        return Row.of(name, prepare.a_step_is, f"{shape} {steps}", steps, costs)

    def times(self, name: str, call: engines.Call, count: int, steps: int = 0) -> Row:
        """The same command again and again, in one folder, after one run that warms caches."""
        folder = self.work / name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        costs = [
            run(call.argv, cwd=folder, log=folder / "log", env=call.env, limit_s=300)
            for _ in range(count + 1)
        ]
        return Row.of(name, "", name, steps, costs[1:] or costs)


def no_ops(bench: Bench) -> Iterator[Row | Skipped]:
    """Chains and fans of no-op steps, on every engine that is here."""
    found = engines.floors()
    try:
        found.append(engines.npa(bench.cache))
    except engines.Missing as missing:
        yield Skipped("npa, local engine", str(missing))
    for peer in engines.PEERS if bench.peers else ():
        say(f"installing {peer.requirement}, unless it is there")
        try:
            found.append(engines.installed(peer, bench.cache))
        except engines.Missing as missing:
            yield Skipped(peer.requirement, str(missing))
    if not bench.peers:
        yield Skipped("peers", "asked for with `--peers`")
    for engine in found:
        for steps in STEPS[bench.quick]:
            for shape in shapes.SHAPES:
                say(f"{engine.name}: {shape} of {steps}")
                try:
                    row = bench.best(engine.name, engine, shape, steps)
                except engines.Missing as missing:
                    yield Skipped(f"{engine.name}, {shape} of {steps}", str(missing))
                    continue
                yield row
                if row.problem:
                    yield Skipped(f"{engine.name}, {shape} of {steps}", row.problem)


def start_up(bench: Bench) -> Iterator[Row | Skipped]:
    """The command line against a bare interpreter."""
    count = STARTS[bench.quick]
    environment = engines.npa_environment(bench.work / "start-home", bench.cache)
    calls: dict[str, tuple[str, ...]] = {
        "python -c pass": (sys.executable, "-c", "pass"),
        "import npa": (sys.executable, "-c", "import npa"),
        "import npa.stage": (sys.executable, "-c", "import npa.stage"),
    }
    try:
        command = engines.npa_command()
        calls |= {f"npa {word}": (command, word) for word in ("--version", "--help")}
    except engines.Missing as missing:
        yield Skipped("npa --version, npa --help", str(missing))
    for name, argv in calls.items():
        say(name)
        row = bench.times(name, engines.Call(argv, environment), count)
        yield row
        if row.problem:
            yield Skipped(name, row.problem)


def planning(bench: Bench) -> Iterator[Row | Skipped]:
    """Validate and plan large files; whole processes, so that start-up is in it."""
    environment = engines.npa_environment(bench.work / "plan-home", bench.cache)
    try:
        command = engines.npa_command()
    except engines.Missing as missing:
        yield Skipped("validate-spec, plan-spec", str(missing))
        return
    for states in PLAN_STATES[bench.quick]:
        for shape in shapes.SHAPES:
            file = bench.work / f"plan-{shape}-{states}.yaml"
            file.write_text(shapes.npa(shape, states))
            for word in ("validate-spec", "plan-spec"):
                name = f"{word} {shape} {states}"
                say(name)
                argv = (command, "workbench", "workflow", word, str(file), "--json")
                row = bench.times(name, engines.Call(argv, environment), bench.repeats, states)
                yield row
                if row.problem:
                    yield Skipped(name, row.problem)


def long_runs(bench: Bench) -> Iterator[Row | Skipped]:
    """Open a finished run of many steps; its journal is written without running any."""
    try:
        command = engines.npa_command()
    except engines.Missing as missing:
        yield Skipped("status of a long run", str(missing))
        return
    environment = engines.npa_environment(bench.work / "history-home", bench.cache)
    home = environment["NPA_CONFIG_DIR"]
    for steps in HISTORY_STEPS[bench.quick]:
        say(f"writing a run of {steps} steps")
        argv = (sys.executable, str(Path(__file__).with_name("history.py")), home, str(steps))
        written = bench.times("history", engines.Call(argv, environment), 0, steps)
        if written.problem:
            yield Skipped(f"status of {steps} steps", written.problem)
            continue
        for word in ("status", "artifacts"):
            name = f"{word} of {steps} steps"
            say(name)
            argv = (command, "workflow", word, f"history-{steps}")
            yield bench.times(name, engines.Call(argv, environment), bench.repeats, steps)


def rendering(bench: Bench) -> Iterator[Row | Skipped]:
    """Check, plan and render in one process after its imports: no start-up is in it."""
    public = Path(os.environ.get("NPA_COMPAT_SPECS") or ROOT.parent / "shared/specs")
    largest = max(public.glob("*.yaml"), key=lambda file: file.stat().st_size, default=None)
    cases = {}
    for states in RENDER_STATES:
        for shape in shapes.SHAPES:
            cases[f"{shape} {states}"] = bench.work / f"render-{shape}-{states}.yaml"
            cases[f"{shape} {states}"].write_text(shapes.npa(shape, states))
    if largest is None:
        yield Skipped("the largest public file", f"there are none in {public}")
    else:
        cases[f"largest public file, {largest.name}"] = largest
    environment = engines.npa_environment(bench.work / "render-home", bench.cache)
    for name, file in cases.items():
        say(f"rendering {name}")
        log = bench.work / "rendering.log"
        argv = (sys.executable, str(HERE / "rendering.py"), str(file), str(STARTS[bench.quick]))
        cost = run(argv, cwd=bench.work, log=log, env=environment, limit_s=300)
        if cost.problem:
            yield Skipped(f"rendering {name}", cost.problem)
            continue
        told = json.loads(log.read_text().splitlines()[-1])
        each = f"{told['bytes'] // max(told['tasks'], 1):,} bytes a task"
        for what, seconds in (("check and plan", "plan_s"), (f"render, {each}", "render_s")):
            costs = [replace(cost, wall_s=one, cpu_s=one) for one in told[seconds]]
            yield Row.of(f"{what}: {name}", "", name, told["tasks"], costs)


SECTIONS = {
    "no-ops": no_ops,
    "start-up": start_up,
    "planning": planning,
    "rendering": rendering,
    "long-runs": long_runs,
}


def machine() -> dict[str, object]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 1e9, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    cache = options.cache.expanduser().resolve()
    cache.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Row | Skipped]] = {}
    with tempfile.TemporaryDirectory(prefix="npa-bench-") as work:
        repeats = options.repeats or REPEATS[options.quick]
        bench = Bench(options.quick, options.peers, repeats, cache, Path(work))
        for name in options.only or SECTIONS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            found[name] = list(SECTIONS[name](bench))
    here = machine()
    print(tables.page(here, found))
    if options.json:
        options.json.write_text(json.dumps(tables.document(here, found), indent=2) + "\n")
    rows = [row for part in found.values() for row in part if isinstance(row, Row)]
    return (
        0 if rows and not any(row.problem and row.engine.startswith("npa") for row in rows) else 1
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="Exit code 0: every figure of npa could be taken. 1: one could not.",
    )
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "npa-benchmarks"
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each")
    parser.add_argument("--peers", action="store_true", help="install and measure other engines")
    parser.add_argument("--repeats", type=int, metavar="N", help="runs of each case")
    parser.add_argument("--only", action="append", choices=sorted(SECTIONS), help="one part")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures to this file")
    parser.add_argument("--cache", type=Path, default=default, help="environments of the peers")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
