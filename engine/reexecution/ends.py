"""How a body comes to a recorded outcome: so that what follows from it is the engine's decision.

An outcome is no input: whether an exception leads to another attempt, to FAILED or to UNCERTAIN is
decided from effect, idempotence and the number of attempts. So an exception of the same kind is
raised, where one was.
"""

import errno
from typing import Any

import msgspec

from laneway.engine.failing import ToolFailed
from laneway.engine.live import LiveCall
from laneway.engine.reexecution.standing_in import Gate
from laneway.engine.secrets.marks import MARK, holds_mark
from laneway.outcomes import Code, Failure, Happened, Outcome, succeeded

AS_RECORDED = "as recorded"
VEIL = MARK.replace("not", "never")
"""Stands for a secret that was there then: met in a value, its mark tells that it was lost."""


def veiled(value: Any) -> Any:
    """A recorded value as one in which nothing is lost."""
    if not holds_mark(value):
        return value
    return msgspec.json.decode(msgspec.json.encode(value).replace(MARK.encode(), VEIL.encode()))


def unveiled(text: str) -> str:
    """A text about such values, as it is recorded."""
    return text.replace(VEIL, MARK)


def let_end(gate: Gate, outcome: Outcome, call: LiveCall) -> None:
    """Let a body come to an outcome, in such a way that what follows is the engine's decision."""
    if succeeded(outcome):
        gate.open(veiled(outcome.value))
        return
    tool = call.record.tool
    if outcome.code is Code.OUTCOME_UNKNOWN or (
        outcome.code is Code.TOOL_ERROR and outcome.message.startswith(f"{tool} raised ")
    ):
        gate.open(error=_raised(outcome))
    else:
        gate.open(
            error=ToolFailed(
                outcome.message.removeprefix(f"{tool}: "),
                happened=outcome.happened,
                retry=outcome.retry,
                hint=outcome.hint,
                code=outcome.code,
            )
        )


def _raised(outcome: Failure) -> Exception:
    """An exception of the kind that was met: one that may pass says so by asking for a repeat."""
    if outcome.code is not Code.OUTCOME_UNKNOWN and not outcome.retry:
        return RuntimeError(AS_RECORDED)
    if outcome.happened is Happened.NOTHING:
        return ConnectionRefusedError(errno.ECONNREFUSED, AS_RECORDED)
    return ConnectionError(AS_RECORDED)
