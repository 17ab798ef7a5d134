"""Resource profiles: spellings of cores, memory, disk and accelerators, with units settled."""

from __future__ import annotations

import re
from collections.abc import Mapping

from npa.errors import UsageError
from npa.workflow.step import Profile

NODES_MAX = 32
ACCELERATORS_MAX = 1024
"""A node with more accelerators than this is a slip of the pen."""

_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*(\+?)")
_ACCELERATOR = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})(?:\s*:\s*(\S+))?")
# SkyPilot's plain number is GiB, and it reads GB as 1024-based too.
_GIB = {
    "": 1.0,
    **dict.fromkeys(("g", "gi", "gb", "gib"), 1.0),
    **dict.fromkeys(("m", "mi", "mb", "mib"), 1 / 1024),
    **dict.fromkeys(("t", "ti", "tb", "tib"), 1024.0),
}


class ProfileError(UsageError):
    """A resource profile is spelt in a way that means nothing. `key` names the field."""

    code = "RESOURCE_PROFILE"

    def __init__(self, key: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


def _absent(value: object) -> bool:
    return value is None or value == ""


def _amount(key: str, value: object, example: str) -> tuple[float, str, bool]:
    """(number, unit in lower case, "at least")."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ProfileError(key, f"`{key}` must be a number", hint=f"write `{example}`")
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise ProfileError(key, f"`{key}` cannot be {value!r}", hint=f"write `{example}`")
    number, unit, plus = match.groups()
    if float(number) <= 0:
        raise ProfileError(key, f"`{key}` must be more than 0", hint=f"write `{example}`")
    return float(number), unit.lower(), bool(plus)


def parse_cpus(value: object) -> tuple[float, bool]:
    """`4`, `0.5`, `4+` -> (cores, at least). Raises ProfileError."""
    number, unit, plus = _amount("cpus", value, "4+")
    if unit:
        raise ProfileError("cpus", f"`cpus` takes no unit, not '{unit}'", hint="write `4+`")
    return number, plus


def parse_size(key: str, value: object) -> tuple[float, bool]:
    """`16`, `16Gi`, `16GB`, `512Mi`, `1Ti`, `16+` -> (GiB, at least). Raises ProfileError."""
    number, unit, plus = _amount(key, value, "16Gi")
    if unit not in _GIB:
        raise ProfileError(
            key, f"`{key}` has the unknown unit '{unit}'", hint="units are Mi, Gi and Ti"
        )
    return number * _GIB[unit], plus


def _count(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProfileError(
            "accelerators",
            f"the accelerator count must be a whole number, not {value!r}",
            hint="write `H100:8`",
        )
    if not 1 <= value <= ACCELERATORS_MAX:
        raise ProfileError("accelerators", f"the accelerator count must be 1 or more, not {value}")
    return value


def parse_accelerators(value: object) -> tuple[str, int]:
    """`H100:8`, `H100`, `{H100: 8}` -> (name, count a node). Raises ProfileError."""
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise ProfileError(
                "accelerators", f"`accelerators` must name one kind, not {len(value)}"
            )
        (name, count) = next(iter(value.items()))
        return parse_accelerators(str(name))[0], _count(count)
    match = _ACCELERATOR.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ProfileError(
            "accelerators", f"`accelerators` cannot be {value!r}", hint="write `H100:8`"
        )
    name, count_text = match.groups()
    return name, 1 if count_text is None else _count(count_text)


def parse_num_nodes(value: object) -> int:
    """1 to 32, as a number or digits. Raises ProfileError."""
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,6}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProfileError("num_nodes", f"`num_nodes` must be a whole number, not {value!r}")
    if not 1 <= value <= NODES_MAX:
        raise ProfileError("num_nodes", f"`num_nodes` must be 1 to {NODES_MAX}, not {value}")
    return value


def parse_profile(name: str, resolved: Mapping[str, object]) -> Profile:
    """Settle a profile whose tokens are resolved. Raises ProfileError for the first bad field."""
    fields = {key: value for key, value in resolved.items() if not _absent(value)}
    cpus, cpus_plus = parse_cpus(fields["cpus"]) if "cpus" in fields else (0.0, False)
    memory, memory_plus = (
        parse_size("memory", fields["memory"]) if "memory" in fields else (0.0, False)
    )
    disk = fields.get("disk_size", fields.get("diskSize"))
    accelerator, count = (
        parse_accelerators(fields["accelerators"]) if "accelerators" in fields else ("", 0)
    )
    return Profile(
        name=name,
        cpus=cpus,
        cpus_at_least=cpus_plus,
        memory_gib=memory,
        memory_at_least=memory_plus,
        disk_gib=parse_size("disk_size", disk)[0] if disk is not None else 0.0,
        accelerator=accelerator,
        accelerator_count=count,
        num_nodes=parse_num_nodes(fields.get("num_nodes", fields.get("numNodes", 1))),
        cloud=_text("cloud", fields),
        image=_text("image", fields),
        raw=resolved,
    )


def profile_problems(name: str, resolved: Mapping[str, object]) -> list[ProfileError]:
    """Every bad field of a profile, not only the first."""
    problems = []
    left = dict(resolved)
    while True:
        try:
            parse_profile(name, left)
        except ProfileError as error:
            problems.append(error)
            other = {"disk_size": "diskSize", "num_nodes": "numNodes"}.get(error.key, "")
            left = {k: v for k, v in left.items() if k not in (error.key, other)}
        else:
            return problems


def _text(key: str, fields: Mapping[str, object]) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise ProfileError(key, f"`{key}` must be text, not {value!r}", hint="quote it")
    return value
