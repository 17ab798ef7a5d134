"""Why a launched job ended before its payload, as far as the run's store can tell.

SkyPilot keeps no exit code of a task. What a task leaves in the store before it ends is typed: the
attempt's claim names the job that holds it, and a note names the reserved code (`TaskCode`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from npa.observation import Found
from npa.orchestration.claims import FOLDER, key_of
from npa.orchestration.engine import Evidence
from npa.orchestration.skypilot.task_codes import TaskCode
from npa.storage import Storage

SOURCE = "claim"
CODES: Mapping[TaskCode, str] = {
    TaskCode.NODE: "NODE_UNFIT",
    TaskCode.LICENCE: "LICENCE_DECLINED",
    TaskCode.SOURCE: "SOURCE_NOT_BROUGHT",
    TaskCode.CLAIMED: "CLAIMED_BY_ANOTHER",
    TaskCode.CLAIM_UNKNOWN: "CLAIM_UNKNOWN",
}


class ClaimEvidence(Struct, frozen=True):
    """Implements the engine's `verdict_on`. `provider` is what the run's tasks claim with."""

    storage: Storage
    provider: str

    def __call__(self, key: str, native_id: str) -> Evidence | None:
        """The reason of the job `native_id` of the attempt `key`; None if nothing says one."""
        noted = self._noted(key, native_id)
        if noted is not None:
            return Evidence(CODES[noted], SOURCE, exit_code=noted.value)
        holder = self._read(key_of(key))
        if holder is None or not self._foreign(holder, native_id):
            return None
        code = TaskCode.CLAIMED
        return Evidence(CODES[code], SOURCE, exit_code=code.value, hint=f"held by {holder}")

    def _foreign(self, holder: Mapping[str, object], native_id: str) -> bool:
        """Does the claim name another job, or a driver that sealed the attempt?"""
        job = str(holder.get("job", ""))
        if "driver" in holder:
            return True
        return job.isdigit() and (job, holder.get("provider")) != (native_id, self.provider)

    def _noted(self, key: str, native_id: str) -> TaskCode | None:
        note = self._read(f"{FOLDER}{key}/ended-{native_id}")
        try:
            return TaskCode(int(str(note["code"]))) if note is not None else None
        except (KeyError, ValueError):
            return None

    def _read(self, key: str) -> dict[str, object] | None:
        answer = self.storage.get(key)
        if not isinstance(answer, Found):
            return None
        try:
            document = json.loads(answer.value.data)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None
