"""The seal: what may not change in a run, hashed once at genesis and recomputed by every driver.

Also the keys that follow from it: H(seal, subject, attempt, verb) is the idempotency key, the lock
name and the suffix of the job name in one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache

from msgspec import Struct
from msgspec.structs import asdict

from npa.workflow.step import Step

PLAN_VERSION = 1  # raised when the walk would name or order steps differently
NAME_RUN_MAX = 24
NAME_LABEL_MAX = 20
NAME_KEY_HEX = 10


def digest_of(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON of plain values, mappings, enums and dataclasses."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def _plainer(value: object) -> object:
    """One level nearer to JSON; the encoder asks again for what is inside."""
    if isinstance(value, Struct):
        return asdict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=False,
    allow_nan=False,
    default=_plainer,
)


def plain(value: object) -> object:
    """Dataclasses, mappings, tuples and enums as plain JSON values, all the way down."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return plain(_plainer(value))


def seal_of(parts: Mapping[str, object]) -> str:
    """The seal: one hash over its named parts."""
    return digest_of(parts)


def differences(sealed: Mapping[str, object], present: Mapping[str, object]) -> tuple[str, ...]:
    """Names of the parts that differ; a part that is missing on both sides differs too."""
    names = sorted(set(sealed) | set(present))
    return tuple(n for n in names if sealed.get(n) is None or sealed.get(n) != present.get(n))


def effect_key(seal: str, subject: str, attempt: int, verb: str) -> str:
    """H(seal, subject, attempt, verb) as 64 hex digits."""
    text = "\0".join((seal, subject, str(attempt), verb))
    return hashlib.sha256(text.encode()).hexdigest()


_UNSAFE = re.compile(r"[^a-z0-9]+")


def slug(text: str, length: int) -> str:
    """Lower-case letters, digits and single dashes; begins and ends with a letter or digit."""
    return _UNSAFE.sub("-", text.lower()).strip("-")[:length].strip("-")


def job_name(run_id: str, label: str, key: str) -> str:
    """`<run>-<label>-<key>`: unique by the key, valid for every provider, at most 56 characters."""
    parts = (slug(run_id, NAME_RUN_MAX) or "run", slug(label, NAME_LABEL_MAX) or "step")
    name = f"{parts[0]}-{parts[1]}-{key[:NAME_KEY_HEX]}"
    return name if name[0].isalpha() else f"r{name}"


class StepDigests:
    """Hash of what a step would run, cached by the identity of its config mapping.

    Two steps with the same digest run the same command on the same inputs with the same settings.
    """

    def __init__(self) -> None:
        self._configs: dict[int, tuple[object, str]] = {}

    def of(self, step: Step) -> str:
        return digest_of(
            (
                step.command,
                step.profile,
                step.inputs,
                step.outputs,
                step.env,
                step.secrets,
                step.item,
                step.checkpoint,
                self._config(step),
            )
        )

    def _config(self, step: Step) -> str:
        known = self._configs.get(id(step.config))
        if known is not None and known[0] is step.config:
            return known[1]
        digest = digest_of(step.config)
        self._configs[id(step.config)] = (step.config, digest)
        return digest
