"""Every hold names the command that ends it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npa.orchestration.remedies import REMEDIES, remedy_of

SOURCE = Path(__file__).resolve().parents[2] / "src" / "npa" / "orchestration"


def test_every_code_that_something_holds_with_has_a_remedy() -> None:
    texts = [(SOURCE / f"{name}.py").read_text() for name in ("decide", "driver", "supervise")]
    codes = {code for text in texts for code in re.findall(r'Hold\(\s*"([A-Z_]+)"', text)}
    assert codes == set(REMEDIES)


@pytest.mark.parametrize("code", sorted(REMEDIES))
@pytest.mark.parametrize("ends", [True, False])
def test_a_remedy_is_a_command_of_this_run(code: str, ends: bool) -> None:
    text = remedy_of(code, run="r1", job="r1-a-0123456789", ends=ends)
    assert re.search(r"`npa workflow (resume|cancel) r1( --gone r1-a-0123456789| .*)?`", text)
