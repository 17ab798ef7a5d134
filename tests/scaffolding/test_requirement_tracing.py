"""A test names the requirement it proves, and only a real one."""

from __future__ import annotations

import requirements_plugin as plugin

KNOWN = {"A-01": "files", "A-02": "environment"}


def test_the_table_holds_every_section() -> None:
    known = plugin.read_table(plugin.TABLE.read_text())
    assert {name[0] for name in known} == set("ABCDEFG")
    assert len(known) == 51


def test_an_unknown_id_is_refused_with_its_test() -> None:
    problems = plugin.unknown_ids({"A-01": ["t.py::a"], "Z-99": ["t.py::b"]}, KNOWN)
    assert problems == ["t.py::b: requirement 'Z-99' is not in docs/requirements.md"]


def test_the_report_names_what_no_test_proves() -> None:
    report = plugin.render({"A-01": ["t.py::a", "t.py::a"]}, KNOWN)
    assert report.splitlines() == [
        "A-01  files",
        "      t.py::a",
        "",
        "proven: 1 of 2",
        "no test: A-02  environment",
    ]
