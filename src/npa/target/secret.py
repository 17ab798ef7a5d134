"""A secret that cannot be printed, compared, pickled or serialised by accident.

Sinks are explicit: `reveal()` is called only where a child environment, a 0600 file or an HTTP
header is written.
"""

from __future__ import annotations

from typing import Never, NoReturn


class Secret:
    """Holds one secret value. Every way to show it by accident shows `Secret(***)` or fails."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself; only for a sink."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("secrets are not compared")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Never:
        raise TypeError("secrets are not serialised")
