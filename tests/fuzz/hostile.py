"""Large files made to cost much: each shape would be quadratic or worse in a careless checker."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\n"
RUN = "run: {shell: 'true'}"
ONE = "states: {a: {run: {shell: x}, terminal: true}}\n"


def _names(count: int, size: int = 60) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choice("abcdef") for _ in range(size)) for _ in range(count)]


def _near(name: str) -> str:
    return f"{name[:30]}zzzzz{name[35:]}"


def _states(lines: list[str]) -> str:
    return HEAD + "states:\n" + "".join(f"  {line}\n" for line in lines)


def misspelt_states(n: int) -> str:
    return _states([f"{name}: {{{RUN}, next: {_near(name)}}}" for name in _names(n)])


def misspelt_tools(n: int) -> str:
    ref = "workbench.cosmos2.transfer_"
    return _states([f"s{i}: {{toolRef: {ref}{name}}}" for i, name in enumerate(_names(n, 20))])


def misspelt_keys(n: int) -> str:
    return _states([f"s{i}: {{{name}: 1, {RUN}}}" for i, name in enumerate(_names(n))])


def misspelt_config(n: int) -> str:
    names = _names(n)
    states = [f"s{i}: {{run: {{shell: '{{{{config.{_near(k)}}}}}'}}}}" for i, k in enumerate(names)]
    return _states(states) + "config: {" + ", ".join(f"{name}: 1" for name in names) + "}\n"


def misspelt_profiles(n: int) -> str:
    names = _names(n)
    states = [f"s{i}: {{{RUN}, resources: {_near(name)}}}" for i, name in enumerate(names)]
    return _states(states) + "resources: {" + ", ".join(f"{k}: {{}}" for k in names) + "}\n"


def inputs_that_nobody_writes(n: int) -> str:
    puts = "inputs: [{{uri: 's3://b/{}'}}], outputs: [{{uri: 's3://b/{}'}}]"
    names = _names(n)
    return _states([f"s{i}: {{{RUN}, {puts.format(_near(k), k)}}}" for i, k in enumerate(names)])


def open_tokens(n: int) -> str:
    return HEAD + "states: {a: {run: {shell: '" + "{{config." * (n * 40) + "'}}}\n"


def many_tokens(n: int) -> str:
    text = "{{config.a}}" * (n * 20)
    return f"{HEAD}config: {{a: 1}}\nstates: {{a: {{run: {{shell: '{text}'}}}}}}\n"


def dense_transitions(n: int) -> str:
    ways = (", ".join(f"{{if: config.f, goto: s{(i * 7 + k) % n}}}" for k in range(20))
            for i in range(n))  # fmt: skip
    rows = [f"s{i}: {{{RUN}, transitions: [{way}], next: s{(i + 1) % n}}}"
            for i, way in enumerate(ways)]  # fmt: skip
    return _states(rows) + "config: {f: true}\n"


def dense_needs(n: int) -> str:
    needs = (", ".join(f"s{(i + k) % n}" for k in range(20)) for i in range(n))
    return _states([f"s{i}: {{{RUN}, needs: [{names}]}}" for i, names in enumerate(needs)])


def overlapping_groups(n: int) -> str:
    groups = [f"g{i}: {{sequence: [{', '.join(f's{k}' for k in range(i % 50, i % 50 + 40))}]}}"
              for i in range(n)]  # fmt: skip
    return _states(groups + [f"s{i}: {{{RUN}}}" for i in range(100)])


def doubled_members(n: int) -> str:
    return _states([f"g{i}: {{sequence: [g{i + 1}, g{i + 1}]}}" for i in range(60)] + ["g60: {}"])


def loops_in_loops(n: int) -> str:
    rows = [f"g{i}: {{sequence: [g{i + 1}], loop: {{max: 50000}}}}" for i in range(20)]
    return _states([*rows, f"g20: {{{RUN}, terminal: true}}"])


def aliases_of_aliases(n: int) -> str:
    rows = ["a0: &a0 [x, x]"]
    rows += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    return HEAD + "config:\n" + "".join(f"  {row}\n" for row in rows) + ONE


def values_that_double(n: int) -> str:
    rows = [f"k{i}: '{{{{config.k{i + 1}}}}}{{{{config.k{i + 1}}}}}'" for i in range(40)]
    states = "states: {a: {run: {shell: '{{config.k0}}'}, terminal: true}}\n"
    return HEAD + "config:\n" + "".join(f"  {row}\n" for row in [*rows, "k40: x"]) + states


def doubled_keys(n: int) -> str:
    return HEAD + "kind: Workflow\n" * (n * 4) + ONE


SHAPES: Mapping[str, Callable[[int], str]] = {
    shape.__name__: shape
    for shape in (
        misspelt_states, misspelt_tools, misspelt_keys, misspelt_config, misspelt_profiles,
        inputs_that_nobody_writes, open_tokens, many_tokens, dense_transitions, dense_needs,
        overlapping_groups, doubled_members, loops_in_loops, aliases_of_aliases,
        values_that_double, doubled_keys,
    )
}  # fmt: skip
