"""The plan tool: a model hands over several calls at once, and what each of them needs.

    Engine(tools=[search, send, plan_tool()])

    {"calls": [{"id": "a", "tool": "search", "arguments": {"q": "x"}},
               {"id": "b", "tool": "send", "arguments": {"to": "${a[0].mail}"}}]}

Admission takes such a call apart: the calls of the plan become calls of the turn, with ids below
the plan call's (`t3.2/1`), checked, judged, queued and recorded as any other. The plan call comes
after all of them and gathers what they came to. Reads arguments; feeds admission (`read`,
`refused`) and, when all have ended, the execution of the plan call (`gather`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from laneway.effects import Effect
from laneway.engine.checking import Checked
from laneway.engine.failing import ToolFailed
from laneway.engine.kinds import is_list
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.plan_definition import (
    DESCRIPTION,
    FAULT_BY_FAULT,
    MAX_CALLS,
    REFUSED_WHOLE,
    SCHEMA,
)
from laneway.engine.providers.plan import PlanForm
from laneway.engine.providers.reply import Asked
from laneway.engine.results import json_text
from laneway.engine.tool import Tool
from laneway.engine.unwrapping import unwrapped
from laneway.errors import PlanError
from laneway.outcomes import Code, Failure, Happened, Outcome, succeeded


def plan_tool(name: str = "plan", *, strict: bool = True) -> "PlanTool":
    """Make the tool by which a model submits a plan in one call.

    The model gets one result, `{"results": {id: …}}` in the order of the plan: for each call its
    `{"value": …}`, or its `{"error": {"code", "message", …}}`. A later call may refer to it:
    `${call_7.results.a.value.total}`.

    The calls of a plan know one another and the calls of earlier turns by their ids, not the other
    calls of their own turn. A policy judges each of them; what it says of the plan tool holds for
    all of them besides, so that a rule which asks for plans asks for each call.

    Args:
        name: for the model.
        strict: refuse a plan whole, every fault named, where any of its calls has one. False
            gives it the rule of a turn: faulty calls fail, what needs them is skipped, the rest
            runs.

    Raises:
        ToolError: no provider would take the name.
    """
    made = PlanTool.from_schema(
        _told,
        name=name,
        description=DESCRIPTION + (REFUSED_WHOLE if strict else FAULT_BY_FAULT),
        schema=SCHEMA,
        effect=Effect.PURE,
        claims=[],
        literal=["calls"],
        timeout=math.inf,
    )
    assert isinstance(made, PlanTool)
    made.whole = strict
    return made


class PlanTool(Tool[..., Any]):
    """Made by `plan_tool`."""

    whole = True
    """Whether a plan with a fault is refused as a whole."""

    def check(self, arguments: dict[str, Any], /) -> Checked:
        """Let everything pass: what is wrong with a plan is named by `read`, all of it at once."""
        return Checked(arguments, arguments, self._bindings)

    def read(self, arguments: Mapping[str, Any]) -> Sequence[Asked] | Failure:
        """Read a plan's calls as those of a host's own plan are read.

        Returns:
            The calls, or INVALID_ARGUMENTS where they cannot even be told apart.
        """
        if unknown := [field for field in arguments if field != "calls"]:
            return _unreadable([f"unknown field {', '.join(unknown)}; a plan has calls"])
        given = dict(arguments)
        if not is_list(given.get("calls")):
            given = unwrapped(given, self.spec.schema)
        calls = given.get("calls")
        if is_list(calls) and len(calls) > MAX_CALLS:
            return _too_long(len(calls))
        try:
            return PlanForm().parse({"calls": calls}).calls
        except PlanError as error:
            return _unreadable(error.faults)

    def gather(self, arguments: dict[str, Any], outcomes: Sequence[tuple[str, Outcome]]) -> Checked:
        """Prepare the entry into the body of a plan call whose calls have all ended.

        Args:
            arguments: of the plan call.
            outcomes: in the order of the plan, with the ids that the model gave.
        """
        told = json_text(_fitting({name: _entry(outcome) for name, outcome in outcomes}))
        return Checked(arguments, {"gathered": told}, self._bindings)


async def _told(**given: Any) -> dict[str, Any]:
    if given.get("calls"):
        raise ToolFailed(
            "a plan can only be submitted in a model's turn; here, start its calls one by one",
            happened=Happened.NOTHING,
        )
    return {"results": msgspec.json.decode(given.get("gathered", "{}"))}


def _entry(outcome: Outcome) -> dict[str, Any]:
    if succeeded(outcome):
        return {"value": outcome.value}
    error: dict[str, Any] = {"code": outcome.code.value, "message": outcome.message}
    if outcome.happened is not Happened.NOTHING:
        error["happened"] = outcome.happened.value
    if outcome.retry:
        error["retry"] = True
    if outcome.hint:
        error["hint"] = outcome.hint
    return {"error": error}


def _fitting(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out what would be too much, or too deep, for one result."""
    try:
        plain({"results": results})
    except NotPlainError:
        return {name: entry if _is_small(entry) else _LEFT_OUT for name, entry in results.items()}
    return results


def _is_small(entry: dict[str, Any]) -> bool:
    # So many characters hold at most half as many values: a full plan stays within all limits.
    if len(json_text(entry)) > _SMALL:
        return False
    try:
        plain({"results": {"": entry}})
    except NotPlainError:
        return False
    return True


_SMALL = 1_500
_LEFT_OUT = {
    "error": {
        "code": Code.RESULT_NOT_SERIALISABLE.value,
        "message": "This call did succeed, but its result does not fit into that of the plan.",
        "happened": Happened.ALL.value,
        "hint": "Do not call it again for the result, if it changes anything.",
    }
}


# Refusals


def refused(faults: Sequence[tuple[str, str, Failure]], calls: int) -> Failure:
    """Refuse a plan as a whole.

    Args:
        faults: id and tool of a call, and what is wrong with it; at least one.
        calls: how many the plan has.
    """
    told: dict[tuple[str, str], list[str]] = {}
    more: dict[str, list[str]] = {}
    for name, tool, failure in faults:
        fault = _cut(tool), _cut(failure.message)
        names = told.setdefault(fault, []) if fault in told or len(told) < _TOLD else None
        if names is None:
            names = more.setdefault(f"{failure.code}", [])
        names.append(_cut(name))
    lines = [f"- {', '.join(names)} ({tool}): {text}" for (tool, text), names in told.items()]
    lines += [f"- {', '.join(names)}: {code}, too" for code, names in more.items()]
    codes = {failure.code for _, _, failure in faults}
    return Failure(
        code=codes.pop() if len(codes) == 1 else Code.INVALID_ARGUMENTS,
        message="\n".join(
            [f"The plan was refused as a whole; none of its calls ran ({calls}). Faults:", *lines]
        ),
        hint="Mend all of these, and submit the whole plan again.",
    )


def _unreadable(faults: Sequence[str]) -> Failure:
    lines = [_cut(fault) for fault in faults[:_TOLD]]
    if len(faults) > _TOLD:
        lines.append(f"and {len(faults) - _TOLD:,} more")
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message="\n- ".join(
            ["The plan cannot be read, so none of its calls ran. Faults:", *lines],
        ),
        hint="Mend all of these, and submit the whole plan again.",
    )


_TOLD = 50
"""Faults of a plan that are told in words; of the others, which calls have them."""
_CUT = 500
"""Characters of what a model wrote, or of one fault, that are told: a refusal is to be read."""


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else text[:_CUT] + "…"


def _too_long(calls: int) -> Failure:
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message=f"A plan may have at most {MAX_CALLS:,} calls, and this one has {calls:,}; none of "
        "them ran.",
        hint="Split it into several plans, one after the other.",
    )


NESTED = Failure(
    code=Code.INVALID_ARGUMENTS,
    message="A plan cannot hold another plan.",
    hint="Write the calls of that plan into this one.",
)
