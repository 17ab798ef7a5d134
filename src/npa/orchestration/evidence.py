"""Typed evidence -> class, in one table. Free text never changes a class.

Each row is one code that an engine, the runtime or a provider's structured answer can give. A code
that is not here is UNKNOWN, and UNKNOWN holds the run: it is never retried and never a success.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from npa.orchestration.engine import Evidence


class Klass(Enum):
    CONFIGURATION = "configuration"  # wrong whatever the machine does: fix it, then resume
    TRANSIENT = "transient"  # infrastructure: the recovery budget pays
    PAYLOAD = "payload"  # the user's program failed: the retry budget pays
    CAPACITY = "capacity"  # waits for room; neither a failure nor an end
    CANCELLED = "cancelled"  # somebody or something ended it on purpose
    UNKNOWN = "unknown"


_C, _T, _P = Klass.CONFIGURATION, Klass.TRANSIENT, Klass.PAYLOAD

TABLE: Mapping[str, Klass] = {
    # the program itself
    "PAYLOAD_EXIT_NONZERO": _P,
    "PAYLOAD_SIGNAL": _P,
    "OUT_OF_MEMORY": _P,
    "SETUP_FAILED": _P,
    "CONTAINER_CRASH": _P,
    "INIT_CONTAINER_FAILED": _P,
    "FAILED_RUNTIME": _P,
    "DECLARED_OUTPUT_MISSING": _P,
    "DECLARED_OUTPUT_INVALID": _P,
    "DEADLINE": _P,
    # asked for something that cannot be
    "COMMAND_NOT_FOUND": _C,
    "COMMAND_NOT_EXECUTABLE": _C,
    "IMPOSSIBLE_SHAPE": _C,
    "IMPOSSIBLE_GPU_SHAPE": _C,
    "ACCELERATOR_MISMATCH": _C,
    "IMAGE_PULL_AUTH": _C,
    "IMAGE_NOT_FOUND": _C,
    "IMAGE_PULL_FAILED": _C,
    "IMAGE_REFERENCE_INVALID": _C,
    "MISSING_SECRET": _C,
    "MISSING_CONFIGMAP": _C,
    "CREATE_CONTAINER_CONFIG_ERROR": _C,
    "MALFORMED_POD_CONFIG": _C,
    "INVALID_ARGUMENT": _C,
    "AUTHENTICATION": _C,
    "AUTHORIZATION": _C,
    "CHECKPOINT_INCOMPATIBLE": _C,
    "PRECHECKS_FAILED": _C,
    # what a task ended with before its command (npa.orchestration.skypilot.task_codes)
    "NODE_UNFIT": _C,
    "LICENCE_DECLINED": _C,
    "SOURCE_NOT_BROUGHT": _T,
    "CLAIM_UNKNOWN": _T,
    "CLAIMED_BY_ANOTHER": Klass.UNKNOWN,  # the other job of the attempt may run: it holds
    # the machine or the network under it
    "SHIM_LOST": _T,
    "HOST_REBOOTED": _T,
    "NO_SPACE": _T,
    "TOO_MANY_FILES": _T,
    "TOO_MANY_PROCESSES": _T,
    "LAUNCH_VERIFIED_ABSENT": _T,
    "PRE_PAYLOAD_TRANSPORT": _T,
    "NODE_NOT_READY": _T,
    "PREEMPTED": _T,
    "EVICTED": _T,
    "PROVIDER_INTERRUPTION": _T,
    "KUBERNETES_TRANSPORT": _T,
    "KUBERNETES_RATE_LIMIT": _T,
    "KUBERNETES_SERVER": _T,
    "SERVERLESS_TRANSPORT": _T,
    "SERVERLESS_CAPACITY": _T,
    "CONTROLLER_UNAVAILABLE": _T,
    "GANG_CAPACITY_UNAVAILABLE": _T,
    "CAPACITY_OR_QUOTA": _T,
    # ended on purpose
    "CANCELLED_BY_SIGNAL": Klass.CANCELLED,
    "CANCELLED_BY_PROVIDER": Klass.CANCELLED,
    "DECLARED_GONE": Klass.CANCELLED,
}


def klass_of(code: str) -> Klass:
    """The class of one code; UNKNOWN for a code that is not in the table."""
    return TABLE.get(code, Klass.UNKNOWN)


# When several facts are known of one job, the most binding one speaks for it.
_RANK = (
    Klass.CONFIGURATION,
    Klass.PAYLOAD,
    Klass.UNKNOWN,
    Klass.TRANSIENT,
    Klass.CANCELLED,
    Klass.CAPACITY,
)


def strongest(evidence: Iterable[Evidence]) -> tuple[Klass, Evidence | None]:
    """The class that speaks for a failure, with the fact that it rests on.

    An empty collection is UNKNOWN: a failure that nobody explains is not transient.
    """
    facts = list(evidence)
    for klass in _RANK:
        for fact in facts:
            if klass_of(fact.code) is klass:
                return klass, fact
    return Klass.UNKNOWN, None
