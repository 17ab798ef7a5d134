"""Short ways to load a text in tests and to say what was found."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

from npa.workflow.explain import FILE_HEAD
from npa.workflow.load import Loaded, load_text
from npa.workflow.meaning import Workflow
from npa.workflow.tools import Tools
from workflow.toolbox import SAMPLE_TOOLS


def load(
    text: str, *, tools: Tools = SAMPLE_TOOLS, overrides: Mapping[str, str] | None = None
) -> Loaded:
    """Load a file given without its first two lines, `apiVersion` and `kind`."""
    return load_text(
        FILE_HEAD + dedent(text).lstrip("\n"),
        filename="f.yaml",
        tools=tools,
        overrides=overrides,
    )


def found(
    text: str, *, tools: Tools = SAMPLE_TOOLS, overrides: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """(code, path) of every diagnostic, in order."""
    return [(d.code, d.path) for d in load(text, tools=tools, overrides=overrides).diagnostics]


def messages(text: str, *, overrides: Mapping[str, str] | None = None) -> list[str]:
    return [d.message for d in load(text, overrides=overrides).diagnostics]


def workflow_of(
    text: str, *, tools: Tools = SAMPLE_TOOLS, overrides: Mapping[str, str] | None = None
) -> Workflow:
    loaded = load(text, tools=tools, overrides=overrides)
    assert loaded.workflow is not None, [d.message for d in loaded.errors]
    return loaded.workflow
