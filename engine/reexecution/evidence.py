"""What a recording tells of the tools, the policy and the options that one driver had.

Reads the rows of that driver and of those before it; feeds the tools and the policy that stand in
where the host gives none of its own.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from laneway.calls import CallRecord, Reason, Referring
from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.engine.failures import APPROVAL_STALE, WITHDRAWN
from laneway.engine.kinds import is_object
from laneway.engine.looping import RULE as LOOPS
from laneway.engine.planning import plan_tool
from laneway.engine.recovery import is_safe
from laneway.engine.reexecution.recording import Recording
from laneway.engine.reexecution.rules import verdict_of
from laneway.engine.references import find, unescaped
from laneway.engine.secrets.marks import holds_mark
from laneway.engine.serialise import canonical
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallProbed,
    CallQueued,
    CallStarted,
    Edit,
    Row,
    RunStopped,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId
from laneway.outcomes import Code, Failure, Happened
from laneway.policies.ledger import is_of_budget
from laneway.policies.questions import Decision, Verdict
from laneway.states import State

Key = tuple[str, bytes]
"""Tool and canonical arguments."""


class Evidence:
    """What is known of one driver's time."""

    def __init__(  # noqa: PLR0915 - one table a line
        self, earlier: Sequence[Row], own: Sequence[Row], recording: Recording
    ) -> None:
        """Read what there is.

        Args:
            earlier: the facts before the driver's own.
            own: the driver's, up to its end.
            recording: of which they are a part.
        """
        self._recording = recording
        self.records: dict[CallId, CallRecord] = {}
        self.by_tool: defaultdict[str, list[CallRecord]] = defaultdict(list)
        self.verdicts: dict[CallId, Verdict] = {}
        self.claims: dict[CallId, tuple[Claim, ...]] = {}
        """Final ones, where references narrowed them."""
        self.edits: dict[CallId, Edit] = {}
        """What humans made of the arguments of calls."""
        self.refusals: dict[CallId, Failure] = {}
        """Why calls failed that were never queued."""
        self.refused: dict[Key, Failure] = {}
        """The same, as far as it was known at once, by what was asked for."""
        self.loops: dict[CallId, Failure] = {}
        """Calls that were refused as going round in circles."""
        self.halting: set[CallId] = set()
        """Those of them with which the run stopped: nothing behind them was looked at."""
        self.notes: dict[CallId, str] = {}
        """What the model was told beside results."""
        self.unaffordable: dict[CallId, tuple[str, Failure]] = {}
        """Calls that no budget had room for, with the rule that said so."""
        self.barred: Failure | None = None
        """Why the run was not to begin where it stood."""
        self.priorities: Mapping[str, int] = {}
        """Of tools, as far as the order of starts has told."""
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.probed: set[str] = set()
        """Tools with a probe."""
        self.asking: set[str] = set()
        """Tools that want a human asked."""
        self.unknown: set[str] = set()
        """Names that no tool of this driver had."""
        self.marked: set[str] = set()
        """Tools whose calls held secrets, which are not recorded."""
        self.changed: set[str] = set()
        """Tools of which another version than was asked for forbids a repeat by now."""
        self.parents: set[CallId] = set()
        """Calls of plans that were taken apart."""
        self.stale: set[ApprovalId] = set()
        """Questions about what had changed when this driver came."""
        self.literal: defaultdict[str, set[str]] = defaultdict(set)
        """Parameters in which nothing was taken for a reference."""
        self._owned: list[tuple[CallRecord, tuple[Claim, ...]]] = []
        """Calls that this driver took in or completed, with the claims that they then had."""
        self._said: defaultdict[Key, deque[CallRecord]] = defaultdict(deque)
        self._names: set[str] = set()
        self._started: set[CallId] = set()
        self._asked: dict[CallId, ApprovalId] = {}
        self._last_loop: CallId | None = None
        for row in earlier:
            self._take(row, recording.before.get(row.seq), own=False)
        for row in own:
            if not self._judged_later(row):
                self._take(row, recording.before.get(row.seq), own=True)
        # What was asked about is what ran once a later driver had the answer.
        for row in recording.rows[own[-1].seq if own else 0 :]:
            if (
                isinstance(row.fact, CallQueued)
                and row.fact.claims
                and row.fact.call in self._asked
            ):
                self.claims.setdefault(row.fact.call, row.fact.claims)

    def verdict_in(self, rows: Iterable[Row]) -> None:
        """Take what a change of the mode made of calls for what the policy says from then on."""
        for row in rows:
            match row.fact:
                case CallQueued(call=name, rule=rule):
                    self.verdicts[name] = Verdict(Decision.ALLOW, rule, "")
                case ApprovalAsked(call=name, rule=rule, reason=reason):
                    self.verdicts[name] = Verdict(Decision.ASK, rule, reason)
                case CallEnded(call=name, outcome=Failure() as failure, rule=rule) if (
                    failure.code is Code.POLICY_DENIED
                ):
                    self.verdicts[name] = verdict_of(failure, rule)
                case _:
                    pass

    def _take(  # noqa: C901, PLR0912 - one arm a fact
        self, row: Row, before: State | None, *, own: bool
    ) -> None:
        match row.fact:
            case TurnSubmitted() as fact:
                self._submitted(fact, own=own)
            case CallStarted() as fact if own:
                self._started.add(fact.call)
            case CallQueued() as fact:
                self.notes[fact.call] = fact.note
                if fact.claims and fact.call not in self.edits:
                    self.claims[fact.call] = fact.claims
                    if own:
                        self._owned.append((self.records[fact.call], fact.claims))
                if before is State.PENDING:
                    self.verdicts[fact.call] = Verdict(Decision.ALLOW, fact.rule, "")
            case ApprovalAsked() as fact:
                self._asked[fact.call] = fact.approval
                self.verdicts[fact.call] = Verdict(Decision.ASK, fact.rule, fact.reason)
                if fact.rule == TOOL_ASKS:
                    self.asking.add(self.records[fact.call].tool)
            case ApprovalAnswered(edit=edit) as fact if edit is not None:
                self._edited(fact.call, edit)
            case AttemptEnded() as fact if row.seq in self._recording.retried:
                tool = self.records[fact.call].tool
                self.retries[tool] = max(self.retries[tool], fact.attempt)
            case RunStopped(code=Code.LOOP_DETECTED) if self._last_loop is not None:
                self.halting.add(self._last_loop)
            case CallProbed() as fact:
                self.probed.add(self.records[fact.call].tool)
            case CallEnded(rule="loops" | "recursion") as fact if isinstance(fact.outcome, Failure):
                self._guarded(fact, fact.outcome)
            case CallEnded(rule=rule, outcome=Failure() as failure) as fact if is_of_budget(
                rule
            ) and before in (State.PENDING, State.AWAITING_APPROVAL):
                self.unaffordable[fact.call] = rule, failure
            case CallEnded(state=State.CANCELLED, outcome=Failure(code=Code.POLICY_DENIED)):
                pass  # The stop of its run ended it, and no rule.
            case CallEnded() as fact if own and isinstance(fact.outcome, Failure):
                self._ended(fact, fact.outcome, before)
            case _:
                pass

    def _judged_later(self, row: Row) -> bool:
        """Whether a fact tells of a second verdict, and the first one has been met."""
        name: CallId | None = getattr(row.fact, "call", None)
        return row.seq in self._recording.judged_anew and name in self.verdicts

    def _submitted(self, fact: TurnSubmitted, *, own: bool) -> None:
        for record in fact.calls:
            self.records[record.id] = record
            self.by_tool[record.tool].append(record)
            if holds_mark(record.arguments):
                self.marked.add(record.tool)
            if record.parent is not None:
                self.parents.add(record.parent)
        self._names |= {record.provider_id for record in fact.calls if record.parent is None}
        if own:
            for record in fact.calls:
                self._owned.append((record, record.claims))
                self._index(record, fact)
            self._find_literal(fact)

    def _edited(self, name: CallId, edit: Edit) -> None:
        self.edits[name] = edit
        record = msgspec.structs.replace(
            self.records[name],
            arguments=edit.arguments,
            claims=edit.claims,
            effect=edit.effect,
            idempotent=edit.idempotent,
        )
        self.by_tool[record.tool].append(record)
        self._said[key_of(record.tool, record.arguments)].append(record)

    def _index(self, record: CallRecord, fact: TurnSubmitted) -> None:
        if not is_object(record.arguments):
            return
        key = key_of(record.tool, record.arguments)
        self._said[key].append(record)
        inner = {one.provider_id for one in fact.calls if one.parent == record.parent}
        names = self._names | inner
        referring = fact.referring if record.parent is None else Referring.STRICT
        if referring is not Referring.LITERAL:
            references = find(record.arguments, names, referring)
            if references.escaped:  # What is checked is what the escapes stand for.
                meant = unescaped(record.arguments, references, names, referring)
                self._said[key_of(record.tool, meant)].append(record)

    def _find_literal(self, fact: TurnSubmitted) -> None:
        if fact.referring is Referring.LITERAL:
            return
        data = {(edge.source, edge.target) for edge in fact.edges if edge.reason is Reason.DATA}
        for record in fact.calls:
            if not is_object(record.arguments):
                continue
            place = {one.provider_id: one.id for one in fact.calls if one.parent == record.parent}
            for reference in find(record.arguments, place, fact.referring).references:
                if (place[reference.source], record.id) not in data:
                    self.literal[record.tool].add(reference.parameter)

    def _guarded(self, fact: CallEnded, failure: Failure) -> None:
        if fact.rule == LOOPS:
            self.loops[fact.call] = failure
            self._last_loop = fact.call
        else:
            self.barred = failure

    def _ended(self, fact: CallEnded, failure: Failure, before: State | None) -> None:
        name, record = fact.call, self.records[fact.call]
        first = before is State.PENDING
        unseen = (
            failure.code is Code.OUTCOME_UNKNOWN
            and before in (State.RUNNING, State.BACKING_OFF)
            and name not in self._started
            and is_safe(record)
        )
        if unseen or (failure.happened is Happened.UNKNOWN and record.effect.changes_nothing):
            self.changed.add(record.tool)
        if failure.code is Code.POLICY_DENIED:
            self.verdicts[name] = verdict_of(failure, fact.rule)
        elif failure.message.startswith(APPROVAL_STALE.message) and name in self._asked:
            self.stale.add(self._asked[name])
        elif first and failure.message.startswith(WITHDRAWN.message):
            self.verdicts[name] = Verdict(Decision.ASK, "", "")
        elif before is not State.RUNNING and fact.state is State.FAILED:
            if first and name not in self.parents and is_plan(record):
                self.refused[key_of(record.tool, record.arguments)] = failure
            elif failure.code is Code.UNKNOWN_TOOL:
                self.unknown.add(record.tool)
            elif failure.code in (Code.INVALID_ARGUMENTS, Code.BAD_REFERENCE):
                self.refusals[name] = failure
                if record.arguments is not None and name not in self.parents:
                    self.refused[key_of(record.tool, record.arguments)] = failure

    # What the stand-ins ask

    def said(self, tool: str, arguments: Any, *, take: bool = False) -> CallRecord | None:
        """Find the call that asked for this.

        Args:
            tool: its name.
            arguments: as they are recorded.
            take: of several that are the same, give the next one at the next time.
        """
        found = self._said.get(key_of(tool, arguments))
        if not found:
            return None
        record = found[0]
        if take:
            found.rotate(-1)
        return record

    def claims_of(self, record: CallRecord, arguments: Any) -> tuple[Claim, ...]:
        """What a call with these arguments claimed in the end, but for its run."""
        edit = self.edits.get(record.id)
        claims = self.claims.get(record.id, record.claims)
        if edit is not None and canonical(edit.arguments) == canonical(arguments):
            claims = edit.claims
        return claims[1:] if claims and is_of_run(claims[0]) else claims

    def serial(self, declared: Collection[str]) -> bool:
        """Whether the host had one call run after another, since even declared ones were alone.

        Args:
            declared: tools of which is known that something was said of them.
        """
        found = [(one, claims[0]) for one, claims in self._owned if claims and is_of_run(claims[0])]
        if any(claim.access is Access.SHARED for _, claim in found):
            return False
        return any(record.tool in declared or _says_something(record) for record, _ in found)

    def undeclared(self, tool: str) -> bool:
        """Whether a tool's calls were alone in their run, as those of one that says nothing."""
        found = [one for one in self.by_tool[tool] if one.claims and is_of_run(one.claims[0])]
        return bool(found) and all(
            one.claims[0].access is Access.EXCLUSIVE and not _says_something(one) for one in found
        )


TOOL_ASKS = "tool asks"


def key_of(tool: str, arguments: Any) -> Key:
    """What was asked for, so that it can be found again."""
    return tool, canonical(arguments)


def is_plan(record: CallRecord) -> bool:
    """Whether a call was one of a plan tool, as its version tells."""
    version = record.tool_version
    return bool(version) and version == plan_tool(record.tool).spec.version


def is_of_run(claim: Claim) -> bool:
    """Whether this is the claim of a call on its run."""
    return claim.resource.startswith("run:")


def farthest(effects: Iterable[Effect]) -> Effect:
    """The most that any of several calls can do."""
    return max(effects, key=list(Effect).index)


def _says_something(record: CallRecord) -> bool:
    return record.effect is not Effect.EXTERNAL or record.idempotent or len(record.claims) > 1
