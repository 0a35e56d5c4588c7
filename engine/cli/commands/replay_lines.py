"""Facts and moments of a run as lines for people.

Reads what `replay_shown` holds; feeds `replay`.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from laneway.engine.cli.commands.replay_shown import (
    ShownFact,
    ShownLaneThen,
    ShownMoment,
    ShownStanding,
    ShownTurnThen,
    local_time,
)
from laneway.engine.cli.shown import ShownWait
from laneway.engine.cli.tree import shortened
from laneway.engine.cli.wording import MARKS, brief, call_text, outcome_text
from laneway.journal.lease import describe
from laneway.states import State


def fact_line(fact: ShownFact, first_wall: float) -> str:
    """Tell of a fact: when it was, what it says, and the states it led to.

    Args:
        fact: to tell of.
        first_wall: Unix seconds of the run's first fact, whose day is not repeated.
    """
    when = local_time(fact.wall)
    day, _, clock = when.partition(" ")
    stamp = clock if clock and day == local_time(first_wall).partition(" ")[0] else when
    sign, what = fact.text[0], fact.text[2:]
    return f"{sign} {fact.seq:>5}  {stamp}  +{fact.elapsed_seconds:.3f} s  {what}{_led_to(fact)}"


def moment_lines(moment: ShownMoment, folder: str = "") -> Iterator[str]:
    """Tell how a run stood.

    Args:
        moment: after which fact.
        folder: left out of the names of resources.
    """
    driver = "nobody" if moment.driver is None else describe(moment.driver)
    fact = moment.fact
    yield f"run {moment.run}  after fact {moment.seq} of {moment.facts}  {_when(fact)}"
    yield f"driven by {driver}, mode {moment.mode}"
    yield f"{fact.text.strip()}{_led_to(fact)}"
    for turn in moment.turns:
        yield f"turn {turn.turn}{'' if turn.closed else '  OPEN'}"
        yield from _turn_lines(turn, folder)
    if moment.lanes:
        yield "lanes"
        yield from (f"  {_lane_text(lane, folder)}" for lane in moment.lanes)
    for question in moment.approvals:
        why = ": ".join(filter(None, (question.rule, question.reason)))
        until = local_time(question.expires_wall)
        yield f"? {question.approval} waits for a human until {until} ({why})"
    for name, budget in moment.budgets.items():
        yield f"budget {name}: {budget.settled:g} taken, {budget.reserved:g} set aside"
    for task, state in moment.tasks.items():
        yield f"background task {task}: {state}"
    if moment.damage:
        yield f"! damaged: {moment.damage}"


def _when(fact: ShownFact) -> str:
    zone = f"{datetime.now().astimezone():%z}"
    return f"{local_time(fact.wall)} {zone}  +{fact.elapsed_seconds:.3f} s"


def _led_to(fact: ShownFact) -> str:
    counted = Counter(move.after for move in fact.moves)
    if len(fact.moves) == 1 and len(fact.calls) == 1:
        return f"  → {fact.moves[0].after}"
    told = ", ".join(f"{count} {state}" for state, count in counted.items())
    return f"  → {told}" if told else ""


def _turn_lines(turn: ShownTurnThen, folder: str) -> Iterator[str]:
    for call in turn.calls:
        about = f"{call.call} {call_text(call.tool, call.arguments)}"
        since = f"since +{call.since_seconds:.3f} s"
        yield f"  {MARKS[call.state]} {about}  {call.state}  {since}{_more(call, folder)}"


def _more(call: ShownStanding, folder: str) -> str:
    if call.stuck:
        return "  its body has not stopped"
    if call.outcome is not None and call.state is not State.UNCERTAIN:
        return f"  {outcome_text(call.outcome)}"
    told = [f"attempt {call.attempt}"] if call.attempt else []
    told += [f"waits for {_wait_text(wait, folder)}" for wait in call.waits_for]
    if call.state is State.QUEUED and not call.waits_for:
        told.append("starts next, or waits for what this run does not tell")
    return f"  {', '.join(told)}" if told else ""


def _wait_text(wait: ShownWait, folder: str) -> str:
    detail = shortened(wait.detail, folder)
    if not wait.call:
        return f"{wait.reason} {detail}".rstrip()
    return f"{wait.call} ({wait.reason}{f' {brief(detail)}' if detail else ''})"


def _lane_text(lane: ShownLaneThen, folder: str) -> str:
    held = f"held by {', '.join(lane.holders)}" if lane.holders else "free"
    waiting = f"; waited for by {', '.join(lane.waiters)}" if lane.waiters else ""
    return f"{shortened(lane.resource, folder)}  {held}{waiting}"
