"""A fact as a line of words: what it says happened, with the sign of the state it led to.

Reads a fact and the run as it stood after it; feeds `replay`.
"""

from datetime import datetime

from laneway.claims import Claim
from laneway.engine.cli.tree import shortened
from laneway.engine.cli.wording import MARKS, brief, call_text, outcome_text, said_in
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
    Fact,
    GrantRevoked,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.journal.fold import CallView, RunView
from laneway.journal.lease import describe

OfCall = (
    ApprovalAsked
    | ApprovalAnswered
    | CallQueued
    | CallJoined
    | CallStarted
    | ChildEntered
    | ProcessStarted
    | AttemptEnded
    | CallEnded
    | HolderStopped
    | CallProbed
    | CallSettled
    | CallReopened
    | CompensationStarted
    | CompensationEnded
)

OfRun = (
    RunOpened
    | RunTaken
    | RunForked
    | LossAccepted
    | HostNoted
    | ModeChanged
    | RunStopped
    | RunReopened
    | LaneChanged
    | LevelEntered
    | MessageSaid
    | TurnSubmitted
    | TurnClosed
    | BudgetReserved
    | BudgetSettled
    | BudgetNeared
    | TaskStarted
    | TaskEnded
    | GrantRevoked
    | RunAbandoned
)


def fact_text(view: RunView, fact: Fact, folder: str = "") -> str:
    """Say in a line what a fact says.

    Args:
        view: of the run after it.
        fact: the fact.
        folder: left out of the names of resources.
    """
    if isinstance(fact, OfCall):
        call = view.calls[fact.call]
        about = call_text(call.record.tool, call.record.arguments)
        return f"{MARKS[call.state]} {call.id} {about}  {_of_call(call, fact, folder)}"
    return f"  {_of_run(fact)}"


def claims_text(claims: tuple[Claim, ...], folder: str) -> str:
    """Name what a call takes, but for what every call of a run holds of it."""
    told = [
        resource if resource.startswith("lane:") else f"{resource} {claim.access}"
        for claim in claims
        if not claim.resource.startswith(("run:", "lane:engine/"))
        for resource in (shortened(claim.resource, folder),)
    ]
    return ", ".join(told) or "no lane"


def _of_call(call: CallView, fact: OfCall, folder: str) -> str:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of fact
    match fact:
        case ApprovalAsked(approval=name, rule=rule, reason=reason, expires_wall=expires):
            until = datetime.fromtimestamp(min(expires, _LAST)).astimezone()
            return f"asks a human until {until:%H:%M:%S}: {name} ({_because(rule, reason)})"
        case ApprovalAnswered(granted=granted, by=by, reason=reason):
            changed = (
                "" if fact.edit is None else f", to run with {brief(fact.edit.arguments, 160)}"
            )
            more = "" if fact.grant is None else ", and later calls with it"
            return f"{'approved' if granted else 'refused'}{_by(by)}{_with(reason)}{changed}{more}"
        case CallQueued(rule=rule):
            held = claims_text(call.claims or call.record.claims, folder)
            return f"queued for {held} ({rule or 'no rule'})"
        case CallJoined(leader=leader):
            return f"waits for the same call {leader}"
        case CallStarted(attempt=attempt, token=token):
            held = claims_text(call.claims or call.record.claims, folder)
            return f"started, attempt {attempt}, holds {held} (token {token})"
        case ChildEntered(run=run):
            return f"entered run {run}"
        case ProcessStarted(group=group):
            return f"started process group {group}"
        case AttemptEnded(attempt=attempt, cause=cause, delay_seconds=delay):
            return f"attempt {attempt} ended: {brief(cause, 160)}; again in {delay:g} s"
        case CallEnded(outcome=outcome, stopped=stopped):
            stuck = "" if stopped else "; its body has not stopped"
            who = f" (stopped by {fact.stopped_by})" if fact.stopped_by else ""
            return f"ended{who}: {outcome_text(outcome)}{stuck}"
        case HolderStopped(late=late):
            return f"its body has stopped at last{_with(brief(late))}"
        case CallProbed(found=found, detail=detail):
            return f"its probe says: {found}{_with(detail)}"
        case CallSettled(outcome=outcome, by=by):
            return f"settled{_by(by)}: {outcome_text(outcome)}"
        case CompensationStarted():
            return "is being undone"
        case CompensationEnded(outcome=outcome):
            return f"undone: {outcome_text(outcome)}"
        case CallReopened(by=by):
            return f"did nothing, as was found out{_by(by)}: it runs again"


def _of_run(fact: OfRun) -> str:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of fact
    match fact:
        case RunOpened(run=run, driver=driver, mode=mode):
            return f"run {run} opened by {describe(driver)}, mode {mode}"
        case RunTaken(driver=driver, mode=mode, changes=changes):
            changed = "".join(f"; {change}" for change in changes)
            return f"taken up by {describe(driver)}, mode {mode}{changed}"
        case RunForked(source=source, seq=seq):
            return f"forked from run {source} at its fact {seq}"
        case LossAccepted(lost=lost, by=by):
            return f"{lost} damaged facts behind this were given up{_by(by)}"
        case HostNoted(note=note):
            return f"the host notes: {brief(note, 160)}"
        case ModeChanged(mode=mode, by=by):
            return f"mode {mode}{_by(by)}"
        case RunStopped(reason=reason, detail=detail, by=by):
            return f"the run stopped: {reason}{_by(by)}{_with(brief(detail, 160))}"
        case RunReopened(through=through, by=by):
            return f"the run goes on through {through}{_by(by)}"
        case RunAbandoned(by=by, reason=reason):
            return f"the run was given up, to be undone{_by(by)}{_with(brief(reason, 160))}"
        case GrantRevoked(grant=grant, by=by, reason=reason):
            return f"what was granted with {grant} is revoked{_by(by)}{_with(reason)}"
        case LaneChanged(lane=lane, change=change, value=value):
            return f"{lane} {change}{f' to {value}' if value else ''}"
        case LevelEntered(run=run, agent=agent):
            return f"run {run}{f' of agent {agent}' if agent else ''} begins in its tree"
        case MessageSaid(message=message):
            said = message if isinstance(message, str) else said_in(message) or message
            return f"the host says: {brief(said, 160)}"
        case TurnSubmitted(turn=turn, calls=calls, message=message):
            count = f"{len(calls) or 'no'} call{'' if len(calls) == 1 else 's'}"
            return f"turn {turn}, {count}{_with(brief(said_in(message), 160))}"
        case TurnClosed(turn=turn):
            return f"turn {turn} closed: its outcomes are final"
        case BudgetReserved(budget=budget, amount=amount, call=call):
            return f"budget {budget}: {amount:g} set aside{f' for {call}' if call else ''}"
        case BudgetSettled(reservation=name, amount=amount):
            return f"reservation {name}: {amount:g} taken"
        case BudgetNeared(budget=budget, percent=percent, used=used, limit=limit):
            return f"budget {budget}: {used:g} of {limit:g} used, {percent} % reached"
        case TaskStarted(task=task, run=run):
            return f"background task {task} begins in run {run}"
        case TaskEnded(task=task, outcome=outcome):
            return f"background task {task}: {outcome_text(outcome)}"


_LAST = 253_402_300_799.0
"""The last second that a calendar can tell."""


def _by(name: str) -> str:
    return f" by {name}" if name else ""


def _with(text: str) -> str:
    return f": {text}" if text else ""


def _because(rule: str, reason: str) -> str:
    return ": ".join(filter(None, (rule, reason)))
