"""Runs the digits stages one by one, as an engine would: by environment variables alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
SOURCE = Path(__file__).parents[2] / "src"
TOKEN = re.compile(r"\{\{(config|run|loop)\.(\w+)\}\}")


@dataclass
class Pipeline:
    """The example's file with one run's root; `overrides` are `--var`."""

    root: Path
    overrides: dict[str, Any] = field(default_factory=dict)
    loop: int = 1

    def __post_init__(self) -> None:
        self.document = yaml.safe_load((EXAMPLE / "pipeline.yaml").read_text())
        self.config = {**self.document["config"], **self.overrides}
        self.uri = self.root.as_uri() + "/"

    def text(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        known = {"config": self.config, "run": {"uri": self.uri}, "loop": {"refine": self.loop}}
        return TOKEN.sub(lambda found: str(known[found[1]][found[2]]), value)

    def artifacts(self, state: str, kind: str) -> list[dict[str, str]]:
        declared = self.document["states"][state].get(kind, [])
        return [{"uri": self.text(a["uri"]), "schema": a.get("schema", "")} for a in declared]

    def params(self, state: str, **extra: Any) -> dict[str, Any]:
        own = self.document["states"][state].get("params", {})
        return {**self.config, **{k: self.text(v) for k, v in own.items()}, **extra}

    def environment(self, state: str, rank: int, ranks: int, **params: Any) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        own = self.document["states"][state].get("env", {})
        path = f"refine[{self.loop}]/{state}" if state == "refine-train" else state
        return {
            **kept,
            **own,
            "PYTHONPATH": str(SOURCE),
            "NPA_WORKFLOW_NAME": "digits",
            "NPA_WORKFLOW_RUN_ID": "digits-test",
            "NPA_WORKFLOW_STATE": state,
            "NPA_WORKFLOW_PATH": path,
            "NPA_WORKFLOW_ATTEMPT": "1",
            "NPA_WORKFLOW_ATTEMPT_ID": "00ff00ff00",
            "NPA_RUN_URI": self.uri,
            "NPA_INPUTS": json.dumps(self.artifacts(state, "inputs")),
            "NPA_OUTPUTS": json.dumps(self.artifacts(state, "outputs")),
            "NPA_PARAMS": json.dumps(self.params(state, **params)),
            "NPA_DECISION_URI": "",
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NUM_NODES": str(ranks),
            "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * ranks),
            "SKYPILOT_NUM_GPUS_PER_NODE": "0",
            "SKYPILOT_TASK_ID": f"digits-test-{state}",
        }

    def start(
        self, state: str, rank: int = 0, ranks: int = 1, **params: Any
    ) -> subprocess.Popen[str]:
        argv = self.document["states"][state]["run"]["argv"]
        return subprocess.Popen(
            [sys.executable, *argv[1:]],
            cwd=EXAMPLE,
            env=self.environment(state, rank, ranks, **params),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, state: str, rank: int = 0, ranks: int = 1, **params: Any) -> str:
        """What the stage printed; an AssertionError with it if the stage failed."""
        code, said = self.attempt(state, rank, ranks, **params)
        assert code == 0, f"{state} failed: {said}"
        return said

    def attempt(self, state: str, rank: int = 0, ranks: int = 1, **params: Any) -> tuple[int, str]:
        process = self.start(state, rank, ranks, **params)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def gang(self, state: str, ranks: int) -> None:
        processes = [self.start(state, rank, ranks) for rank in range(ranks)]
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, said

    def gate(self) -> bool:
        """The catalogue's own gate, on the number that was measured; does it promote?"""
        folder = f"{self.uri}artifacts/refine/{self.loop}/"
        threshold = str(self.config["accuracy_threshold"])
        argv = ["--report", f"{folder}metrics.json", "--path", "accuracy", "--op", ">="]
        argv += [f"--threshold={threshold}", "--decision", f"{folder}decision.json"]
        subprocess.run(
            [sys.executable, "-m", "npa.tools.threshold", *argv],
            env=self.environment("refine-gate", 0, 1),
            check=True,
            timeout=120,
        )
        decision: str = self.read(f"refine/{self.loop}/decision.json")["decision"]
        return decision == "promote_checkpoint"

    def refine(self) -> bool:
        for iteration in range(1, int(self.config["max_iterations"]) + 1):
            self.loop = iteration
            self.run("refine-train")
            if self.gate():
                return True
        return False

    def read(self, name: str) -> Any:
        return json.loads((self.root / "artifacts" / name).read_text())

    def borrow(self, other: Pipeline, *folders: str) -> None:
        """Take over artifacts of another run instead of making them again."""
        for folder in folders:
            shutil.copytree(other.root / "artifacts" / folder, self.root / "artifacts" / folder)

    def through_split(self) -> None:
        self.run("ingest")
        self.run("split")

    def whole(self) -> str:
        """The whole pipeline; the name of the terminal state."""
        self.through_split()
        for state in self.document["states"]["train"]["parallel"]:
            self.run(state)
        self.run("evaluate")
        return self.finish()

    def finish(self) -> str:
        """From the refine loop on; the name of the terminal state."""
        end = "report-promoted" if self.refine() else "report-shortfall"
        self.gang("cross-check", 2)
        self.run(end)
        return end
