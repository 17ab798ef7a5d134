"""What every rule is given: the workflow, the tools, the file's lines, and where to complain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from npa.workflow.codes import Code, severity_of
from npa.workflow.diagnostics import Diagnostic, path_text, report
from npa.workflow.meaning import Path, State, Workflow
from npa.workflow.order import (
    Order,
    Reach,
    find_cycles,
    group_edges,
    group_members,
    live_targets,
    order_of,
    reach,
    state_targets,
    with_names,
)
from npa.workflow.suggest import Suggester
from npa.workflow.tokens import ConfigResolution, config_reference, resolve_config
from npa.workflow.tools import Tool, Tools

_LINES_SEARCHED_MAX = 2000


class Context:
    """One check of one workflow. Rules add to `problems` through `add` and `add_at_text`."""

    def __init__(
        self,
        workflow: Workflow,
        tools: Tools,
        overrides: Mapping[str, str],
        broken: frozenset[str],
        lines: Sequence[str],
        declared_config: frozenset[str] | None = None,
    ) -> None:
        self.workflow = workflow
        self.tools = tools
        self.overrides = overrides
        self.broken = broken
        self.lines = lines
        self.declared_config = declared_config
        self.problems: list[Diagnostic] = []
        self.suggest = Suggester()
        self._tools: dict[str, Tool | None] = {}
        self._inside: dict[str, frozenset[str]] = {}

    # Complaining

    def add(
        self,
        code: Code,
        message: str,
        path: Path,
        *,
        at_key: bool = False,
        help: str = "",  # noqa: A002
    ) -> None:
        self.problems.append(
            report(code, message, self.workflow.positions, path, at_key=at_key, help=help)
        )

    def add_at_text(
        self,
        code: Code,
        message: str,
        path: Path,
        text: str,
        help: str = "",  # noqa: A002
    ) -> None:
        """Like `add`, but points at `text` inside the value if it can be found in the file."""
        place = self.workflow.positions.value(path) if self.workflow.positions else None
        wanted = text.split("\n", 1)[0]
        if place is not None and wanted:
            first = place.line - 1
            for number in range(first, min(first + _LINES_SEARCHED_MAX, len(self.lines))):
                start = place.column - 1 if number == first else 0
                column = self.lines[number].find(wanted, start)
                if column >= 0:
                    self.problems.append(
                        Diagnostic(
                            code.value,
                            severity_of(code),
                            message,
                            path_text(path),
                            number + 1,
                            column + 1,
                            column + 1 + len(wanted),
                            help,
                        )
                    )
                    return
        self.add(code, message, path, help=help)

    def add_without_place(self, code: Code, message: str, path: str, hint: str) -> None:
        """A problem that is not in the file; `path` says what it is about."""
        self.problems.append(
            Diagnostic(code.value, severity_of(code), message, path=path, help=hint)
        )

    # Looking

    def path(self, state: State | str, *rest: str | int) -> Path:
        name = state if isinstance(state, str) else state.name
        return ("states", name, *rest)

    def sound_states(self) -> Iterator[State]:
        """States whose shape was accepted."""
        if not self.broken:
            yield from self.workflow.states.values()
            return
        for name, state in self.workflow.states.items():
            if name not in self.broken:
                yield state

    def tool(self, ref: str) -> Tool | None:
        if ref not in self._tools:
            self._tools[ref] = self.tools.get(ref)
        return self._tools[ref]

    @cached_property
    def meant(self) -> Mapping[str, str]:
        """For each name that is used as a state's and is none: the state that was meant, or ""."""
        workflow = self.workflow
        used = [workflow.initial] if workflow.initial else []
        for state in workflow.states.values():
            used += (*state_targets(state), *state.needs)
        unknown = [name for name in dict.fromkeys(used) if name not in workflow.states]
        return {name: self.suggest.closest(name, workflow.states) for name in unknown}

    @cached_property
    def flow(self) -> Workflow:
        """The workflow as it was meant: misspelt names of states replaced, where that is plain.

        Reach and order are judged by it, so that one misspelt name is one problem.
        """
        return with_names(self.workflow, self.meant) if any(self.meant.values()) else self.workflow

    @cached_property
    def leads_astray(self) -> bool:
        """Does a way lead to a state that is not there, whichever was meant? Or in a circle?

        Then nothing can be said of what is not reached.
        """
        states = self.flow.states
        return any(
            name not in states for state in states.values() for name in state_targets(state)
        ) or bool(self.circles)

    def may_belong(self, state: State) -> bool:
        """Is the state not reached, and may be once a name of a state is put right?"""
        return self.leads_astray and state.name not in self.reach

    @cached_property
    def dead_ends(self) -> tuple[State, ...]:
        """States at which a run would end although they are not terminal."""
        return tuple(
            state
            for state in self.sound_states()
            if state.name in self.reach.top and not (state.terminal or live_targets(state))
        )

    @cached_property
    def circles(self) -> list[list[str]]:
        """Closed paths of `next` and `goto`."""
        states = self.workflow.states
        return find_cycles(
            {
                name: ()
                if self.reach.only_member(name)
                else tuple(t for t in live_targets(state) if t in states)
                for name, state in states.items()
            }
        )

    @cached_property
    def reach(self) -> Reach:
        return reach(self.flow)

    @cached_property
    def order(self) -> Order | None:
        """What comes before what; None while groups or ways out are circular or lead nowhere."""
        workflow = self.flow
        if workflow.initial not in workflow.states or find_cycles(group_edges(workflow)):
            return None
        edges = {
            name: () if self.reach.only_member(name) else live_targets(state)
            for name, state in workflow.states.items()
        }
        return None if find_cycles(edges) else order_of(workflow, self.reach)

    @cached_property
    def parallel_members(self) -> frozenset[str]:
        return frozenset(m for s in self.workflow.states.values() for m in s.parallel)

    @cached_property
    def tool_names(self) -> Sequence[str]:
        return self.tools.names()

    @cached_property
    def config(self) -> Mapping[str, object]:
        """Config with the defaults that the used tools add."""
        return effective_config(self.workflow, self.tools)

    @cached_property
    def sample_run(self) -> Mapping[str, object]:
        """Values for the `run` scope that look like those of a real run."""
        run: dict[str, object] = {
            "prefix": f"{self.workflow.name}/{SAMPLE_RUN_ID}",
            **self.workflow.run,
            "id": SAMPLE_RUN_ID,
            "uri": SAMPLE_RUN_URI,
        }
        prefix = resolve_config(self.config, run).values.get("prefix")
        if isinstance(prefix, str) and prefix and "{{" not in prefix:
            run["prefix"] = prefix
        return run

    @cached_property
    def resolution(self) -> ConfigResolution:
        """Config resolved with the sample run."""
        return resolve_config(self.config, self.sample_run)

    @cached_property
    def resolved(self) -> Mapping[str, object]:
        return self.resolution.values

    @cached_property
    def loops(self) -> tuple[str, ...]:
        return tuple(n for n, s in self.workflow.states.items() if s.loop is not None)

    def inside_loop(self, loop: str) -> frozenset[str]:
        """All states inside a looped group, at any depth."""
        if loop not in self._inside:
            states = self.flow.states
            found: set[str] = set()
            pending = list(group_members(states[loop]))
            while pending:
                name = pending.pop()
                if name in states and name not in found:
                    found.add(name)
                    pending.extend(group_members(states[name]))
            self._inside[loop] = frozenset(found)
        return self._inside[loop]

    # Config references

    @cached_property
    def declared(self) -> frozenset[str]:
        """Config keys of the file itself and of its tools' defaults, `--var` left out."""
        if self.declared_config is None:
            return frozenset(self.config) - frozenset(self.overrides)
        defaults = frozenset(self.config) - frozenset(self.workflow.config)
        return frozenset(self.declared_config) | defaults

    @cached_property
    def unresolved(self) -> frozenset[str]:
        """Config keys whose own value was refused."""
        resolution = self.resolution
        keys = {key for key, _ in resolution.unknown} | set(resolution.too_long)
        keys.update(key for cycle in resolution.cycles for key in cycle)
        return frozenset(keys)

    def reported_in_config(self, value: object) -> bool:
        """Does the value refer to a config key that is reported anyway?"""
        return isinstance(value, str) and config_reference(value) in self.unresolved

    def config_hint(self, value: object) -> str:
        key = config_reference(value) if isinstance(value, str) else ""
        if key and key not in self.resolved:
            return self.suggest.did_you_mean(key, self.resolved)
        return ""

    def seen_by(self, state: State) -> Mapping[str, object]:
        """Resolved config with the state's params over it."""
        return {**self.resolved, **state.params} if state.params else self.resolved

    @staticmethod
    def number(value: float | str, config: Mapping[str, object]) -> float | None:
        """A number, digits, or a config reference to one; None if it is neither."""
        found: object = value
        if isinstance(value, str):
            key = config_reference(value)
            found = config.get(key) if key else value
        if isinstance(found, bool) or not isinstance(found, int | float | str):
            return None
        try:
            number = float(found)
        except (ValueError, OverflowError):
            return None
        return number if abs(number) < 1e300 else None


SAMPLE_RUN_ID = "sample-run-0001"
SAMPLE_RUN_URI = "s3://sample-bucket/sample-run-0001/"


def effective_config(workflow: Workflow, tools: Tools) -> dict[str, object]:
    """Config plus the additive defaults of every tool that the file uses; the file wins."""
    config: dict[str, object] = {}
    for ref in dict.fromkeys(s.tool_ref for s in workflow.states.values() if s.tool_ref):
        tool = tools.get(ref)
        if tool is not None:
            for key, value in tool.config_defaults.items():
                config.setdefault(key, value)
    config.update(workflow.config)
    return config
