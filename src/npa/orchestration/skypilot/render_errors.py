"""What stops a rendering, and the texts that must not be left in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from npa.errors import UsageError

_PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|\{\{")
SCRIPTS = ("setup", "run")
"""Top-level fields of a task that are programs: `${NAME}` is theirs to expand."""


class RenderError(UsageError):
    """A step cannot be rendered for SkyPilot. `path` is the step's, "" for the job."""

    code = "RENDER"

    def __init__(self, message: str, *, path: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(
            f"{path}: {message}" if path else message,
            not_done="nothing was launched",
            hint=hint,
            code=code,
        )
        self.path = path


def check_placeholders(document: Mapping[str, object], path: str) -> None:
    """Refuse `${NAME}` and `{{` anywhere outside the task's own scripts. Raises RenderError."""
    found = sorted(
        f"`{match.group()}` in `{where}`"
        for key, value in document.items()
        if key not in SCRIPTS
        for where, text in _texts(value, str(key))
        for match in [_PLACEHOLDER.search(text)]
        if match is not None
    )
    if found:
        raise RenderError(
            f"unresolved placeholder: {', '.join(found)}",
            path=path,
            hint="variables are not expanded there; use a `{{config.…}}` token, or write the value",
            code="PLACEHOLDER",
        )


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    open_values = [(value, where)]
    while open_values:
        value, where = open_values.pop()
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                yield where, str(key)
                open_values.append((inner, f"{where}.{key}"))
        elif isinstance(value, list | tuple):
            open_values += [(inner, f"{where}[{n}]") for n, inner in enumerate(value)]
