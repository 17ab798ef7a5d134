"""The rules: each a small function, all in one table, each sees the whole workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from npa.workflow.check_context import Context
from npa.workflow.check_data import DATA_RULES
from npa.workflow.check_decisions import DECISION_RULES
from npa.workflow.check_flow import FLOW_RULES
from npa.workflow.check_names import NAME_RULES
from npa.workflow.check_resources import RESOURCE_RULES
from npa.workflow.check_shape import SHAPE_RULES
from npa.workflow.check_shell import SHELL_RULES
from npa.workflow.check_tokens import TOKEN_RULES
from npa.workflow.check_tools import TOOL_RULES
from npa.workflow.diagnostics import Diagnostic
from npa.workflow.meaning import Workflow
from npa.workflow.tools import Tools

RULES: tuple[Callable[[Context], None], ...] = (
    *NAME_RULES,
    *SHAPE_RULES,
    *FLOW_RULES,
    *DECISION_RULES,
    *TOKEN_RULES,
    *SHELL_RULES,
    *TOOL_RULES,
    *RESOURCE_RULES,
    *DATA_RULES,
)


def check(
    workflow: Workflow,
    tools: Tools,
    *,
    overrides: Mapping[str, str] | None = None,
    broken: frozenset[str] = frozenset(),
    lines: Sequence[str] = (),
    declared_config: frozenset[str] | None = None,
) -> list[Diagnostic]:
    """Judge a workflow by every rule.

    `broken` names states whose shape was already refused: rules do not complain again about what
    they lack. `lines` are the file's lines, to point at a token inside a block of text.
    `declared_config` are the config keys of the file itself, before `overrides` were merged.
    """
    context = Context(workflow, tools, overrides or {}, broken, lines, declared_config)
    for rule in RULES:
        rule(context)
    return context.problems
