"""What a caller did wrong, or what broke under the engine. A tool's failure is never one of these.

LanewayError
├── PayloadError            a provider's answer that cannot be read
│   ├── ProviderRefusedError    the provider answered with an error of its own
│   └── BrokenStreamError       a streamed answer that never ended
│   └── ProviderRefusedError    the provider answered with an error of its own
├── HistoryError            a conversation's messages that cannot be read
├── PlanError               a plan with faults, each named
├── ToolError               a tool that cannot be registered
├── PolicyError             a policy that cannot be read
├── UsageError              a call of the API that makes no sense now
│   ├── EngineBusyError         the engine already serves another event loop
│   ├── EngineClosedError       the engine, or the run, has not been entered, or has been left
│   │   └── ShuttingDownError       the engine is being shut down
│   ├── OpenTurnError           the run has a turn that has not ended
│   ├── TurnNotReadyError       the turn has calls without outcome
│   ├── UnknownCallError        no such call in the run
│   ├── ChangedReplyError       another reply is recorded under this key
│   ├── UnknownApprovalError    no such question, or it has been answered
│   ├── BudgetExceededError     a budget has no room for a request to the model
│   ├── MissingShellError       the extra `shell` is missing (in laneway.lanes.shell.grammar)
│   └── MissingMCPError         the extra `mcp` is missing (in laneway.engine.mcp.missing)
├── JournalError            the journal cannot be used
│   ├── ForeignJournalError     the file is not a journal of Laneway
│   ├── NewerJournalError       the file was written by a newer Laneway
│   ├── DamagedJournalError     facts are missing or cannot be read
│   ├── UnknownRunError         no such run in the journal
│   ├── RunOwnedError           another process drives the run
│   └── EngineFaultError        the engine itself is wrong: please report it
├── ServerUnavailableError  an MCP server that cannot be connected (in laneway.engine.mcp.server)
├── BadResourceError        a resource that cannot be named (in laneway.lanes.names)
├── LaneError               the engine itself is wrong: please report it (in laneway.lanes.table)
└── IllegalTransitionError  the engine itself is wrong: please report it
"""

from collections.abc import Iterable, Sequence
from typing import Any

SHOWN = 8
"""Names that a message lists."""


class LanewayError(Exception):
    """Everything that Laneway raises."""


class PayloadError(LanewayError):
    """A provider's answer cannot be read."""

    def __init__(self, where: str, fault: str, way_out: str = "") -> None:
        """Name the place in the payload, what was met there, and what to do."""
        self.where = where
        self.fault = fault
        super().__init__(f"{where}: {fault}" + (f". {way_out}" if way_out else ""))


class ProviderRefusedError(PayloadError):
    """The provider answered with an error instead of a message: there is no turn to run."""

    def __init__(self, provider: str, kind: str, message: str) -> None:
        """Pass on what the provider said."""
        self.kind = kind
        super().__init__(
            provider,
            f"the provider answered with an error ({kind}): {message}",
            "There is no turn in it; mend or repeat the request, then submit the answer",
        )


class BrokenStreamError(PayloadError):
    """A streamed answer broke off before it had ended: there is no turn to run."""

    def __init__(self, provider: str, events: int) -> None:
        """Say how far it came."""
        self.events = events
        count = f"{events} event{'s' if events != 1 else ''}"
        super().__init__(
            provider or "stream",
            f"the stream broke off after {count}, before its message had ended",
            "Nothing of it counts, and what had been started early was cancelled; repeat the "
            "request",
        )


class HistoryError(LanewayError):
    """The messages of a conversation cannot be read, so nothing was done to them."""

    def __init__(self, where: str, fault: str, way_out: str = "") -> None:
        """Name the place in the history, what was met there, and what to do."""
        self.where = where
        super().__init__(
            f"{where}: {fault}" + (f". {way_out}" if way_out else "; the history was left as it is")
        )


class PlanError(LanewayError):
    """A plan has faults, and nothing of it was run."""

    def __init__(self, faults: Iterable[str]) -> None:
        """List every fault; each names its call."""
        self.faults = tuple(faults)
        count = len(self.faults)
        lines = "".join(f"\n  - {fault}" for fault in self.faults)
        super().__init__(
            f"the plan has {count} fault{'s' if count != 1 else ''}; nothing of it was run:{lines}"
        )


class ToolError(LanewayError):
    """A tool cannot be registered as it is declared."""

    def __init__(self, tool: str, fault: str) -> None:
        """Name the tool, and the fault with its way out."""
        self.tool = tool
        super().__init__(f"tool {tool!r}: {fault}")


class PolicyError(LanewayError):
    """A policy cannot be read."""

    def __init__(self, where: str, fault: str) -> None:
        """Name file, line and rule, and what was met there."""
        self.where = where
        super().__init__(f"{where}: {fault}")


class UsageError(LanewayError):
    """A call of the API makes no sense at this point."""


class EngineBusyError(UsageError):
    """The engine already serves another event loop; make a second Engine for this one."""

    def __init__(self) -> None:
        """Say who holds the engine."""
        super().__init__(
            "this Engine is in use in another event loop; leave that `async with` first, "
            "or make a second Engine on the same journal"
        )


class EngineClosedError(UsageError):
    """The engine, or the run, has not been entered, or has been left."""

    def __init__(self, run: str = "") -> None:
        """Show the way in; `run` names the run that is not open."""
        super().__init__(
            f"run {run!r} is not open; use it inside `async with engine.run({run!r}) as run:`"
            if run
            else "the Engine is not open; use it inside `async with engine:`"
        )


class ShuttingDownError(EngineClosedError):
    """The engine is being shut down: nothing new begins."""

    def __init__(self, run: str) -> None:
        """Name the run that waits for another engine."""
        UsageError.__init__(
            self,
            f"the engine is being shut down, so run {run!r} begins nothing more; what was written "
            "down goes on when a later engine takes the run up (`await run.finish()`)",
        )


class OpenTurnError(UsageError):
    """The run has a turn that has not ended."""

    def __init__(self, run: str, turn: int, open_calls: Sequence[str]) -> None:
        """Name the turn and what is open in it."""
        self.open_calls = tuple(open_calls)
        super().__init__(
            f"run {run!r} has an open turn {turn} ({_calls(open_calls)}); "
            "wait for it, or end it with `await run.finish()`, before the next turn"
        )


class TurnNotReadyError(UsageError):
    """The turn has calls without outcome, so there is nothing to show yet."""

    def __init__(self, turn: int, open_calls: Sequence[str]) -> None:
        """Name the open calls."""
        self.open_calls = tuple(open_calls)
        super().__init__(
            f"turn {turn} is not ready: {_calls(open_calls)}; "
            "`await turn.wait()`, answer its approvals, or end it with `await turn.close()`"
        )


class UnknownCallError(UsageError):
    """The run has no such call."""

    def __init__(self, run: str, call: str, that: str = "") -> None:
        """Name what was asked for, and what it should have been like."""
        super().__init__(f"run {run!r} has no call {call!r}" + (f" {that}" if that else ""))


class ChangedReplyError(UsageError):
    """A reply was submitted under the key of one that is recorded, and asks for something else."""

    def __init__(self, run: str, key: str, turn: int, difference: str) -> None:
        """Name the recorded turn and the first difference."""
        self.turn = turn
        super().__init__(
            f"key {key!r} names turn {turn} of run {run!r}, and this reply is another one: "
            f"{difference}; submit it under a key of its own, or `await run.finish()` for the "
            "recorded one"
        )


class UnknownApprovalError(UsageError):
    """No such question is open: it was never asked, has been answered, or its call has ended."""

    def __init__(
        self, run: str, name: str, open_approvals: Sequence[str], happened: str = ""
    ) -> None:
        """Name what was asked for, what is open, and what became of the question, if known."""
        found = ", ".join(open_approvals) or "none"
        told = f"; {happened}" if happened else ""
        super().__init__(f"run {run!r} has no open approval {name!r} (open: {found}){told}")


class BudgetExceededError(UsageError):
    """A budget has no room for a request to the model; nothing was set aside."""

    code = "BUDGET_EXCEEDED"

    def __init__(self, run: str, reason: str) -> None:
        """Name the budget, what stands against it, and the way out."""
        super().__init__(
            f"run {run!r} may not ask the model again: {reason}; end the conversation here "
            "(`run.budgets` tells what was used), or take the run up with a higher limit: "
            "`engine.run(name, budget=Budgets(…))`"
        )


class JournalError(LanewayError):
    """The journal cannot be used; no further effect is begun."""

    code = "JOURNAL_ERROR"


class ForeignJournalError(JournalError):
    """The file is not a journal of Laneway; it was not touched."""

    def __init__(self, path: str, found: str) -> None:
        """Say what was found in the file."""
        super().__init__(f"{path} is not a Laneway journal ({found}); it was left untouched")


class NewerJournalError(JournalError):
    """The file was written by a newer Laneway; it was not touched."""

    def __init__(self, path: str, found: int, known: int) -> None:
        """Name both versions."""
        super().__init__(
            f"{path} has journal format {found}, this Laneway knows formats up to {known}; "
            "it was left untouched: upgrade Laneway to open it"
        )


class DamagedJournalError(JournalError):
    """Facts are missing or cannot be read."""

    whole: Sequence[Any] = ()
    """The rows before the damage, as far as whoever met it has read them."""

    def __init__(self, run: str, seq: int, fault: str) -> None:
        """Name the place."""
        self.seq = seq
        super().__init__(
            f"run {run!r}, fact {seq}: {fault}; the run can be read up to there, but not go on "
            "before a human gives up the rest (`laneway verify RUN --accept-loss`)"
        )


class UnknownRunError(JournalError):
    """The journal has no such run."""

    def __init__(self, run: str, known: Sequence[str]) -> None:
        """Name runs that exist."""
        shown = ", ".join(known[:10]) or "none"
        super().__init__(f"the journal has no run {run!r} (runs: {shown})")


class RunOwnedError(JournalError):
    """Another process drives the run."""

    def __init__(self, run: str, owner: str, *, runs: Iterable[str] = ()) -> None:
        """Name the owner; `runs` lists all runs that a batch found lost, `run` among them."""
        self.owner = owner
        self.runs = frozenset(runs) | {run}
        super().__init__(f"run {run!r} is driven by {owner}; two processes never drive one run")


class EngineFaultError(JournalError):
    """The engine itself went wrong; the run can be resumed from its journal."""

    def __init__(self, run: str, cause: BaseException) -> None:
        """Name what was met."""
        super().__init__(
            f"run {run!r} was stopped by a fault of Laneway ({type(cause).__name__}: {cause}); "
            "please report it; the run can be resumed"
        )
        self.__cause__ = cause


class IllegalTransitionError(LanewayError):
    """The engine tried to move a call along an arrow that does not exist."""

    def __init__(self, current: str, target: str) -> None:
        """Name both ends."""
        super().__init__(f"no arrow leads from {current} to {target}; this is a bug in Laneway")


def _calls(names: Sequence[str]) -> str:
    if not names:
        return "no call is open, but it has not been closed"
    if len(names) == 1:
        return f"call {names[0]} is open"
    shown = ", ".join(names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"calls {shown}{more} are open"
