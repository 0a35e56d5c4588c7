"""What a human says to a question: found, checked, written down, and followed.

An answer binds what was shown. One that no longer counts is refused with what happened instead, and
nothing is written. Reads open questions and live calls; feeds the scheduler, for which everything
that follows is one step, led by the fact of the answer.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.calls import Edge
from laneway.engine.edits import conflicts, edited, put_in
from laneway.engine.failures import rejected
from laneway.engine.granting import approved_by, question_of
from laneway.engine.granting import standing as standing_grants
from laneway.engine.nesting import inside
from laneway.engine.plain import NotPlainError, plain, whole_text
from laneway.engine.questions import happened_to, open_questions, question_named
from laneway.engine.step import bound_digest
from laneway.errors import UnknownApprovalError, UsageError
from laneway.facts import ApprovalAnswered, Edit, Grant, GrantRevoked
from laneway.journal.fold import ApprovalView
from laneway.policies.approvals import Standing, standing
from laneway.policies.grants import Demands, grant
from laneway.policies.questions import Decision, denied
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.step import Step


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it was given."""

    granted: bool
    by: str = ""
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    """In place of those that were asked about."""
    scope: str = ""
    """`run`: for all later calls of the tool, too; empty for this call."""
    pattern: Mapping[str, Any] | None = None
    """For later calls whose arguments fit, too."""
    digest: str = ""
    """Of what was shown to whoever answers; empty for what is asked now."""
    sent: int = 0
    """Its number in the inbox."""
    wall: float | None = None
    """When it was given, in Unix seconds; None for now."""


def answer(top: "Scheduler", name: str, said: Said) -> "Scheduler":
    """Follow an answer to a question of a run, or of one within its calls.

    Args:
        top: of the run that the host drives.
        name: of the question, or of its call.
        said: the answer.

    Returns:
        The scheduler of the run that asked, to wait until the answer is kept.

    Raises:
        UnknownApprovalError: no such question is open; says what became of it, if it is known.
        UsageError: the answer does not count, or cannot be meant; nothing was written.
    """
    _see_that_meant(said)
    questions = open_questions(top)
    found = question_named(name, questions)
    call = None if found is None else _call_of(*found)
    if found is None or call is None:
        ids = [one.id for _, one in questions]
        view = top.log.view
        raise UnknownApprovalError(view.run, name, ids, happened_to(view, name))
    scheduler, shown = found
    if call.checked is None:  # Asked by an earlier driver, and not resumed yet.
        scheduler.complete(call)
    question = question_of(call)
    _see_that_counts(call, question, shown.id, said)
    if call.tool is None and (said.arguments is not None or said.scope or said.pattern is not None):
        raise UsageError(
            f"there is no tool {call.record.tool!r} any more, so {call.id} cannot run; deny it"
        )
    given = _grant_of(call, question, said)
    edit, real = None, None
    if said.arguments is not None:
        edit, real = edited(call, said.arguments)
    scheduler.answer(call, _fact(call, question, said, edit, given), real)
    return scheduler


def _see_that_meant(said: Said) -> None:
    given: Any = said.arguments
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"arguments={given!r} are none; give all of them by name")
    for word, text in (("by", said.by), ("reason", said.reason)):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{word}={text!r} is no text")


def _call_of(scheduler: "Scheduler", question: ApprovalView) -> "LiveCall | None":
    turn = scheduler.turn
    call = None if turn is None else turn.by_id(question.asked.call)
    return call if call is not None and call.state is State.AWAITING_APPROVAL else None


def _see_that_counts(call: "LiveCall", question: ApprovalView, name: str, said: Said) -> None:
    asked = msgspec.structs.replace(question.asked, digest=question.digest)
    clock = call.scheduler.services.clock
    fact = _said(call, question, said)
    wall = clock.wall() if said.wall is None else said.wall
    stands = standing(asked, fact, digest_now=bound_digest(call), wall=wall)
    if stands in (Standing.EXPIRED, Standing.STALE):
        raise UsageError(
            f"approval {name} is {stands}: it was asked for something that is over, or "
            f"for other arguments than {call.name} has now"
        )
    if said.digest and said.digest != question.digest:
        last = next((one.by for one in reversed(question.answers) if one.edit is not None), "")
        who = f" by {last}" if last else ""
        raise UsageError(
            f"approval {name} is about something else than was answered: it was changed{who} since "
            "it was shown; look at it again, then answer"
        )
    if not said.granted and (said.arguments is not None or said.scope or said.pattern is not None):
        raise UsageError("a refusal changes no arguments and grants nothing for later calls")
    if said.granted and question.needed > 1 and said.arguments is None:
        _see_somebody_else(question, name, said.by)
    elif said.granted and question.needed > 1 and not said.by:
        raise UsageError(_say_who(question, name))


def _see_somebody_else(question: ApprovalView, name: str, by: str) -> None:
    if not by:
        raise UsageError(_say_who(question, name))
    if any(one.by == by for one in question.counted):
        missing = question.needed - len(question.counted)
        raise UsageError(
            f"{by} has granted approval {name} already; it needs {missing} more, from somebody else"
        )


def _say_who(question: ApprovalView, name: str) -> str:
    return f"approval {name} needs {question.needed} different people: say who grants it (by=)"


def _grant_of(call: "LiveCall", question: ApprovalView, said: Said) -> Grant | None:
    """What is granted for later calls, if it may be.

    Raises:
        UsageError: it may not; or the pattern cannot be read, or does not fit this very call.
    """
    if not said.scope and said.pattern is None:
        return None
    if said.scope not in ("", "run") or (said.scope and said.pattern is not None):
        raise UsageError(
            f"for_={said.scope!r} is no scope; say for_='run', or pattern=…, or neither for this "
            "call alone"
        )
    if call.turn.within is not None:
        raise UsageError(
            f"{call.called} is a call within another, which is approved by itself: nothing can be "
            "granted for later calls with it"
        )
    if inside.get() is not None:
        raise UsageError("only a human grants later calls; this was said within a tool's body")
    if question.asked.each_time or question.needed > 1:
        why = "is asked about each time" if question.asked.each_time else "needs several people"
        raise UsageError(
            f"{call.record.tool} {why}, so nothing can be granted for later calls; approve this one"
        )
    assert call.tool is not None
    spec = call.tool.spec
    pattern = None
    if said.pattern is not None:
        try:
            pattern = plain(dict(said.pattern))
        except (NotPlainError, TypeError, ValueError) as error:
            raise UsageError(f"the pattern of the grant cannot be told in JSON ({error})") from None
    return grant(spec.name, spec.version, pattern)


def _fact(
    call: "LiveCall", question: ApprovalView, said: Said, edit: Edit | None, given: Grant | None
) -> ApprovalAnswered:
    return msgspec.structs.replace(_said(call, question, said), edit=edit, grant=given)


def _said(call: "LiveCall", question: ApprovalView, said: Said) -> ApprovalAnswered:
    return ApprovalAnswered(
        call=call.id,
        approval=question.asked.approval,
        granted=said.granted,
        by=whole_text(said.by),
        reason=whole_text(said.reason),
        sent=said.sent,
    )


def follow(
    step: "Step", call: "LiveCall", fact: ApprovalAnswered, real: dict[str, Any] | None = None
) -> None:
    """Do what follows from an answer; the fact goes first, with what was found out about it.

    Args:
        step: that takes it in.
        call: that waits for it.
        fact: the answer: as it was given, or as it was recorded.
        real: the changed arguments with their secrets.
    """
    deadlines = step.services.deadlines
    if not fact.granted:
        deadlines.forget(call)
        step.facts.append(fact)
        step.end(call, State.DENIED, rejected(fact.by, fact.reason))
        return
    verdict = step.judge(call) if call.checked is not None and fact.edit is None else None
    if fact.edit is not None:
        failure = put_in(call, fact.edit, real)
        if failure is not None:
            deadlines.forget(call)
            step.facts.append(fact)
            step.end(call, State.FAILED, failure)
            return
        verdict = step.judge(call)
        wanted = step.demands(call) if verdict.decision is Decision.ASK else Demands()
        asked = call.scheduler.log.view.approvals[fact.approval].asked
        people = max(asked.approvers, wanted.approvers)
        fact = msgspec.structs.replace(
            fact, edit=msgspec.structs.replace(fact.edit, approvers=people)
        )
    call.answers = (*call.answers, fact)
    if verdict is not None and verdict.decision is Decision.DENY:
        deadlines.forget(call)
        step.facts.append(fact)
        call.rule = verdict.rule
        step.end(call, State.DENIED, denied(verdict))
        return
    question = question_of(call)
    if len(question.counted) < question.needed:
        step.facts.append(fact)
        return
    deadlines.forget(call)
    edges = conflicts(call) if question.edit is not None else ()
    _let_pass(step, call, fact, edges, approved_by(question))


def _let_pass(
    step: "Step", call: "LiveCall", fact: ApprovalAnswered, edges: tuple[Edge, ...], rule: str
) -> None:
    """Enough people have granted it: it is queued, or comes after what its edit conflicts with."""
    held: list[LiveCall] = []
    for edge in edges:
        source, target = call.turn.by_id(edge.source), call.turn.by_id(edge.target)
        assert source is not None
        assert target is not None
        source.successors = [*source.successors, (target, edge.reason)]
        target.waits += 1
        if target.state is State.QUEUED:
            held.append(target)
    if edges:
        call.turn.sources = None  # Whoever needs them draws them anew.
    waits = call.waits > 0
    step.facts.append(msgspec.structs.replace(fact, edges=edges, waits=waits))
    for one in held:
        step.hold_back(one)
    if waits:
        call.rule = rule
        step.hold_back(call)
    else:
        step.queue(call, rule)


async def revoke(scheduler: "Scheduler", name: str, by: str, reason: str) -> None:
    """Let a grant hold no more; calls that it has let pass stay as they are.

    Raises:
        UsageError: the run has no such grant, or it was revoked before.
    """
    view = scheduler.log.view
    found = [one for one in standing_grants(view) if one.id == name]
    if not found:
        known = ", ".join(one.id for one in standing_grants(view)) or "none"
        before = next((one for one in view.grants.values() if one.id == name), None)
        told = ""
        if before is not None and before.revoked is not None:
            who = f" by {before.revoked.by}" if before.revoked.by else ""
            told = f"; it was revoked{who} before"
        raise UsageError(f"run {view.run!r} has no grant {name!r} (grants: {known}){told}")
    fact = GrantRevoked(grant=found[0].id, by=whole_text(by), reason=whole_text(reason))
    await scheduler.services.journal.keep(scheduler.log, [fact])
