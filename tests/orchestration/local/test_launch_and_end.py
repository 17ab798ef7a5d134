"""From launch to exit record, when nothing goes wrong around the payload."""

from __future__ import annotations

from pathlib import Path

from npa.orchestration.engine import Launched, Phase
from npa.orchestration.local.engine import LocalEngine
from orchestration.local.kit import job, lines, settled


def test_a_step_succeeds(engine: LocalEngine, tmp_path: Path) -> None:
    hello = job("hello", f"echo run >> {tmp_path}/runs; echo hello")
    assert isinstance(engine.launch(hello), Launched)
    over = settled(engine, hello)
    assert over.phase is Phase.SUCCEEDED
    assert [member.path for member in over.members] == ["hello"]
    assert lines(tmp_path / "runs") == ["run"]
    assert (tmp_path / "jobs/hello/rank-0.log").read_text() == "hello\n"
