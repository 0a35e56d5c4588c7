"""Calls that a policy is asked about on the command line: written down, or asked for in a run.

Where tools are given, the engine itself says what a call of them takes and does, as it would before
it runs one. Reads tables, JSON and facts; feeds `laneway policy test` and `explain`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from laneway.calls import Referring
from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.engine.engine import Engine
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.references import resolve
from laneway.engine.tools import Tool, Toolset
from laneway.errors import PayloadError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.answers import why_call
from laneway.journal.fold import CallView, RunView
from laneway.journal.timeline import timeline
from laneway.lanes.names import BadResourceError, Names, is_lane
from laneway.outcomes import Failure, succeeded
from laneway.policies.lines import Lines
from laneway.policies.rules import Policy, Question, Verdict
from laneway.policies.tables import Table

CALL_KEYS: Final = Question.__struct_fields__
"""What may be said of a call."""

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Question)}
_ACCESSES = {"read": Access.SHARED, "write": Access.EXCLUSIVE}


def said_of_call(table: Table, names: Names) -> Mapping[str, Any]:
    """Read what a table says of a call, by the fields of a question.

    Raises:
        PolicyError: something in it cannot be meant; names the line.
    """
    if not table.text("tool"):
        table.refuse("tool is missing; name the tool that is called")
    said: dict[str, Any] = {"arguments": {}}
    for key in CALL_KEYS:
        if key not in table:
            continue
        match key:
            case "arguments":
                said[key] = table.table(key)
            case "effect":
                said[key] = table.choice(key, Effect)
            case "claims":
                said[key] = tuple(_claims(table, names))
            case "declared" | "asks":
                said[key] = table.flag(key)
            case _:
                several = isinstance(_DEFAULTS[key], tuple)
                said[key] = tuple(table.texts(key)) if several else table.text(key)
    return said


def call_in_json(text: str, names: Names) -> Mapping[str, Any]:
    """Read a call that was typed: an object with `tool`, `arguments` and whatever else is known.

    Raises:
        PayloadError: it is no JSON object.
        PolicyError: something in it cannot be meant.
    """
    table = Table(json_object("CALL", text), "CALL", Lines(""))
    table.check_keys(CALL_KEYS)
    return said_of_call(table, names)


def json_object(what: str, text: str) -> dict[str, Any]:
    """Read a JSON object that was typed.

    Raises:
        PayloadError: it is none.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadError(what, f"this is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise PayloadError(what, f"it must be a JSON object, not {text[:80]}")
    return cast("dict[str, Any]", found)


async def asked_by_engine(
    calls: Sequence[Mapping[str, Any]], tools: Sequence[Tool], workspace: Path
) -> Sequence[Question | Failure]:
    """Let an engine prepare calls, each as a turn of its own, up to the question to the policy.

    Args:
        calls: As `said_of_call` reads them.
        tools: Whose declarations say what the calls take and do.
        workspace: The folder that relative file names start from.

    Returns:
        The question for each, or why there would be none.
    """
    found: list[Question | Failure] = []
    overheard = _Overheard()
    async with Engine(tools, policy=overheard, workspace=workspace) as engine:
        for call in calls:
            overheard.asked.clear()
            asked = Asked(id="call", name=call["tool"], arguments=dict(call["arguments"]))
            reply = Reply(provider="plan", message={}, calls=(asked,), referring=Referring.LITERAL)
            preview = await engine.plan(reply, mode=call.get("mode", "build"))
            outcome = preview.calls[0].outcome
            found.append(outcome if isinstance(outcome, Failure) else overheard.asked[0])
    return found


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a run, as a policy would be asked about it."""

    question: Question
    rule: str
    """The rule that decided then; empty if it was never judged."""
    note: str = ""
    """What is not known of it any more."""


def recorded_call(
    run: str, rows: Sequence[Row], name: str, tools: Sequence[Tool], mode: str
) -> Recorded:
    """Find a call in the facts of its run.

    Args:
        run: its name.
        rows: its facts.
        name: `t1.2`, or the provider's id where only one call has it.
        tools: to know what in the arguments refers to nothing.
        mode: Empty for that of the run.

    Raises:
        UnknownCallError: the run has no such call, or several.
    """
    time = timeline(RunId(run), rows)
    answer = why_call(time, name)
    view = time.courses[answer.call].view
    tool = Toolset(tools).get(answer.tool)
    arguments, note = _final_arguments(time.view, view, tool)
    claims = view.record.claims if view.claims is None else view.claims
    alone = any(
        claim.resource == f"run:{run}" and claim.access is Access.EXCLUSIVE for claim in claims
    )
    question = Question(
        tool=answer.tool,
        arguments=arguments,
        effect=Effect(answer.effect),
        mode=mode or time.view.mode,
        claims=claims,
        declared=not alone,
        asks=answer.rule == "tool asks",
    )
    return Recorded(question=question, rule=answer.rule, note=note)


async def with_declarations(recorded: Recorded, tools: Sequence[Tool], workspace: Path) -> Recorded:
    """Add what the tools say of themselves, which is not recorded; if its tool is among them."""
    asked = recorded.question
    if asked.arguments is None or asked.tool not in Toolset(tools):
        return recorded
    call = {"tool": asked.tool, "arguments": asked.arguments, "mode": asked.mode}
    (now,) = await asked_by_engine([call], tools, workspace)
    if isinstance(now, Failure):
        return msgspec.structs.replace(
            recorded, note=f"with these tools it would be no call: {now.message}"
        )
    question = msgspec.structs.replace(now, effect=asked.effect, claims=asked.claims)
    return msgspec.structs.replace(recorded, question=question)


def _final_arguments(
    run: RunView, call: CallView, tool: Tool | None
) -> tuple[Mapping[str, Any] | None, str]:
    """Give the arguments as they were judged, as far as that can be told."""
    if call.approval is not None:
        return call.approval.asked.arguments, ""
    arguments = call.record.arguments
    if not isinstance(arguments, dict):
        return None, "its arguments could not be read, so nothing is known of them"
    named = {one.record.provider_id: one for one in run.calls.values() if one.turn <= call.turn}

    lost: list[str] = []

    def value(name: str) -> Any:
        outcome = named[name].outcome
        if succeeded(outcome):
            return outcome.value
        lost.append(name)
        return None

    referring = next(turn.referring for turn in run.turns if turn.number == call.turn)
    literal = tool.spec.literal if tool is not None else ()
    resolved = resolve(
        cast("dict[str, Any]", arguments), named, value, referring, literal=literal, marks=True
    )
    if lost:
        return None, f"its arguments refer to {lost[0]}, which did not succeed"
    if isinstance(resolved, Failure):
        return None, f"what its arguments refer to is not there: {resolved.message}"
    return resolved, ""


class _Overheard(Policy):
    """Keeps the questions that it is asked."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Question] = []

    def decide(self, question: Question, /) -> Verdict:
        self.asked.append(question)
        return super().decide(question)


def _claims(table: Table, names: Names) -> Iterator[Claim]:
    for text in table.texts("claims"):
        word, space, resource = text.partition(" ")
        if not space and is_lane(text):
            word, resource = "write", text
        if word not in _ACCESSES:
            table.refuse(
                f"claim {text!r}: write an access and a resource, such as 'write file:a.py', "
                "'read db:shop' or 'lane:mail'",
                "claims",
            )
        try:
            yield from (Claim(name, _ACCESSES[word]) for name in names.resources(resource))
        except BadResourceError as error:
            table.refuse(f"claim {text!r}: {error}", "claims")
