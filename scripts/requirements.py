"""Prints each requirement with the tests that prove it (`make requirements`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Report:
    """Renders the table once the tests are collected; pytest itself stays silent."""

    text = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from requirements_plugin import TABLE, marks_of, read_table, render

        self.text = render(marks_of(session.items), read_table(TABLE.read_text()))


def main() -> int:
    os.chdir(ROOT)
    report = Report()
    quiet = ["--collect-only", "-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts="]
    code = pytest.main([*quiet, "--import-mode=importlib"], plugins=[report])
    if code != pytest.ExitCode.OK:
        print("error: the tests cannot be collected", file=sys.stderr)
        print("hint: `pytest --collect-only` says why", file=sys.stderr)
        return int(code)
    print(report.text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
