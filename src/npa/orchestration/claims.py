"""The payload fence from the driver's side: taking an attempt's claim before a job of it can.

The first thing that a launched task does is to create `npa-workflow/attempts/<key>/claim` if it is
absent. A driver that concludes that a launch never came takes the claim first: a job that comes
after all then finds a foreign claim and ends before its payload.
"""

from __future__ import annotations

import json
from typing import assert_never

from msgspec import Struct

from npa.observation import Found, Unavailable
from npa.orchestration.decide import Fence
from npa.storage import CreateOutcome, Storage

FOLDER = "npa-workflow/attempts/"


def key_of(key: str) -> str:
    return f"{FOLDER}{key}/claim"


class StoredClaims(Struct, frozen=True):
    """Claims as objects of the run's own store. `by` names who takes them (host and process)."""

    storage: Storage
    by: str

    def take(self, key: str) -> Fence:
        """SEALED when nobody had it (or a driver before us), TAKEN when a job has it.

        Raises StoreFull.
        """
        mine = json.dumps({"driver": self.by}, sort_keys=True).encode()
        answer = self.storage.create(key_of(key), mine, durable=True)
        match answer:
            case CreateOutcome.CREATED | CreateOutcome.MINE:
                return Fence.SEALED
            case CreateOutcome.OTHER:
                return self._holder(key)
            case Unavailable():
                return Fence.UNSEEN
            case _:
                assert_never(answer)

    def _holder(self, key: str) -> Fence:
        """An earlier driver's seal is as good as our own; anything else is a job's."""
        answer = self.storage.get(key_of(key))
        if not isinstance(answer, Found):
            return Fence.UNSEEN
        try:
            holder = json.loads(answer.value.data)
        except ValueError:
            return Fence.TAKEN
        return Fence.SEALED if isinstance(holder, dict) and "driver" in holder else Fence.TAKEN
