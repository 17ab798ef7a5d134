"""What can go wrong, by the kind of call at which it happens."""

from __future__ import annotations

from enum import Enum


class Op(Enum):
    """Kinds of calls that leave a driver."""

    LIST = "list"  # journal
    READ = "read"  # journal
    CREATE = "create"  # journal
    HARDEN = "harden"  # journal, of a driver whose jobs end with its machine
    LOOK = "look"  # artifacts
    PREFLIGHT = "preflight"
    LAUNCH = "launch"
    OBSERVE = "observe"
    CANCEL = "cancel"
    WAIT = "wait"


# The process dies. After a reply is the same moment as before the next call of the same process.
KILLS = ("kill-before", "kill-after")
KILL_BETWEEN = "kill-between"  # the effect happened, the reply was not read

# A person acts while the driver is at this call.
PERSON = ("cancel", "ctrl-c", "cancel+ctrl-c", "stop")

SWITCH = "switch"  # the other driver goes on from here

TRANSPORT = (
    "lost-request",  # nothing arrived; the caller knows neither
    "lost-reply",  # it happened; the caller does not know
    "late",  # nothing for now; the request lands after the caller gave up
    "duplicate",  # a client retried by itself: two rows of one name, the reply is the first
    "duplicate-lost",  # the same, and the reply is lost
    "phantom",  # a row that stays PENDING and INACTIVE for ever; the reply is lost
    "phantom-said",  # the same, and the provider said that it launched
    "refused",  # no capacity: nothing was and will be launched
    "refused-config",
)
NATURES = (
    "invisible",  # the row appears some looks later
    "backoff",  # STARTING goes back to PENDING
    "slow-settle",  # the terminal word comes long before the schedule state DONE
    "word",  # an unknown status word for a while
    "word-forever",
    "cancel-words",  # CANCELLING, then CANCELLED, on the way to SUCCEEDED
    "controller",  # FAILED_CONTROLLER over SUCCEEDED, before DONE
    "exit",  # the payload fails; of a group the first member, then the others go on
    "exit-late",  # it fails after it wrote its outputs
    "bare",  # it succeeds and wrote nothing
    "some",  # it succeeds and wrote one output of two
    "preempted",
    "preempted-late",  # after all outputs were written
    "preempted-some",  # after some were
    "foreign",  # CANCELLED, and nobody of us asked
    "forever",  # RUNNING for ever
    "sick",  # a live job with typed transient evidence
    "misconfigured",  # a live job that can never start
    "never-settles",  # SUCCEEDED, and its clean-up has no end
    "mute",  # FAILED, and nothing says why
    "vanished",  # the row is gone from the queue after a while, payload and all
    "vanished-late",  # after it wrote its outputs
)

KINDS: dict[Op, tuple[str, ...]] = {
    Op.LIST: ("unavailable", "outage"),
    Op.READ: ("unavailable", "outage"),
    Op.CREATE: (
        KILL_BETWEEN,
        "lost-request",
        "lost-reply",
        "conflict",  # 409: try again
        "mine",  # 412, for a frame that is ours
        "burst",  # 503 for a while
        "burst-after",  # it happened, and then 503 for a while
        "full",
    ),
    Op.HARDEN: ("unavailable", "outage"),
    Op.LOOK: ("unavailable", "outage"),
    Op.PREFLIGHT: ("blocked",),
    Op.LAUNCH: (KILL_BETWEEN, *TRANSPORT, *NATURES),
    Op.OBSERVE: ("unavailable", "outage", "empty"),
    Op.CANCEL: (
        KILL_BETWEEN,
        "lost-request",
        "lost-reply",
        "ignored",  # accepted, and nothing happens
        "raced",  # the job succeeds before the cancel reaches it
        "raced-bare",  # so it does, without outputs
    ),
    Op.WAIT: ("clock-forward", "clock-back", "sleep"),  # sleep: the process stands still
}

# What must not change what a run comes to: it completes, and every payload runs once.
HARMLESS = frozenset(
    {
        *KILLS,
        KILL_BETWEEN,
        SWITCH,
        "stop",
        "unavailable",
        "outage",
        "empty",
        "lost-reply",
        "conflict",
        "mine",
        "burst",
        "burst-after",
        "full",
        "late",
        "invisible",
        "backoff",
        "slow-settle",
        "word",
        "cancel-words",
        "clock-forward",
        "clock-back",
        "sleep",
    }
)


# In pairs each effect is played once. Left out is what another kind or point does as well:
# a kill after a reply is one before the next call, a longer outage is a pair of short ones.
TWINS = frozenset(
    {
        *("kill-after", "ctrl-c", "cancel+ctrl-c", "outage", "conflict", "mine", "burst"),
        *("burst-after", "full", "backoff", "slow-settle", "cancel-words", "exit-late", "mute"),
        *("preempted-some", "duplicate-lost", "phantom-said", "raced-bare", "sleep"),
        *("word-forever", "never-settles", "misconfigured", "bare", "vanished-late"),
    }
)


def kinds_at(op: Op, *, person: bool = True, switch: bool = False) -> tuple[str, ...]:
    """Every fault that fits a call."""
    return (*KILLS, *(PERSON if person else ()), *KINDS[op], *((SWITCH,) if switch else ()))


DISTINCT = frozenset(kind for op in Op for kind in kinds_at(op)) - TWINS
