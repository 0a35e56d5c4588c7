"""Reads plans as LLMCompiler has models write them: numbered calls, `$1` for the result of call 1.

    1. search("height of the Tokyo Skytree")
    2. search("height of the CN Tower")
    3. math("which is higher?", ["$1", "$2"])
    4. join()<END_OF_PLAN>

Translates them into Laneway's own form, each call under its number as id; feeds the engine like any
plan. `join()` only says that the plan is over: the host goes on when the results are there. Source
of the notation: Kim et al., "An LLM Compiler for Parallel Function Calling", 2024.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.literals import UnreadableError, read_call_arguments
from laneway.engine.providers.notation import Notation, Referred, as_plan, rewritten
from laneway.engine.providers.payload import arguments_of, described, opened
from laneway.engine.providers.reply import Reply
from laneway.engine.telling import excerpt

JOIN = "join"

_REFERENCE = re.compile(r"(?<!\$)\$(?:\{([0-9]+)\}|([0-9]+))")
_ESCAPED = re.compile(r"\$\$(?=[0-9]|\{[0-9]+\})")
_LINE = re.compile(r"[^\n]*")
_NUMBER = re.compile(r"[ \t]*([0-9]+)[.)](?![0-9])[ \t]*")
_CALL = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*\(")
_REST = re.compile(r"[ \t\r]*(?:[#;<][^\n]*)?(?=\n|\Z)")


def read_llmcompiler_plan(
    plan: str | Sequence[Mapping[str, Any]],
    *,
    parameters: Mapping[str, Sequence[str]] | None = None,
) -> Reply:
    """Read a plan of numbered calls.

    `$1` or `${1}`, as a whole argument or inside a text, is the result of call 1, which may stand
    anywhere in the plan; `$$1` is the text `$1`. Lines that are no calls (`Thought: …`) are passed
    over, but a numbered line that is none, or a call without a number, is a fault.

    Args:
        plan: the text, or its calls as objects with a number (`idx` or `id`), `tool` (or `name`)
            and `args` (or `arguments`), a list or an object.
        parameters: of each tool, in order; arguments are written without names.

    Raises:
        PlanError: names every fault: calls that cannot be read, numbers given twice, references to
            numbers that no call has, arguments for which no parameter is known.
    """
    reader = _Reader()
    written = list(reader.lines(plan) if isinstance(plan, str) else reader.items(plan))
    if isinstance(plan, str) and not written and not reader.faults:
        reader.faults.append("no call was found; write one a line, 1. tool(arguments)")
    calls = reader.calls(written, parameters or {})
    return as_plan(calls, reader.faults)


class _Written:
    """A call as it was written."""

    __slots__ = ("by_name", "number", "positional", "tool")

    def __init__(
        self, number: str, tool: str, positional: list[Any], by_name: dict[str, Any]
    ) -> None:
        self.number = number.lstrip("0") or "0"
        self.tool = tool
        self.positional = positional
        self.by_name = by_name

    def __str__(self) -> str:
        return f"call {self.number} ({self.tool})"


class _Reader:
    """One pass over a plan, which gathers the faults."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._numbers: set[str] = set()

    # What is written

    def lines(self, text: str) -> Iterator[_Written]:
        """Read the calls of a text, line by line; one call may go over several."""
        at = 0
        while at < len(text):
            number = _NUMBER.match(text, at)
            call = _CALL.match(text, number.end() if number else at)
            if call and (number or call[1] != JOIN):
                where = f"call {number[1]} ({call[1]})" if number else f"{call[1]}(…)"
                try:
                    given = read_call_arguments(text, call.end())
                except UnreadableError as error:
                    self.faults.append(f"{where}: {error}")
                    at = error.at
                else:
                    at = given.end
                    if number:
                        yield _Written(number[1], call[1], given.positional, given.by_name)
                    else:
                        self.faults.append(f"{where}: a call needs a number, 1. {call[1]}(…)")
                    if not _REST.match(text, at):
                        rest = _line(text, at).strip()
                        self.faults.append(f"{where}: {excerpt(rest)} stands behind the call")
            elif number:
                rest = _line(text, number.end()).strip()
                self.faults.append(f"line {number[1]}.: expected tool(…), met {excerpt(rest)}")
            at += len(_line(text, at)) + 1

    def items(self, calls: Sequence[Mapping[str, Any]]) -> Iterator[_Written]:
        """Read calls that somebody has taken apart already."""
        for at, item in enumerate(calls):
            call = opened(item)
            if not is_object(call):
                self.faults.append(f"calls[{at}]: expected an object, not {described(call)}")
                continue
            number, tool = call.get("idx", call.get("id")), call.get("tool", call.get("name"))
            given = arguments_of(call.get("args", call.get("arguments")))
            if not re.fullmatch(r"[0-9]{1,9}", str(number)):
                self.faults.append(f"calls[{at}]: expected a number, not {described(number)}")
            elif not isinstance(tool, str):
                self.faults.append(f"calls[{at}]: expected a tool's name, not {described(tool)}")
            elif is_list(given) or given is None:
                yield _Written(str(number), tool, given or [], {})
            elif is_object(given):
                yield _Written(str(number), tool, [], given)
            else:
                self.faults.append(f"calls[{at}].args: expected a list, not {described(given)}")

    # What is meant

    def calls(
        self, written: list[_Written], parameters: Mapping[str, Sequence[str]]
    ) -> list[dict[str, Any]]:
        """Translate into Laneway's form."""
        if written and written[-1].tool == JOIN:
            written = written[:-1]
        self._numbers = {call.number for call in written}
        notation = Notation(pattern=_REFERENCE, read=self._read, literal=_unescaped)
        calls: list[dict[str, Any]] = []
        seen: set[str] = set()
        for call in written:
            if call.tool == JOIN:
                self.faults.append(f"{call}: calls follow, but {JOIN} ends a plan")
            if call.number in seen:
                self.faults.append(f"{call}: an earlier call has this number too")
            seen.add(call.number)
            named = self._named(call, parameters.get(call.tool, ()))
            arguments = rewritten(named, str(call), notation, self.faults)
            calls.append({"id": call.number, "tool": call.tool, "arguments": arguments})
        return calls

    def _named(self, call: _Written, parameters: Sequence[str]) -> dict[str, Any]:
        count = len(call.positional)
        if count > len(parameters):
            known = f"its parameters are {', '.join(parameters)}" if parameters else "none is known"
            self.faults.append(f"{call}: {count} arguments without a parameter's name, but {known}")
        named = dict(zip(parameters, call.positional, strict=False))
        if twice := named.keys() & call.by_name.keys():
            self.faults.append(f"{call}: {', '.join(sorted(twice))} is given twice")
        return {**named, **call.by_name}

    def _read(self, mention: re.Match[str], where: str) -> Referred | None:
        number = (mention[1] or mention[2]).lstrip("0") or "0"
        if number in self._numbers:
            return Referred(number)
        self.faults.append(
            f"{where}: no call has the number of {mention[0]}; if it is no reference, write "
            f"${mention[0]}"
        )
        return None


def _line(text: str, at: int) -> str:
    line = _LINE.match(text, at)
    assert line is not None, "it matches nothing, too"
    return line[0]


def _unescaped(literal: str) -> str:
    return _ESCAPED.sub("$", literal)
