"""The context of a run: everything that tokens may refer to and that does not change in a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from npa.workflow.meaning import Workflow
from npa.workflow.tokens import resolve_config
from npa.workflow.tools import Tool, Tools


class Context(Struct, frozen=True):
    """`config` is resolved (tool defaults, then the file's); `run` is the `run.` token scope."""

    run_id: str
    run_uri: str  # root of the run, ends in "/"
    config: Mapping[str, object]
    run: Mapping[str, object]
    tools: Mapping[str, Tool] = field(default_factory=dict)  # those that the workflow uses


class Overlay(Mapping[str, object]):
    """A state's effective config: its params over the run's config, without copying the config."""

    __slots__ = ("_base", "_over")

    def __init__(self, over: Mapping[str, object], base: Mapping[str, object]) -> None:
        self._over = over
        self._base = base

    def __getitem__(self, key: str) -> object:
        return self._over[key] if key in self._over else self._base[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        yield from (key for key in self._over if key not in self._base)

    def __len__(self) -> int:
        return len(self._base) + sum(key not in self._base for key in self._over)

    def __repr__(self) -> str:
        return repr(dict(self))


def make_context(
    workflow: Workflow,
    *,
    run_id: str,
    run_uri: str,
    tools: Tools,
    run_values: Mapping[str, object] | None = None,
) -> Context:
    """Resolve config and the `run` scope for one run.

    `run.prefix` is `<workflow>/<run id>` unless `config.prefix` says otherwise; the file's
    top-level `run` and then `run_values` add to the scope; `run.id` and `run.uri` are always the
    run's own. Raises ConfigUnresolvable (a UsageError) for cycles and unknown keys.
    """
    used = _tools_used(workflow, tools)
    config: dict[str, object] = {}
    for tool in used.values():
        for key, value in tool.config_defaults.items():
            config.setdefault(key, value)
    config.update(workflow.config)
    root = run_uri if run_uri.endswith("/") else f"{run_uri}/"
    run: dict[str, object] = {
        "prefix": f"{workflow.name}/{run_id}",
        **workflow.run,
        **(run_values or {}),
        "id": run_id,
        "uri": root,
    }
    resolved = resolve_config(config, run).required()
    prefix = resolved.get("prefix")
    if isinstance(prefix, str) and prefix and prefix != run["prefix"]:
        # Resolve again, so that `run.prefix` means the same inside config as outside.
        run["prefix"] = prefix
        config["prefix"] = prefix
        resolved = resolve_config(config, run).required()
    return Context(run_id=run_id, run_uri=root, config=resolved, run=run, tools=used)


def _tools_used(workflow: Workflow, tools: Tools) -> dict[str, Tool]:
    used: dict[str, Tool] = {}
    for state in workflow.states.values():
        if state.tool_ref and state.tool_ref not in used:
            tool = tools.get(state.tool_ref)
            if tool is not None:
                used[state.tool_ref] = tool
    return used
