"""The digits example under attack, as it is: only its Python processes are counted from outside.

A `sitecustomize` on the tasks' PYTHONPATH appends to the trace when the interpreter of an attempt
starts and when it ends, once an attempt and rank.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
OPTIONS = ("--env", "PYTHONPATH")

COUNTER = '''\
"""Counts attempts: the first interpreter of a task says so; its children are part of it."""

import atexit
import os


def note(word):
    env = os.environ
    words = [word, env["NPA_WORKFLOW_PATH"], env["NPA_WORKFLOW_ATTEMPT_ID"]]
    line = " ".join([*words, env.get("SKYPILOT_NODE_RANK", "0")]) + "\\n"
    fd = os.open(env["CHAOS_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


if "NPA_WORKFLOW_ATTEMPT_ID" in os.environ and "CHAOS_COUNTED" not in os.environ:
    os.environ["CHAOS_COUNTED"] = "1"
    note("begin")
    atexit.register(note, "end")
'''


def write(folder: Path) -> Path:
    """A copy of the example; the counter lies beside it, outside of its source."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    counter = folder.parent / "counter"
    counter.mkdir()
    (counter / "sitecustomize.py").write_text(COUNTER)
    return folder / "pipeline.yaml"


def environment(folder: Path) -> dict[str, str]:
    places = [str(folder.parent / "counter"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(place for place in places if place)}


def essence(result: Mapping[str, object]) -> dict[str, object]:
    """What must repeat: data, models, all that was measured and decided.

    Times and the run's own name may differ, so the page does, too.
    """
    return {
        name: _timeless(body)
        for name, body in result.items()
        if "/timeline/" not in name and not name.endswith(".html")
    }


_DIFFERS = ("run", "attempt", "report", "start", "end", "seconds", "pid", "uri", "time")


def _timeless(body: object) -> object:
    if isinstance(body, dict):
        return {k: _timeless(v) for k, v in body.items() if not any(w in k for w in _DIFFERS)}
    if isinstance(body, list):
        return [_timeless(one) for one in body]
    return body
