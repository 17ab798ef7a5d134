"""The rules: each a small function, all in one table, each sees the whole workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from npa.workflow.check_context import Context
from npa.workflow.check_names import NAME_RULES
from npa.workflow.diagnostics import Diagnostic
from npa.workflow.meaning import Workflow
from npa.workflow.tools import Tools

RULES: tuple[Callable[[Context], None], ...] = (*NAME_RULES,)


def check(
    workflow: Workflow,
    tools: Tools,
    *,
    overrides: Mapping[str, str] | None = None,
    broken: frozenset[str] = frozenset(),
    lines: Sequence[str] = (),
) -> list[Diagnostic]:
    """Judge a workflow by every rule.

    `broken` names states whose shape was already refused: rules do not complain again about what
    they lack. `lines` are the file's lines, to point at a token inside a block of text.
    """
    context = Context(workflow, tools, overrides or {}, broken, lines)
    for rule in RULES:
        rule(context)
    return context.problems
