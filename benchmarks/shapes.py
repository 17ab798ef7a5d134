"""The same no-op workflow for each engine: `chain` is one step after the other, `fan` has no order.

A step is a child process that runs `true`, wherever the engine can do that. Two may run at once.
"""

from __future__ import annotations

from collections.abc import Iterator

AT_ONCE = 2
SHAPES = ("chain", "fan")


def npa(shape: str, steps: int) -> str:
    """An `npa.workflow/v0.0.1` file."""
    return "\n".join(
        (_head(f"{shape}-{steps}"), *(_chain(steps) if shape == "chain" else _fan(steps)), "")
    )


def _head(name: str) -> str:
    return (
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\n"
        f"metadata:\n  name: {name}\ninitial: start\nstates:"
    )


def _chain(steps: int) -> Iterator[str]:
    names = ["start", *(f"s{n}" for n in range(1, steps))]
    for name, after in zip(names, [*names[1:], ""], strict=True):
        end = f"next: {after}" if after else "terminal: true"
        yield f'  {name}:\n    run: {{argv: ["true"]}}\n    {end}'


def _fan(steps: int) -> Iterator[str]:
    """A group of all but one step, and that one as its terminal join."""
    members = [f"s{n}" for n in range(1, steps)]
    yield f"  start:\n    parallel: [{', '.join(members)}]\n    parallelMode: window"
    yield f"    maxConcurrency: {AT_ONCE}\n    next: end"
    for name in members:
        yield f'  {name}:\n    run: {{argv: ["true"]}}'
    yield '  end:\n    run: {argv: ["true"]}\n    terminal: true'


def makefile(shape: str, steps: int) -> str:
    last = f"s{steps - 1}" if shape == "chain" else " ".join(f"s{n}" for n in range(steps))
    rules = [
        f"s{n}:{f' s{n - 1}' if shape == 'chain' and n else ''}\n\t@true" for n in range(steps)
    ]
    return "\n".join((f"all: {last}", *rules, ""))


def snakefile(shape: str, steps: int) -> str:
    if shape == "fan":
        return (
            f'rule all:\n    input: expand("out/{{n}}", n=range({steps}))\n\n'
            'rule step:\n    output: touch("out/{n}")\n    shell: "true"\n'
        )
    rules = [f'rule all:\n    input: "out/{steps - 1}"\n']
    for n in range(steps):
        needs = f'    input: "out/{n - 1}"\n' if n else ""
        rules.append(f'rule s{n}:\n{needs}    output: touch("out/{n}")\n    shell: "true"\n')
    return "\n".join(rules)
