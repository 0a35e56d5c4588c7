"""The words of `laneway why`: what a code means, what a call waited for, where a run stands.

Reads the answers of the journal; gives lines for people. What is long is cut: `--json` has it all.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from laneway.engine.cli.wording import MARKS, brief, outcome_text, seconds_text
from laneway.journal.answered import Approval, CallAnswer, Dependency, Told, Wait
from laneway.outcomes import Code, Failure, Happened, succeeded
from laneway.states import State

MOST = 20
"""Lines of a list that are shown."""

NAMED = 4
"""Things that a call of a list waits for, by name."""
TELLING_SECONDS = 0.001
"""A shorter wait that has no reason of its own is left out."""

CODES = {
    Code.UNKNOWN_TOOL: "no tool has that name",
    Code.MALFORMED_ARGUMENTS: "its arguments could not be read",
    Code.INVALID_ARGUMENTS: "its arguments did not fit the tool",
    Code.TRUNCATED_CALL: "the model was cut off in the middle of it",
    Code.BAD_REFERENCE: "it referred to something that is not there",
    Code.DEPENDENCY_CYCLE: "it waited for itself, directly or through others",
    Code.DEPENDENCY_FAILED: "a call that it needed did not succeed",
    Code.POLICY_DENIED: "the policy denied it",
    Code.APPROVAL_REJECTED: "a human refused it",
    Code.APPROVAL_EXPIRED: "no human answered in time",
    Code.BUDGET_EXCEEDED: "a budget was used up",
    Code.DEPTH_EXCEEDED: "it lay too deep within other calls",
    Code.AGENT_CYCLE: "an agent would have called itself",
    Code.AGENT_LIMIT: "an agent was called too often",
    Code.LOOP_DETECTED: "it repeated what had been done before",
    Code.LANE_DEADLOCK: "it could only have waited for itself in a lane",
    Code.LANE_FULL: "as many waited in its lane as may",
    Code.TIMEOUT: "it took longer than it may",
    Code.CANCELLED: "it was told to stop",
    Code.TOOL_ERROR: "the tool failed",
    Code.RATE_LIMITED: "the other side limits how often it may be asked",
    Code.CONFLICT: "somebody else had changed what it works on",
    Code.PARTIAL_EFFECT: "only a part of it was done",
    Code.ALREADY_RUNNING: "the same was under way already",
    Code.UNAVAILABLE: "what it needs could not be reached",
    Code.RESULT_NOT_SERIALISABLE: "it succeeded, and its result could not be kept",
    Code.TRANSPORT_CLOSED: "the connection to the tool broke",
    Code.CIRCUIT_OPEN: "the tool had failed too often just before",
    Code.OUTCOME_UNKNOWN: "nobody saw its end",
    Code.JOURNAL_ERROR: "the journal could not be written",
    Code.STREAM_ABANDONED: "the message that asked for it broke off",
}
"""What each code means, as the second half of a sentence."""

WORLD = {
    Happened.NOTHING: "nothing happened",
    Happened.PARTLY: "a part of it happened",
    Happened.UNKNOWN: "nobody knows what happened",
    Happened.ALL: "it happened",
}


def call_lines(answer: CallAnswer) -> Iterator[str]:
    """Say why a call ran or did not, what it waited for, and what came of it."""
    named = f" ({answer.name})" if answer.name else ""
    yield f"{MARKS[answer.state]} {answer.call} {answer.tool}{named}: {answer.state}"
    within = f", part of {answer.parent}" if answer.parent else ""
    again = "may be repeated" if answer.idempotent else "at most once"
    yield f"  asked for in turn {answer.turn}{within}, with {_json(answer.arguments)}"
    yield f"  effect: {answer.effect}, {again}"
    yield f"  why: {_verdict(answer)}"
    for approval in answer.approvals:
        yield f"    {approval_line(approval)}"
    waits = [wait for wait in answer.waits if _worth_telling(wait)]
    yield "  waited:" if waits else "  waited: for nothing"
    for wait in waits:
        yield from (f"    {line}" for line in _wait_lines(wait))
    for one in answer.attempts:
        after = f"; another could follow: {brief(one.cause, 160)}" if one.cause else ""
        over = f"took {seconds_text(one.seconds)}" if one.ended else "goes on"
        yield f"  attempt {one.attempt}: {clock(one.began_wall)}, token {one.token}, {over}{after}"
    yield from _end_lines(answer)
    yield from _further_lines(answer)


def clock(wall: float) -> str:
    """Write a wall time for people, in their own zone."""
    try:
        return f"{datetime.fromtimestamp(wall).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a clock that was set to no year at all
        return f"{wall:.3f}"


def approval_line(one: Approval) -> str:
    """Say who was asked for what, and what they answered."""
    after = "" if one.waited_seconds is None else f" after {seconds_text(one.waited_seconds)}"
    because = f" ({one.reason})" if one.reason else ""
    asked = f"{one.approval}: {one.call} {one.tool} {_json(one.arguments)}{because}"
    if one.edited is not None:
        asked += f", changed to {_json(one.edited)}"
    if one.granted is None:
        so_far = f", granted by {', '.join(one.granted_by)}" if one.granted_by else ""
        return f"{asked}: not answered{so_far}{after}; expires {clock(one.expires_wall)}"
    word = "granted" if one.granted else "refused"
    names = " and ".join(name for name in one.granted_by if name) if one.granted else one.by
    by = f" by {names}" if names else ""
    said = f": {brief(one.said, 160)}" if one.said else ""
    return f"{asked}: {word}{by}{after}{said}"


def told_line(one: Told) -> str:
    """A call of a list, in a line."""
    code = f": {one.code}, {CODES[one.code]}" if one.code is not None else ""
    by = f"; found out by {one.by}" if one.by else ""
    stuck = "; its body has not stopped" if one.stuck else ""
    what = f"{one.call} {one.tool} {_json(one.arguments)}"
    waits = f"; waits for {', '.join(one.waits_for[:NAMED])}" if one.waits_for else ""
    waits += f" and {len(one.waits_for) - NAMED} more" if len(one.waits_for) > NAMED else ""
    return f"{MARKS[one.state]} {what}  {one.state}{code}{by}{stuck}{waits}"


def listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """A list under its title; nothing where there is nothing in it."""
    if not lines:
        return
    yield f"  {title} ({len(lines)}):"
    yield from (f"    {line}" for line in lines[:MOST])
    if len(lines) > MOST:
        yield f"    … and {len(lines) - MOST} more: --json has them all"


def dependency_text(one: Dependency) -> str:
    """Name what a call waited for, and over what."""
    about = f" over {one.detail}" if one.detail and one.reason == "conflict" else ""
    about = f" {one.detail}" if one.detail and not about else about
    last = ", the last of them to end" if one.last else ""
    return f"{one.call} {one.tool} ({one.reason}{about}), {one.state}{last}"


def _verdict(answer: CallAnswer) -> str:
    by = f"rule {answer.rule}" if answer.rule else "no rule that was written down"
    match answer.decision:
        case "ask":
            return f"{by} asked a human:"
        case "deny":
            return f"{by} denied it"
        case "allow":
            return f"{by} let it pass"
        case _:
            over = answer.outcome is not None
            return "it ended before it was judged" if over else "it has not been judged yet"


def _worth_telling(wait: Wait) -> bool:
    """Whether a wait took any time, or says something even so."""
    told = (
        wait.dependencies
        or wait.approval
        or wait.cause
        or wait.holders
        or wait.same_as
        or wait.lost
    )
    return bool(told) or wait.ended_wall is None or wait.seconds >= TELLING_SECONDS


def _wait_lines(wait: Wait) -> Iterator[str]:
    so_far = " so far" if wait.ended_wall is None else ""
    told = f"{wait.state} {seconds_text(wait.seconds)}{so_far}"
    lost = "; then its driver was lost" if wait.lost else ""
    yield f"{told}{_about(wait)}{lost}"
    yield from _some(f"  for {dependency_text(one)}" for one in wait.dependencies)
    for same in wait.same_as:
        yield f"  for {same}, which is the same call and under way"
    for lane in wait.paused:
        yield f"  {lane} was paused"
    yield from _some(
        f"  {one.call} {one.tool} {'holds' if one.holding else 'held'} {one.resource} "
        f"for {seconds_text(one.seconds)} of it"
        for one in wait.holders
    )


def _about(wait: Wait) -> str:
    if wait.approval is not None:
        return f": the answer to {wait.approval}"
    if wait.state is State.QUEUED:
        claims = ", ".join(claim for claim in wait.claims if not claim.startswith("shared run:"))
        return f": for {claims}" if claims else ": its lanes, none of which anybody can hold alone"
    if wait.cause:
        return f": {seconds_text(wait.delay_seconds)} after {brief(wait.cause, 160)}"
    return (
        ": somebody who knows what happened (laneway settle)"
        if wait.state is State.UNCERTAIN
        else ""
    )


def _some(lines: Iterable[str]) -> Iterator[str]:
    every = list(lines)
    yield from every[:MOST]
    if len(every) > MOST:
        yield f"  … and {len(every) - MOST} more: --json has them all"


def _end_lines(answer: CallAnswer) -> Iterator[str]:
    outcome = answer.outcome
    if outcome is None or answer.ended_wall is None:
        yield "  ended: not yet"
        return
    when = clock(answer.ended_wall)
    if not isinstance(outcome, Failure):
        yield f"  ended: {when}, {answer.state}: {outcome_text(outcome)}"
    else:
        yield f"  ended: {when}, {answer.state}: {outcome.code}, {CODES[outcome.code]}"
        yield f"    {brief(outcome.message, 400)}"
    for link in answer.chain:
        yield f"    because {link.call} {link.tool} was {link.state}: {CODES[link.code]}"
    if answer.happened is not None and answer.effect not in ("pure", "read"):
        yield f"  in the world: {WORLD[answer.happened]}"


def _further_lines(answer: CallAnswer) -> Iterator[str]:
    for found in answer.probes:
        yield f"  its tool's probe answered: {brief(found, 160)}"
    for by in answer.reopened_by:
        yield f"  {by or 'somebody'} found that it had done nothing, so that it ran again"
    if answer.settled is not None:
        word = "happened" if succeeded(answer.settled) else "did not succeed"
        by = f" by {answer.settled_by}" if answer.settled_by else ""
        yield f"  settled{by}: it {word}: {outcome_text(answer.settled)}"
    if answer.stuck:
        yield "  its body has not stopped, and holds its claims until it does"
    if answer.late:
        yield f"  a body that outlived it said, unused: {brief(answer.late, 160)}"
    for child in answer.children:
        yield f"  nested run: {child}"
    for group in answer.processes:
        yield f"  process group: {group}"


def _json(value: Any) -> str:
    return "no arguments that could be read" if value is None else brief(value, 100)
