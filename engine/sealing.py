"""The secrets of a run: what calls, results and facts look like to everybody but the bodies.

Made for a run whose host binds texts, or whose tools have secret fields; else there is none, and
nothing costs anything. Admission asks for arguments without secrets, the bodies for results
without them, and the journal hands each fact through `sealed` before it keeps it.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from laneway.calls import CallRecord, Referring
from laneway.engine.arguments import read_json
from laneway.engine.kinds import is_list, is_object
from laneway.engine.nesting import holder
from laneway.engine.planning import PlanTool
from laneway.engine.providers import format_named, parse
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.references import OPENING, is_reference
from laneway.engine.secrets.facts import sealed_fact
from laneway.engine.secrets.hints import opened
from laneway.engine.secrets.losses import (
    LOST_RESULT,
    unquoted,
    unread,
    without,
    written_marks,
)
from laneway.engine.secrets.marks import MARK, holds_mark
from laneway.engine.secrets.shapes import Keep, Shape, hidden, keep_nothing, secrets_in
from laneway.engine.secrets.vault import Vault
from laneway.engine.serialise import normalise
from laneway.errors import UsageError
from laneway.facts import CallEnded, Fact
from laneway.ids import RunId
from laneway.outcomes import Code, Failure, Outcome, Success

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.services import Services
    from laneway.engine.tools import Tool, Toolset

_UNREAD = frozenset({Code.MALFORMED_ARGUMENTS, Code.TRUNCATED_CALL})

LOST: dict[str, Any] = {}
"""In place of the secrets of a call that an earlier driver left: nobody has them any more."""


class Scope(Protocol):
    """What references in arguments can mean, as a turn or a plan knows it."""

    @property
    def names(self) -> Collection[str]:
        """Of calls."""
        ...

    @property
    def referring(self) -> Referring:
        """How they are read."""
        ...


def secrets_of(services: "Services", bound: Mapping[str, Any]) -> "Secrets | None":
    """The secrets of a run; those of the call that it is part of, if it is; None if it has none."""
    tools = services.tools
    above = holder(services)
    found = None if above is None else above.scheduler.secrets
    if found is None:
        found = Secrets(tools)
    found.vault.learn(bound[name] for name in tools.secret_bound if name in bound)
    return found if found.vault or tools.secretive or tools.reveals else None


def see_no_secret(run: str, settings: Any, bound: Mapping[str, Any], tools: "Toolset") -> None:
    """See that the settings of a run, which are written down, hold nothing that the host binds.

    Raises:
        UsageError: they do; names the parameter and the way out.
    """
    if settings is None:
        return
    for name in sorted(tools.secret_bound & bound.keys()):
        vault = Vault()
        vault.learn([bound[name]])
        if vault.scrubbed(settings) is not settings:
            raise UsageError(
                f"settings= of run {run!r} holds what is bound to {name!r}, and would be written "
                "down; leave it out, or declare it as no secret: "
                f"{name}: Annotated[…, Bound(secret=False)]"
            )


def without_secrets(answer: object, tools: "Toolset") -> Any:
    """An answer or a plan as it may be written down: marks stand for what fields hide.

    Args:
        answer: as for `Run.submit`; the same object comes back if nothing in it is a secret.
        tools: which say what is.

    Raises:
        PayloadError: it cannot be read.
    """
    reply = parse(answer)
    secrets = Secrets(tools)
    shown = {asked.id: secrets.shown(asked.name, asked.arguments) for asked in reply.calls}
    changed = {
        asked.id: shown[asked.id] for asked in reply.calls if shown[asked.id] is not asked.arguments
    }
    if not changed:
        return answer
    return format_named(reply.provider).with_arguments(reply.message, changed)


def outcome_of(call: "LiveCall", value: Any) -> Outcome:
    """What a body came to, as the outcome of its call: secrets stay in memory."""
    tool, secrets = call.tool, call.scheduler.secrets
    if secrets is not None and tool is not None and tool.secret_result is not None:
        return secrets.result(call, value)
    return normalise(value, tool=call.record.tool, effect=call.record.effect)


def differing(shown: Mapping[str, Any] | None, real: Mapping[str, Any]) -> frozenset[str]:
    """Name the arguments that are not shown as they are."""
    if shown is None or shown is real:
        return frozenset()
    return frozenset(name for name, value in real.items() if shown.get(name, MARK) is not value)


def marked(arguments: Mapping[str, Any]) -> list[str]:
    """Name the arguments that hold marks."""
    return [name for name, value in arguments.items() if holds_mark(value)]


class Secrets:
    """Of one run, and the runs within its calls."""

    def __init__(self, tools: "Toolset") -> None:
        """Know where secrets stand, and no secret yet."""
        self.vault = Vault()
        self._tools = tools
        self._results: dict[str, Any] = {}
        """What calls really came to where marks are told in place of it, by call: `run/t1.2`."""

    # Arguments

    def meet(self, reply: Reply, scope: Scope) -> Reply:
        """Learn all secrets in a reply, and give it with a message that has none in its calls.

        Args:
            reply: as its format has read it.
            scope: what references in it can mean.
        """
        for asked in reply.calls:
            self.vault.learn(_with_inner(self._values(asked, scope)))
        changed: dict[str, dict[str, Any]] = {}
        for asked in reply.calls:
            shown = self.shown(asked.name, asked.arguments, scope)
            if asked.arguments is None and asked.text and self._shape(asked.name) is not None:
                shown = {}
            if shown is not asked.arguments:
                changed[asked.id] = shown
        if not changed:
            return reply
        message = format_named(reply.provider).with_arguments(reply.message, changed)
        return msgspec.structs.replace(reply, message=message)

    def shown(self, tool: str, arguments: Any, scope: Scope | None = None) -> Any:
        """The arguments of a call without secrets; the same object if there are none in them."""
        if arguments is None:
            return None
        plan = self._tools.get(tool)
        if isinstance(plan, PlanTool):
            arguments = self._plan_shown(plan, arguments, scope)
        shape = self._shape(tool)
        if shape is not None:
            arguments = hidden(arguments, shape, _referring_to(scope))
        return self.vault.scrubbed(arguments)

    def _shape(self, tool: str) -> Shape | None:
        """Of a tool that there is not, whatever any tool hides is hidden."""
        found = self._tools.get(tool)
        return self._tools.secretive if found is None else found.secret_arguments

    def _values(self, asked: Asked, scope: Scope) -> list[Any]:
        """The secrets in a call as it was asked for, or in the calls of a plan."""
        tool = self._tools.get(asked.name)
        if isinstance(tool, PlanTool) and asked.arguments is not None:
            calls = tool.read(asked.arguments)
            if isinstance(calls, Failure):
                return []
            scope = _within(scope, calls)
            return [value for one in calls for value in self._values(one, scope)]
        shape = self._shape(asked.name)
        given: Any = asked.arguments
        if given is None:
            given = read_json(asked.text)
        if shape is None or isinstance(given, Failure):
            return []
        return list(secrets_in(given, shape, _referring_to(scope)))

    def _plan_shown(
        self, tool: PlanTool, arguments: dict[str, Any], scope: Scope | None
    ) -> dict[str, Any]:
        calls = tool.read(arguments)
        if isinstance(calls, Failure):
            return arguments if self._tools.secretive is None else {"calls": MARK}
        scope = _within(scope, calls)
        shown = [self.shown(one.name, one.arguments, scope) for one in calls]
        unread = [one.arguments is None and bool(one.text) for one in calls]
        if not any(unread) and all(
            one is was.arguments for one, was in zip(shown, calls, strict=True)
        ):
            return arguments
        written = [_written(one, args) for one, args in zip(calls, shown, strict=True)]
        return {"calls": written}

    def written(self, asked: Asked) -> Any:
        """Learn the secrets in arguments that a human wrote, and give them without."""
        self.vault.learn(_with_inner(self._values(asked, _Names(()))))
        return self.shown(asked.name, asked.arguments)

    def refused(self, asked: Asked) -> Failure | None:
        """Refuse a call whose arguments hold a mark, which a model has copied from what it read."""
        if isinstance(self._tools.get(asked.name), PlanTool) or not holds_mark(asked.arguments):
            return None
        return written_marks(asked.name, marked(asked.arguments or {}))

    def told(self, failure: Failure, asked: Asked, scope: Scope | None) -> Failure:
        """The failure of a call that will not run, without the secrets that it was asked with."""
        shape = self._shape(asked.name)
        if shape is not None and failure.code in _UNREAD:
            return unread(failure, asked.name)
        if isinstance(self._tools.get(asked.name), PlanTool) and self._tools.secretive is not None:
            failure = unquoted(failure)
        message = failure.message
        if shape is not None:
            given = secrets_in(asked.arguments, shape, _referring_to(scope))
            message = without(message, _with_inner(list(given)))
        return msgspec.structs.replace(
            failure, message=self.vault.scrub(message), hint=self.vault.scrub(failure.hint)
        )

    def text(self, asked: Asked) -> str:
        """What stood in place of arguments that could not be read."""
        if asked.text and self._shape(asked.name) is not None:
            return MARK
        return self.vault.scrub(asked.text)

    def settled(
        self,
        tool: str,
        arguments: dict[str, Any],
        resolved: Mapping[str, Any],
        shown: Mapping[str, Any] | Failure,
    ) -> dict[str, Any]:
        """Final arguments without secrets, those included that references have brought.

        Args:
            tool: its name.
            arguments: canonical, with the secrets.
            resolved: before the check, with the secrets.
            shown: the same, resolved to what is told of the results.
        """
        open_: dict[str, Any] = {}
        for name, value in arguments.items():
            told = MARK if isinstance(shown, Failure) else shown.get(name)
            given = resolved.get(name)
            if told == given:
                open_[name] = value
            else:
                open_[name] = told if value == given else MARK
        found = self.shown(tool, open_)
        same = all(found[name] is value for name, value in arguments.items())
        return arguments if same else found

    # Results

    def result(self, call: "LiveCall", value: Any) -> Outcome:
        """What a body came to, with marks in place of its secrets, which are kept in memory.

        Args:
            call: of a tool with secrets in its result.
            value: as the body returned it.
        """
        tool: Tool[..., Any] | None = call.tool
        assert tool is not None
        shape = tool.secret_result
        assert shape is not None
        try:
            value = opened(value)
        except Exception:  # noqa: BLE001 - the value's own code; `normalise` finds words for it
            return normalise(value, tool=call.record.tool, effect=call.record.effect)
        outcome = normalise(value, tool=call.record.tool, effect=call.record.effect)
        if isinstance(outcome, Failure):
            return outcome
        told = hidden(outcome.value, shape, keep_nothing)
        if told is outcome.value:
            return outcome
        self.vault.learn(secrets_in(outcome.value, shape, keep_nothing))
        self._results[call.called] = outcome.value
        return Success(value=told)

    def found(self, run: RunId, call: CallRecord, outcome: Outcome) -> Outcome:
        """What somebody says that a call came to, with marks in place of the secrets in it.

        Args:
            run: whose call it is.
            call: as it was asked for.
            outcome: as it was said.
        """
        tool = self._tools.get(call.tool)
        shape = None if tool is None else tool.secret_result
        if shape is None or isinstance(outcome, Failure):
            return outcome
        told = hidden(outcome.value, shape, keep_nothing)
        if told is outcome.value:
            return outcome
        self.vault.learn(secrets_in(outcome.value, shape, keep_nothing))
        self._results[f"{run}/{call.id}"] = outcome.value
        return Success(value=told)

    def gathered(self, call: "LiveCall", calls: Sequence["LiveCall"]) -> None:
        """Remember what the calls of a plan really came to, for whoever refers to the plan."""
        real: dict[str, Any] = {}
        for one in calls:
            if one.called in self._results and isinstance(one.outcome, Success):
                real[one.name] = {"value": self._results[one.called]}
        if real:
            self._results[call.called] = _Gathered(real)

    def value(self, call: str, told: Any) -> Any:
        """What a call really came to, as far as this process knows.

        Args:
            call: as `run/t1.2`.
            told: its value with marks.
        """
        real = self._results.get(call, told)
        if isinstance(real, _Gathered):
            results = {**told["results"], **real.results}
            return {**told, "results": {name: results[name] for name in told["results"]}}
        return deepcopy(real)

    def revealed(self, call: str, outcome: Outcome) -> Outcome:
        """The outcome of a call for the body that has made it."""
        if isinstance(outcome, Failure) or not holds_mark(outcome.value):
            return outcome
        value = self.value(call, outcome.value)
        return LOST_RESULT if holds_mark(value) else Success(value=value)

    # Facts

    def sealed(self, run: RunId, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Facts without any secret that is known by now."""
        if not self.vault:
            return facts
        return [self._sealed(run, fact) for fact in facts]

    def _sealed(self, run: RunId, fact: Fact) -> Fact:
        found = sealed_fact(fact, self.vault)
        if found is not fact and isinstance(fact, CallEnded) and isinstance(fact.outcome, Success):
            self._results.setdefault(f"{run}/{fact.call}", fact.outcome.value)
        return found


class _Gathered(msgspec.Struct):
    """What the calls of a plan really came to, by id, where that is a secret."""

    results: dict[str, Any]


def _referring_to(scope: Scope | None) -> Keep:
    if scope is None:
        return keep_nothing
    return lambda value: is_reference(value, scope.names, scope.referring)


def _within(scope: Scope | None, calls: Sequence[Asked]) -> "Scope":
    """What references in the calls of a plan can mean: one another, and more than that at most."""
    outer = () if scope is None else scope.names
    return _Names({*outer, *(one.id for one in calls)})


class _Names(msgspec.Struct):
    names: Collection[str]
    referring: Referring = Referring.STRICT


def _with_inner(values: Sequence[Any]) -> list[Any]:
    """Besides texts, what they hold in JSON or as a reference."""
    found = list(values)
    for value in values:
        if isinstance(value, str):
            found += [mention[2].strip() for mention in OPENING.finditer(value)]
            inner = read_json(value) if value[:1] in _NESTED and value else None
            if is_object(inner) or is_list(inner):
                found.append(inner)
    return found


_NESTED = ("{", "[", '"')


def _written(call: Asked, arguments: Any) -> dict[str, Any]:
    written: dict[str, Any] = {"id": call.id, "tool": call.name, "arguments": arguments}
    if arguments is None:
        written["arguments"] = {}
    if call.needs:
        written["needs"] = list(call.needs)
    if call.after:
        written["after"] = list(call.after)
    return written
