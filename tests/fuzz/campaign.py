"""Fuzz the loader, guided by what its branches reach: `python -m fuzz.campaign --minutes 10`.

Needs atheris, which is in no locked set: `make fuzz` gives it an environment of its own. A finding
ends the campaign with exit code 1: it is made small and kept in `tests/fuzz/found/`, where the
ordinary tests run it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris
import yaml

FOUND = Path(__file__).parent / "found"
MEMORY_BYTES_MAX = 2 * 1024**3
INPUT_BYTES_MAX = 8_000
SLOWED_BY_MAX = 5.0  # instrumentation; slower inputs are measured again without it

with atheris.instrument_imports(include=["npa"], exclude=["npa.workflow.suggest"]):
    from fuzz.examine import CPU_SECONDS_MAX, Broken, examine
    from fuzz.grammar import change, dictionary, seeds, words


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps what was reached for the next campaign")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return fuzz(options.folder, options.minutes, options.seed)
    with tempfile.TemporaryDirectory(prefix="npa-fuzz-") as made:
        folder = options.folder or Path(made)
        return campaign(folder, arguments)


def campaign(folder: Path, arguments: list[str]) -> int:
    """libFuzzer ends its process; what it left is looked at here."""
    for name in ("reached", "broken", "slow"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "fuzz.campaign", *arguments, "--child", "--folder", str(folder)]
    done = subprocess.run(argv, check=False)
    if any((folder / "slow").iterdir()):
        print("measuring slow inputs again, without instrumentation", flush=True)
        slow = [sys.executable, "-m", "fuzz.measure", str(folder / "slow")]
        if subprocess.run(slow, check=False).returncode:
            return 1
    broken = sorted((folder / "broken").iterdir())
    for file in broken:
        print(f"kept: {keep(file)}")
    return 1 if broken or done.returncode else 0


def keep(file: Path) -> Path:
    """A finding, made as small as lines can be left out of it, among the regressions."""
    data = file.read_bytes()
    if why(data):
        data = smaller(data)
    place = FOUND / f"{hashlib.sha256(data).hexdigest()[:12]}.yaml"
    place.write_bytes(data)
    return place


def why(data: bytes) -> str:
    """The type of what is wrong with an input, "" if nothing is."""
    try:
        seconds = examine(data)
    except Exception as error:  # whatever it is, it is the finding
        return type(error).__name__
    return "slow" if seconds > CPU_SECONDS_MAX * SLOWED_BY_MAX else ""


def smaller(data: bytes) -> bytes:
    """Without all lines that the same trouble does not need."""
    trouble, lines = why(data), data.splitlines(keepends=True)
    step = max(len(lines) // 2, 1)
    while True:
        at = 0
        while at < len(lines):
            less = lines[:at] + lines[at + step :]
            if why(b"".join(less)) == trouble:
                lines = less
            else:
                at += step
        if step == 1:
            return b"".join(lines)
        step //= 2


def fuzz(folder: Path, minutes: float, seed: int) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX * 2, MEMORY_BYTES_MAX * 2))
    for data in seeds():
        (folder / "reached" / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    dictionary_file = folder / "words.dict"
    dictionary_file.write_text(dictionary(), encoding="utf-8")
    known = words()
    others = [tree for data in seeds() if isinstance(tree := _tree(data), dict)]
    work = Path(tempfile.mkdtemp(prefix="npa-fuzz-input-", dir=_fast()))

    def one(data: bytes) -> None:
        seconds = examine(data, work)
        if seconds > CPU_SECONDS_MAX:
            name = hashlib.sha256(data).hexdigest()[:16]
            (folder / "slow" / name).write_bytes(data)
            if seconds > CPU_SECONDS_MAX * SLOWED_BY_MAX:
                raise Broken(f"{seconds:.1f} s of CPU time")

    def mutate(data: bytes, size_max: int, number: int) -> bytes:
        draw = random.Random(number)
        if draw.random() < 0.5:
            made = change(data, draw, known, [draw.choice(others)] if others else [])
            if made != data and len(made) <= size_max:
                return made
        return bytes(atheris.Mutate(data, size_max))

    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={int(minutes * 60)}",
            f"-max_len={INPUT_BYTES_MAX}",
            f"-dict={dictionary_file}",
            f"-seed={seed}",
            f"-artifact_prefix={folder / 'broken'}/",
            f"-rss_limit_mb={MEMORY_BYTES_MAX // 1024**2}",
            "-timeout=60",
            "-print_final_stats=1",
            str(folder / "reached"),
        ],
        one,
        custom_mutator=mutate,
        internal_libfuzzer=True,
    )
    atheris.Fuzz()
    return 0


def _tree(data: bytes) -> object:
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError):
        return None


def _fast() -> str | None:
    """Inputs are written to memory where that is possible."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
