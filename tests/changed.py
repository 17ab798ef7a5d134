"""A frozen value with some fields changed, whichever kind of record it is."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from msgspec import Struct, structs

T = TypeVar("T")


def replace(value: T, **changes: object) -> T:
    """What `copy.replace` is in newer Pythons."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]
