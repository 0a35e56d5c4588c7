"""How a call ended, and why a run stopped: values, never exceptions."""

from enum import StrEnum
from typing import Any

import msgspec
from typing_extensions import TypeIs

from laneway.ids import CallId
from laneway.states import State


class Code(StrEnum):
    """Why a call did not succeed."""

    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    MALFORMED_ARGUMENTS = "MALFORMED_ARGUMENTS"
    INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
    TRUNCATED_CALL = "TRUNCATED_CALL"
    BAD_REFERENCE = "BAD_REFERENCE"
    DEPENDENCY_CYCLE = "DEPENDENCY_CYCLE"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"
    POLICY_DENIED = "POLICY_DENIED"
    APPROVAL_REJECTED = "APPROVAL_REJECTED"
    APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    DEPTH_EXCEEDED = "DEPTH_EXCEEDED"
    AGENT_CYCLE = "AGENT_CYCLE"
    AGENT_LIMIT = "AGENT_LIMIT"
    LOOP_DETECTED = "LOOP_DETECTED"
    LANE_DEADLOCK = "LANE_DEADLOCK"
    LANE_FULL = "LANE_FULL"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    TOOL_ERROR = "TOOL_ERROR"
    RATE_LIMITED = "RATE_LIMITED"
    CONFLICT = "CONFLICT"
    PARTIAL_EFFECT = "PARTIAL_EFFECT"
    ALREADY_RUNNING = "ALREADY_RUNNING"
    UNAVAILABLE = "UNAVAILABLE"
    RESULT_NOT_SERIALISABLE = "RESULT_NOT_SERIALISABLE"
    TRANSPORT_CLOSED = "TRANSPORT_CLOSED"
    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    JOURNAL_ERROR = "JOURNAL_ERROR"


class StopReason(StrEnum):
    """Why a run goes on no more by itself; `laneway.policies.stopping` says what each means."""

    COMPLETED = "COMPLETED"
    """The model has given its final answer, or the host has what it wanted."""
    NEEDS_USER_INPUT = "NEEDS_USER_INPUT"
    """Only a human can say how it goes on."""
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    """A limit was reached: turns, calls, tokens, cost, or the clock."""
    CANCELLED = "CANCELLED"
    """Somebody called it off."""
    FAILED = "FAILED"
    """It cannot go on: what it needs is broken."""


class StoppedBy(StrEnum):
    """Who had a call stopped before it had ended by itself."""

    USER = "user"
    """Somebody asked for it: `run.cancel`, `run.stop`, an operator, Ctrl-C in a body."""
    DEADLINE = "deadline"
    """One of the limits of time."""
    PARENT = "parent"
    """The call whose body had asked for it was stopped, or is over."""
    SIBLING = "sibling"
    """Another call of the turn failed whose tool says that the others are then of no use."""
    SHUTDOWN = "shutdown"
    """The engine was shut down."""
    HOST = "host"
    """The program left the run, or no longer waits for the turn."""
    FAULT = "fault"
    """The journal can keep nothing more, or the engine itself went wrong."""


class Happened(StrEnum):
    """What a failed call may have done to the world."""

    NOTHING = "nothing"
    PARTLY = "partly"
    UNKNOWN = "unknown"
    ALL = "all"


class Success(
    msgspec.Struct, frozen=True, kw_only=True, tag="success", tag_field="outcome", gc=False
):
    """The body returned, and its value could be stored."""

    value: Any
    """JSON: what dependents, the journal and the renderer see alike."""


class Failure(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="failure",
    tag_field="outcome",
    omit_defaults=True,
    gc=False,
):
    """The call did not succeed; says all that the model needs to go on."""

    code: Code
    message: str
    """For the model: what was met, in one or two sentences."""
    retry: bool = False
    """Whether asking for the same call again makes sense."""
    happened: Happened = Happened.NOTHING
    hint: str = ""
    """What to do instead."""
    cause: CallId | None = None
    """The call that this failure came from, for SKIPPED and for ordered faults."""
    done: tuple[str, ...] = ()
    """What a tool that did a part of its work has done."""
    left: tuple[str, ...] = ()
    """What it has not done."""


Outcome = Success | Failure


class Ended(msgspec.Struct, frozen=True):
    """An outcome with the state that goes with it."""

    state: State
    outcome: Outcome


def succeeded(outcome: Outcome | None, /) -> TypeIs[Success]:
    """Whether this is a success."""
    return type(outcome) is Success
