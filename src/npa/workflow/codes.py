"""The codes of everything that can be wrong with a workflow file. Numbers are never reused.

`explain.py` holds a page for each. The severity stands here, so that no rule can disagree with it.
"""

from __future__ import annotations

from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


class Code(Enum):
    """One kind of problem; the value is its stable number."""

    # The text of the file
    UNREADABLE = "NPA001"
    BAD_YAML = "NPA002"
    SEVERAL_DOCUMENTS = "NPA003"
    DUPLICATE_KEY = "NPA004"
    TOO_BIG = "NPA005"
    BAD_ALIAS = "NPA006"
    BAD_TAG = "NPA007"
    BAD_YAML_KEY = "NPA008"
    LEADING_ZERO = "NPA009"
    # What may be written
    UNKNOWN_KEY = "NPA010"
    WRONG_TYPE = "NPA011"
    MISSING_KEY = "NPA012"
    NOT_A_CHOICE = "NPA013"
    OUT_OF_BOUNDS = "NPA014"
    TWO_SPELLINGS = "NPA015"
    BAD_VERSION = "NPA016"
    BAD_STATE_NAME = "NPA017"
    BAD_WORKFLOW_NAME = "NPA018"
    BAD_ENV_NAME = "NPA019"
    # References
    UNKNOWN_VAR = "NPA020"
    BAD_NUMBER = "NPA021"
    BAD_IF = "NPA022"
    UNKNOWN_STATE = "NPA023"
    UNKNOWN_PROFILE = "NPA024"
    UNKNOWN_TOOL = "NPA025"
    UNKNOWN_TOOL_PARAM = "NPA026"
    MISSING_TOOL_KEY = "NPA027"
    BAD_TOOL_VALUE = "NPA028"
    # Shapes
    TWO_SHAPES = "NPA030"
    SEVERAL_EXECUTABLES = "NPA031"
    DOES_NOTHING = "NPA032"
    EMPTY_RUN = "NPA033"
    FIELD_OUT_OF_PLACE = "NPA034"
    GROUP_IN_ITSELF = "NPA035"
    BAD_MEMBER = "NPA036"
    COUNT_MISMATCH = "NPA037"
    MEMBER_NEXT = "NPA038"
    MEMBER_TERMINAL = "NPA039"
    # Flow
    NO_TERMINAL = "NPA040"
    TERMINAL_UNREACHABLE = "NPA041"
    UNREACHABLE = "NPA042"
    DEAD_END = "NPA043"
    FLOW_CYCLE = "NPA044"
    DEAD_TRANSITION = "NPA045"
    IDLE_DECISION = "NPA046"
    NO_DECISION_WRITER = "NPA047"
    NEEDS_AGAINST_ORDER = "NPA048"
    NEEDS_CYCLE = "NPA049"
    MAY_NOT_MATCH = "NPA050"
    IDLE_FIELD = "NPA051"
    # Tokens
    BAD_TOKEN = "NPA060"  # noqa: S105
    UNKNOWN_SCOPE = "NPA061"
    UNKNOWN_TOKEN_KEY = "NPA062"  # noqa: S105
    UNKNOWN_TRANSFORM = "NPA063"
    CONFIG_CYCLE = "NPA064"
    NOT_YET_PRODUCED = "NPA065"
    SHELL_HAZARD = "NPA066"
    LOOP_NOT_RUN = "NPA067"
    # Resources
    BAD_RESOURCE = "NPA070"
    NOT_RANK_AWARE = "NPA071"
    GANG_CONTRACT = "NPA072"
    # Data
    SAME_OUTPUT = "NPA080"
    OUTPUT_REWRITTEN = "NPA081"
    INPUT_NOT_WRITTEN = "NPA082"
    PLACEHOLDER_BUCKET = "NPA083"
    SCRIPT_NOT_THERE = "NPA084"


WARNINGS = frozenset(
    {
        Code.LEADING_ZERO,
        Code.MEMBER_TERMINAL,
        Code.UNREACHABLE,
        Code.DEAD_TRANSITION,
        Code.IDLE_DECISION,
        Code.NO_DECISION_WRITER,
        Code.MAY_NOT_MATCH,
        Code.IDLE_FIELD,
        Code.SHELL_HAZARD,
        Code.OUTPUT_REWRITTEN,
        Code.INPUT_NOT_WRITTEN,
        Code.SCRIPT_NOT_THERE,
    }
)


def severity_of(code: Code) -> Severity:
    return Severity.WARNING if code in WARNINGS else Severity.ERROR
