"""Facts to try a journal with: one of each kind, and as many small ones as are wanted."""

from collections.abc import Iterable
from typing import Any

from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import exclusive, shared
from laneway.effects import Effect
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    CompensationEnded,
    CompensationStarted,
    Driver,
    Edit,
    Fact,
    Grant,
    GrantRevoked,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    Row,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    Setting,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.outcomes import Code, Failure, Happened, StopReason, Success
from laneway.states import State

WALL = 1_700_000_000.123_456_7
MONO = 0.1 + 0.2
"""No decimal fraction: it comes back right only if it comes back to the last bit."""

AWKWARD: dict[str, Any] = {
    "text": 'NUL \0, quote ", é, 漢, 😀, line\u2028separator',
    "numbers": [0, -1, 2**53 + 1, 10**30, -(10**40), 0.1, 1e308, 5e-324, -0.0],
    "others": [None, True, False, [], {}, "", {"": [{"a": [1]}]}],
}
"""Values that a careless codec changes."""


def every_kind_of_fact() -> list[Fact]:
    """Give one fact of each kind, in no order that an engine would write."""
    first, second = CallId("t1.1"), CallId("t1.2")
    question = ApprovalId("t1.1#1")
    driver = Driver(host="h", boot="b", pid=7, started="123", namespace="pid:[1]")
    failure = Failure(
        code=Code.TIMEOUT,
        message="It took 20 s and was stopped.",
        retry=True,
        happened=Happened.UNKNOWN,
        hint="Ask for less.",
        cause=first,
    )
    calls = (
        CallRecord(
            id=first,
            provider_id="toolu_01",
            tool="edit_file",
            arguments=AWKWARD,
            effect=Effect.WRITE,
            idempotent=True,
            tool_version="9f3c",
            claims=(exclusive("file:/w/a.py"), shared("run:a")),
        ),
        CallRecord(id=second, provider_id="", tool="bad", text='{"path": "a.p'),
    )
    return [
        RunOpened(run=RunId("a"), driver=driver, mode="plan", resume_with="m:f", settings=AWKWARD),
        RunTaken(
            driver=driver,
            setting=Setting(tools={"edit_file": "9f3c"}, policy="77aa", lanes={"lane:mail": 2}),
            changes=("tool edit_file has another version",),
        ),
        RunForked(source=RunId("b"), seq=12),
        LossAccepted(lost=3, by="ann"),
        HostNoted(note=AWKWARD),
        ModeChanged(mode="plan", by="ann"),
        RunStopped(
            reason=StopReason.BUDGET_EXCEEDED,
            detail="800 of 800 tokens",
            code=Code.BUDGET_EXCEEDED,
            reserved_turns=1,
        ),
        RunReopened(through="resume", by="ann"),
        LaneChanged(lane="lane:mail", change="resized", value=4),
        MessageSaid(message={"role": "user", "content": "go on"}),
        TurnSubmitted(
            turn=1,
            provider="anthropic-messages",
            message=AWKWARD,
            calls=calls,
            edges=(Edge(first, second, Reason.CONFLICT, "file:/w/a.py"),),
            key="msg_01",
        ),
        ApprovalAsked(
            call=first,
            approval=question,
            digest="00ff",
            arguments=AWKWARD,
            rule="ask.deploy",
            expires_wall=WALL + 3600,
        ),
        ApprovalAnswered(call=first, approval=question, granted=True, by="ann", reason="tested"),
        ApprovalAnswered(
            call=first,
            approval=question,
            granted=True,
            edit=Edit(
                arguments=AWKWARD,
                digest="11ee",
                claims=(exclusive("file:/w/b.py"),),
                effect=Effect.WRITE,
                idempotent=True,
                approvers=2,
            ),
            edges=(Edge(first, second, Reason.CONFLICT, "file:/w/b.py"),),
            waits=True,
            grant=Grant(tool="edit_file", tool_version="9f3c", pattern={"path": "src/*"}),
            sent=3,
        ),
        GrantRevoked(grant=question, by="bob", reason="no longer"),
        CallJoined(call=second, leader="r/t1.1"),
        CallQueued(call=first, rule="allow.all", claims=(exclusive("file:/w/a.py"),)),
        CallStarted(call=first, attempt=1, token=42),
        ChildEntered(call=first, run=RunId("a/t1.1/1")),
        LevelEntered(run=RunId("a/t1.1/1"), agent="researcher"),
        ProcessStarted(call=first, group=4242, started="998877"),
        AttemptEnded(call=first, attempt=1, cause="503", delay_seconds=0.8),
        CallEnded(call=first, state=State.SUCCEEDED, outcome=Success(value=AWKWARD)),
        CallEnded(call=second, state=State.TIMED_OUT, outcome=failure, stopped=False),
        HolderStopped(call=second, late="None"),
        CallProbed(call=second, found="unknown", detail="503"),
        CallReopened(call=second, by="ann"),
        BudgetReserved(budget="tokens", amount=800.0, reservation="t1.1", call=first),
        BudgetSettled(reservation="t1.1", amount=312.5),
        BudgetNeared(budget="tokens", percent=80, used=810.0, limit=1000.0),
        TaskStarted(task="build", call=first, run=RunId("a/build")),
        TaskEnded(task="build", outcome=Success(value=AWKWARD)),
        CallSettled(call=second, outcome=Success(value=None), by="ann"),
        TurnClosed(turn=1),
        RunAbandoned(by="ann", reason="the customer left"),
        CompensationStarted(call=first),
        CompensationEnded(call=first, outcome=Success(value=AWKWARD)),
    ]


def numbered(run: RunId, facts: Iterable[Fact], *, after: int = 0) -> list[Row]:
    """Put facts in their places, behind so many earlier ones."""
    return [
        Row(run, seq, WALL + seq, MONO + seq / 7, fact) for seq, fact in enumerate(facts, after + 1)
    ]


def notes(run: RunId, count: int, *, after: int = 0) -> list[Row]:
    """Give so many small facts of a run, each different, behind so many earlier ones."""
    return numbered(
        run, (MessageSaid(message=f"{run} {n}") for n in range(after, after + count)), after=after
    )
