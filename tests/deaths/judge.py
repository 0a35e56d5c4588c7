"""Reads what a case has left behind, and names every promise that was not kept.

It knows the program and the log of the tools; of the engine it takes only the facts in the
journal, and of those only what they say, not how the engine came to it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any
from zlib import crc32

import msgspec

from laneway import Failure, Outcome, State, Success
from laneway.calls import CallRecord
from laneway.facts import (
    CallEnded,
    CallJoined,
    CallReopened,
    CallSettled,
    CallStarted,
    RunTaken,
    TurnSubmitted,
)
from tests.deaths.evidence import Evidence, Kept
from tests.deaths.programs import KINDS, LANES, RUN, Call, Case

FAULTS = (
    "a life failed or hung",
    "a body was entered twice",
    "a body was entered whose start was not kept",
    "what was said to be kept was lost",
    "a fact was changed",
    "an outcome was lost",
    "an outcome was changed",
    "a sequence had a gap",
    "two excluded each other and overlapped",
    "a lane was too full",
    "conflicting calls ran in the wrong order",
    "a call started before what it depends on was over",
    "a body was entered that nobody had approved",
    "a human was asked again who had answered",
    "a call was left without an outcome",
    "a success was recorded of a body that had not ended",
    "a value was wrong",
    "a call ended as nothing explains",
    "taking it up once more changed something",
)
"""Everything that is counted, and must be zero."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was not kept."""

    what: str
    where: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A time that a body was entered."""

    run: str
    call: str
    attempt: int
    tool: str
    label: str
    path: str
    pid: int
    began: float
    ended: float
    finished: bool
    """Whether it came to its own end."""

    @property
    def id(self) -> tuple[str, str]:
        """Which call, over all runs."""
        return self.run, self.call

    def within(self, other: "Entry") -> bool:
        """Whether the other's body asked for this call, at any distance."""
        return self.run.startswith(f"{other.run}/{other.call}/")

    def excludes(self, other: "Entry") -> bool:
        """Whether the two must not overlap."""
        if self.id == other.id or self.within(other) or other.within(self):
            return False
        return meets(self, other)


def meets(one: Entry, other: Entry) -> bool:
    """Whether two calls touch the same, and one of them changes it."""
    first, second = KINDS[one.tool], KINDS[other.tool]
    if one.run == other.run and (first.effect is None or second.effect is None):
        return True
    if not (first.file and second.file) or "write" not in (first.file, second.file):
        return False
    a, b = f"{one.path}/", f"{other.path}/"
    return a.startswith(b) or b.startswith(a)


class Judge:
    """Of one case."""

    def __init__(self, case: Case, evidence: Evidence) -> None:
        """Read the evidence."""
        self.evidence = evidence
        self.program = {call.label: call for call in case.calls()}
        self.last: Kept = {}
        for _, kept in sorted({**evidence.kept, **evidence.left}.items()):
            self.last = kept
        self.entries = list(entries(evidence))
        self.finished = {entry.id for entry in self.entries if entry.finished}
        """Calls whose body came to its own end."""
        self.records = dict(records(self.last))
        self.outcomes = outcomes(self.last)
        self.once_uncertain = {
            label_of(self.records[run, str(fact.call)])
            for run, _, fact in facts(self.last, CallEnded)
            if fact.state is State.UNCERTAIN and (run, str(fact.call)) in self.records
        }
        self.died = sum(life.died for life in evidence.lives)

    def faults(self) -> list[Fault]:
        """Every fault there is."""
        finished = all(life.clean for life in self.evidence.lives)
        checks = [*CHECKS, *(CHECKS_AT_THE_END if finished else ())]
        return [Fault(what=what, where=where) for what, check in checks for where in check(self)]

    def call_of(self, id: tuple[str, str]) -> Call | None:  # noqa: A002 - of a call
        """The call as its program wants it."""
        record = self.records.get(id)
        return None if record is None else self.program.get(label_of(record))

    def outlasts(self, label: str) -> bool:
        """Whether the body of a call may go on when the call has ended."""
        return KINDS[self.program[label].kind].ends == "TIMED_OUT"

    def lines(self, word: str) -> Iterator[tuple[int, Sequence[Any]]]:
        """The lines of a word, each with its place in the log."""
        for at, line in enumerate(self.evidence.log):
            if line.word == word:
                yield at, line.rest

    def before(self, number: int) -> set[int]:
        """The processes of the lives before one."""
        return {life.pid for life in self.evidence.lives[:number]}


def label_of(record: CallRecord) -> str:
    """The name that a program gave to a call."""
    label = record.provider_id
    if label == "1":  # Of a body's own, which has no name for it.
        label = str(record.arguments.get("id", label))
    return label


def above(run: str) -> tuple[str, str]:
    """The call whose body a run is part of."""
    upper, _, call = run.rpartition("/")[0].rpartition("/")
    return upper, call


def entries(evidence: Evidence) -> Iterator[Entry]:
    """Each time that a body was entered; one that did not end, ended with its process."""
    deaths = {life.pid: life.ended for life in evidence.lives}
    over: dict[tuple[Any, ...], tuple[float, bool]] = {}
    for line in evidence.log:
        if line.word in ("end", "stop"):
            over[line.pid, *line.rest] = line.mono, line.word == "end"
    for line in evidence.log:
        if line.word == "start":
            run, call, attempt, tool, label, path = line.rest
            death = deaths.get(line.pid, inf), False
            ended, finished = over.get((line.pid, run, call, attempt), death)
            yield Entry(
                run=run,
                call=call,
                attempt=attempt,
                tool=tool,
                label=label,
                path=path,
                pid=line.pid,
                began=line.mono,
                ended=ended,
                finished=finished,
            )


def records(kept: Kept) -> Iterator[tuple[tuple[str, str], CallRecord]]:
    """Every call that the journal knows."""
    for run, rows in kept.items():
        for row in rows:
            if isinstance(row.fact, TurnSubmitted):
                yield from (((run, record.id), record) for record in row.fact.calls)


def outcomes(kept: Kept) -> dict[tuple[str, str], tuple[State, Outcome]]:
    """Every outcome that the journal holds; a settlement in time replaces an unknown one."""
    found: dict[tuple[str, str], tuple[State, Outcome]] = {}
    for run, rows in kept.items():
        for row in rows:
            fact = row.fact
            if isinstance(fact, CallEnded):
                found[run, fact.call] = fact.state, fact.outcome
            elif isinstance(fact, CallReopened):
                found.pop((run, fact.call), None)
            elif isinstance(fact, CallSettled):
                state = State.SUCCEEDED if isinstance(fact.outcome, Success) else State.FAILED
                found[run, fact.call] = state, fact.outcome
    return found


def facts(kept: Kept, *kinds: type) -> Iterator[tuple[str, int, Any]]:
    """All facts of some kinds, with run and sequence number."""
    for run, rows in kept.items():
        for row in rows:
            if isinstance(row.fact, kinds):
                yield run, row.seq, row.fact


# What holds at any time


def lives_end(judge: Judge) -> Iterator[str]:
    """Each life ends by itself, or dies as it is to."""
    for number, life in enumerate(judge.evidence.lives):
        if not life.clean:
            yield f"life {number}: {'hung' if life.hung else life.status} {life.said[-2000:]}"


def entered_once(judge: Judge) -> Iterator[str]:
    """An attempt is entered once; what must not be repeated, in one attempt, unless it was said."""
    attempts = Counter((*entry.id, entry.attempt) for entry in judge.entries)
    yield from (f"attempt {one}: {count} times" for one, count in attempts.items() if count > 1)
    again = Counter((run, str(fact.call)) for run, _, fact in facts(judge.last, CallReopened))
    once = [entry for entry in judge.entries if not KINDS[entry.tool].repeatable]
    for id_, count in Counter(entry.id for entry in once).items():
        if count > 1 + again[id_]:
            yield f"{id_}: {count} times"
    for label, found in grouped(once, lambda entry: entry.label).items():
        if len({entry.id for entry in found}) > 1:
            yield f"{label}: as {sorted({entry.id for entry in found})}"


def starts_are_kept(judge: Judge) -> Iterator[str]:
    """What a life finds tells of every body that was entered before it."""
    for number, kept in judge.evidence.kept.items():
        known = {(run, fact.call, fact.attempt) for run, _, fact in facts(kept, CallStarted)}
        pids = judge.before(number)
        for entry in judge.entries:
            if entry.pid in pids and (*entry.id, entry.attempt) not in known:
                yield f"life {number} finds no start of {entry.id}, attempt {entry.attempt}"


def acknowledged_is_kept(judge: Judge) -> Iterator[str]:
    """What a life finds holds all that an earlier one was told is kept."""
    for number, kept in judge.evidence.kept.items():
        pids = judge.before(number)
        told: dict[str, int] = {}
        for line in judge.evidence.log:
            if line.word == "kept" and line.pid in pids:
                run, seq = line.rest
                told[run] = max(seq, told.get(run, 0))
        for run, seq in told.items():
            if len(kept.get(run, ())) < seq:
                yield f"life {number} finds {len(kept.get(run, ()))} of {seq} facts of {run}"


def pictures(judge: Judge) -> Iterator[tuple[Kept, Kept]]:
    """Each two pictures of the journal, one taken after the other."""
    both = [(number, 0, kept) for number, kept in judge.evidence.kept.items()]
    both += [(number, 1, kept) for number, kept in judge.evidence.left.items()]
    both.sort(key=lambda one: one[:2])
    for (_, _, one), (_, _, other) in pairwise(both):
        yield one, other


def facts_stay(judge: Judge) -> Iterator[str]:
    """No fact changes once it has been seen."""
    for one, other in pictures(judge):
        for run, rows in one.items():
            now = other.get(run, ())
            for was, is_now in zip(rows, now, strict=False):
                if was != is_now:
                    yield f"{run}: {was} is now {is_now}"


def outcomes_stay_there(judge: Judge) -> Iterator[str]:
    """No outcome is lost."""
    for one, other in pictures(judge):
        for id_ in outcomes(one).keys() - outcomes(other).keys() - reopened(other):
            yield f"{id_}"


def outcomes_stay_the_same(judge: Judge) -> Iterator[str]:
    """No outcome changes, but for what a human has found out."""
    settled = {str(call) for _, (call,) in judge.lines("settle")}
    for one, other in pictures(judge):
        now = outcomes(other)
        for id_, outcome in outcomes(one).items():
            found_out = outcome[0] is State.UNCERTAIN and id_[0] == RUN and id_[1] in settled
            if id_ in now and now[id_] != outcome and not found_out and id_ not in reopened(other):
                yield f"{id_}: {outcome} is now {now[id_]}"


def reopened(kept: Kept) -> set[tuple[str, str]]:
    """Calls that somebody said may run again."""
    return {(run, str(fact.call)) for run, _, fact in facts(kept, CallReopened)}


def sequences_have_no_gaps(judge: Judge) -> Iterator[str]:
    """Facts are numbered from 1."""
    for kept in (*judge.evidence.kept.values(), *judge.evidence.left.values()):
        for run, rows in kept.items():
            if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
                yield f"{run}: {[row.seq for row in rows]}"


def none_overlap(judge: Judge) -> Iterator[str]:
    """What excludes each other never overlaps."""
    by_time = sorted(judge.entries, key=lambda entry: entry.began)
    for at, one in enumerate(by_time):
        for other in by_time[at + 1 :]:
            if other.began < one.ended and one.excludes(other):
                yield f"{one.label} {one.id} and {other.label} {other.id}"


def lanes_hold_few(judge: Judge) -> Iterator[str]:
    """No more are in a lane than may be."""
    for lane, most in LANES.items():
        inside = [entry for entry in judge.entries if KINDS[entry.tool].lane == lane]
        for one in inside:
            there = [other for other in inside if other.began <= one.began < other.ended]
            if len(there) > most:
                yield f"{lane}: {[other.label for other in there]}"


def order_is_kept(judge: Judge) -> Iterator[str]:
    """Of two calls of a turn that conflict, the later one starts when the earlier one is over."""
    entered = grouped(judge.entries, lambda entry: entry.id)
    for run, _, turn in facts(judge.last, TurnSubmitted):
        ordered = in_order([label_of(record) for record in turn.calls], judge.program)
        ids = {label_of(record): (run, str(record.id)) for record in turn.calls}
        found = [entered[ids[label]] for label in ordered if ids[label] in entered]
        for at, earlier in enumerate(found):
            for later in found[at + 1 :]:
                over = max(entry.ended for entry in earlier)
                if meets(earlier[0], later[0]) and min(one.began for one in later) < over:
                    yield f"{later[0].label} before {earlier[0].label} was over"


def in_order(labels: Sequence[str], program: Mapping[str, Call]) -> list[str]:
    """The order of the request, changed only where an edge says so (Kahn 1962)."""
    left = list(labels)
    order: list[str] = []
    while left:
        for label in left:
            if not (waits_for(program.get(label)) & set(left)):
                break
        else:
            raise AssertionError(f"a cycle in {left}")
        left.remove(label)
        order.append(label)
    return order


def waits_for(call: Call | None) -> set[str]:
    """The labels of the calls that one waits for, those of its plan included."""
    if call is None:
        return set()
    parts = (part.label for part in call.parts) if call.kind == "plan" else ()
    return {*call.sources, *call.after, *parts}


def dependencies_are_over(judge: Judge) -> Iterator[str]:
    """A call starts when all that it waits for has its outcome, and its body has ended."""
    ids = {label_of(record): id_ for id_, record in judge.records.items()}
    entered = grouped(judge.entries, lambda entry: entry.id)
    started: dict[tuple[str, str], int] = {}
    over: dict[tuple[str, str], int] = {}
    for run, seq, fact in facts(judge.last, CallStarted, CallEnded, CallSettled):
        where = started if isinstance(fact, CallStarted) else over
        where.setdefault((run, str(fact.call)), seq)
    for label, call in judge.program.items():
        if label not in ids or ids[label] not in started:
            continue
        mine = ids[label]
        for source in waits_for(call):
            its = ids.get(source)
            if its is None or started[mine] < over.get(its, 1 << 40):
                yield f"{label} before {source}"
            elif judge.outlasts(source) or mine not in entered or its not in entered:
                continue
            elif entered[mine][0].began < max(entry.ended for entry in entered[its]):
                yield f"the body of {label} before that of {source} had ended"
        for source in call.sources:
            state = judge.outcomes.get(ids[source], (None,))[0] if source in ids else None
            if state is not State.SUCCEEDED:
                yield f"{label} though {source} is {state}"


def approvals_are_respected(judge: Judge) -> Iterator[str]:
    """Nothing that asks is entered before a human has said yes."""
    granted: set[str] = set()
    for line in judge.evidence.log:
        if line.word == "yes":
            granted.add(line.rest[0])
        elif line.word == "start" and line.rest[3] == "ask" and line.rest[4] not in granted:
            yield f"{line.rest[4]}"


def answers_are_not_lost(judge: Judge) -> Iterator[str]:
    """Nobody is asked again once told that the answer is kept."""
    told: set[str] = set()
    for line in judge.evidence.log:
        if line.word in ("told yes", "told no"):
            told.add(line.rest[0])
        elif line.word in ("yes", "no") and line.rest[0] in told:
            yield f"{line.rest[0]}"


# What holds at the end


def all_have_outcomes(judge: Judge) -> Iterator[str]:
    """Each call has its one outcome, and so has each that a body made which succeeded."""
    ended = {label_of(judge.records[id_]) for id_ in judge.outcomes if id_ in judge.records}
    for label, call in judge.program.items():
        if not _is_within_a_body(judge, label) and label not in ended:
            yield f"{label} ({call.kind})"
    for id_ in judge.records.keys() - judge.outcomes.keys():
        if id_[0] == RUN or above(id_[0]) in judge.finished:
            yield f"{id_}"
    results = [life.result for life in judge.evidence.lives if life.result is not None]
    for result in results[-1:]:
        for name, found in result.outcomes.items():
            kept = judge.outcomes.get((RUN, name))
            if kept != found:
                yield f"{name}: the host has {found}, the journal {kept}"


def _is_within_a_body(judge: Judge, label: str) -> bool:
    return any(
        part.label == label
        for call in judge.program.values()
        if call.kind != "plan"
        for part in call.parts
    )


def successes_have_ends(judge: Judge) -> Iterator[str]:
    """A success means that the body came to its end, or that of the same call did."""
    ended = {(*entry.id, entry.attempt) for entry in judge.entries if entry.finished}
    last: dict[tuple[str, str], int] = {}
    leaders: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    settled = {(run, fact.call) for run, _, fact in facts(judge.last, CallSettled)}
    for run, _, fact in facts(judge.last, CallStarted, CallJoined):
        if isinstance(fact, CallJoined):
            upper, _, leader = fact.leader.rpartition("/")
            leaders[run, str(fact.call)].append((upper, leader))
        else:
            last[run, str(fact.call)] = fact.attempt
    for id_, (state, _) in judge.outcomes.items():
        call = judge.call_of(id_)
        if state is not State.SUCCEEDED or id_ in settled or call is None or call.kind == "plan":
            continue
        if not any((*one, last.get(one)) in ended for one in (id_, *leaders[id_][-1:])):
            yield f"{call.label} {id_}"


def values_are_right(judge: Judge) -> Iterator[str]:
    """A value tells what its body was given, and that is what its source came to."""
    values = {
        label_of(judge.records[id_]): outcome.value
        for id_, (_, outcome) in judge.outcomes.items()
        if isinstance(outcome, Success) and id_ in judge.records
    }
    settled = {str(call) for _, (call,) in judge.lines("settle")}
    for id_, (_, outcome) in judge.outcomes.items():
        call = judge.call_of(id_)
        if call is None or call.kind == "plan" or not isinstance(outcome, Success):
            continue
        if id_[0] == RUN and id_[1] in settled:
            continue
        more: object = ""
        if call.refers and call.how != "path":
            more = values.get(call.refers)
            more = f"see {more}" if call.how == "text" else more
        told = f"{crc32(msgspec.json.encode(more)):08x}"
        wanted = f"{call.twin or call.label}-{told}{'x' * call.size}"
        if outcome.value != wanted:
            yield f"{call.label}: {outcome.value!s:.80} instead of {wanted:.80}"


def endings_are_explained(judge: Judge) -> Iterator[str]:
    """Each call ends as its kind does, or as a death, a human or another call explains."""
    states = {
        label_of(judge.records[id_]): state
        for id_, (state, _) in judge.outcomes.items()
        if id_ in judge.records
    }
    entered = {entry.id for entry in judge.entries}
    for id_, (state, outcome) in judge.outcomes.items():
        call = judge.call_of(id_)
        if call is None:
            yield f"{id_} is a call of nobody"
            continue
        if state not in set(explained(judge, call, states, id_)):
            yield f"{call.label} ({call.kind}) {id_}: {state} {outcome!s:.300}"
        if id_ in entered and state in (State.SKIPPED, State.DENIED):
            yield f"{call.label} {id_} was entered, and is {state}"
        if (
            state is State.FAILED
            and call.kind not in ("bad", "plan")
            and not (isinstance(outcome, Failure) and outcome.code == "LANE_DEADLOCK")
        ):
            yield f"{call.label} {id_}: {outcome!s:.300}"


def explained(
    judge: Judge, call: Call, states: Mapping[str, State], id_: tuple[str, str]
) -> Iterator[State]:
    """How a call may have ended."""
    if id_[0] != RUN and above(id_[0]) not in judge.finished:
        yield State.CANCELLED  # The body that asked for it died, and was not entered again.
    kind = KINDS[call.kind]
    if any(states.get(source) is not State.SUCCEEDED for source in call.sources):
        yield State.SKIPPED
        return
    if any(source in judge.once_uncertain for source in call.sources):
        yield State.SKIPPED  # Before it was found out what its source came to.
    if call.kind == "ask" and not call.grant:
        yield State.DENIED
        return
    yield State(kind.ends) if kind.ends else State.SUCCEEDED
    if id_[0] != RUN:
        yield State.FAILED
    if judge.died and not kind.repeatable:
        yield State.UNCERTAIN
        if call.settle:
            yield State.SUCCEEDED
    if kind.ends == "UNCERTAIN" and judge.died and call.settle:
        yield State.SUCCEEDED


def nothing_changes_at_rest(judge: Judge) -> Iterator[str]:
    """The second life that was not cut short finds all done, and only says that it was there."""
    results = [life.result for life in judge.evidence.lives[-2:]]
    if len(results) == 2 and results[0] != results[1]:
        yield f"{results[0]} and then {results[1]}"
    left = sorted(judge.evidence.left)[-2:]
    if len(left) == 2:
        one, other = (judge.evidence.left[number] for number in left)
        for run in one.keys() | other.keys():
            added = other.get(run, ())[len(one.get(run, ())) :]
            yield from (f"{run}: {row}" for row in added if not isinstance(row.fact, RunTaken))


def grouped(found: Iterable[Entry], by: Callable[[Entry], Any]) -> dict[Any, list[Entry]]:
    """Entries, by something of theirs."""
    groups: dict[Any, list[Entry]] = defaultdict(list)
    for entry in found:
        groups[by(entry)].append(entry)
    return dict(groups)


CHECKS = tuple(
    zip(
        FAULTS[:14],
        (
            lives_end,
            entered_once,
            starts_are_kept,
            acknowledged_is_kept,
            facts_stay,
            outcomes_stay_there,
            outcomes_stay_the_same,
            sequences_have_no_gaps,
            none_overlap,
            lanes_hold_few,
            order_is_kept,
            dependencies_are_over,
            approvals_are_respected,
            answers_are_not_lost,
        ),
        strict=True,
    )
)
CHECKS_AT_THE_END = tuple(
    zip(
        FAULTS[14:],
        (
            all_have_outcomes,
            successes_have_ends,
            values_are_right,
            endings_are_explained,
            nothing_changes_at_rest,
        ),
        strict=True,
    )
)
