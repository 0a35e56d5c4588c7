"""What one event brings about: decided together, kept together, then carried out.

The result of a call, its release, and the grant and start of all that it frees are one step, and
so one transaction; bodies are entered when it is durable. A step changes calls, turns and lanes at
once, so that the next event sees what this one decided; the world sees it after the commit.
"""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from laneway.calls import Reason
from laneway.claims import Claim
from laneway.engine.ending.layers import watch_queue
from laneway.engine.failures import (
    APPROVAL_STALE,
    WITHDRAWN,
    Told,
    after_attempts,
    asks_now,
    deadlocked,
    exception_text,
    found_failed,
    lane_full,
    owned_up,
    skipped,
    stopped,
)
from laneway.engine.flights import join, part
from laneway.engine.granting import answered, granted, wanted_by
from laneway.engine.handing_on import hand_on
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.nesting import permit
from laneway.engine.probing import Finding, Found
from laneway.engine.request_order import Books, queue_together
from laneway.engine.sealing import outcome_of
from laneway.engine.services import PROCESS, THREAD, Services
from laneway.engine.settling import settlement_note
from laneway.facts import (
    ApprovalAsked,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    Fact,
    MessageSaid,
    TurnClosed,
)
from laneway.ids import ApprovalId
from laneway.lanes.names import is_alias, is_lane
from laneway.lanes.priorities import bounded
from laneway.lanes.requests import Request
from laneway.outcomes import Code, Failure, Happened, Outcome, StoppedBy, succeeded
from laneway.policies.approvals import approval_id, digest, expiry
from laneway.policies.grants import Demands
from laneway.policies.questions import ALLOW, DENY, Decision, Question, Verdict, denied
from laneway.states import (
    AWAITING_APPROVAL,
    DENIED,
    PENDING,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    UNCERTAIN,
    State,
)

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

T = TypeVar("T")


class Step:
    """The consequences of one event in one run."""

    __slots__ = (
        "asks",
        "deferred",
        "facts",
        "landed",
        "probes",
        "question",
        "ready",
        "released",
        "scheduler",
        "services",
        "skips",
        "starts",
        "turns",
    )

    def __init__(self, scheduler: "Scheduler") -> None:
        """Start with nothing."""
        self.scheduler = scheduler
        self.services: Services = scheduler.services
        self.facts: list[Fact] = []
        self.asks = False
        """Somebody is to be told, once the facts are kept, that a human is asked."""
        self.question: Question | None = None
        """The last that was put to the policy."""
        self.deferred: list[LiveCall] | None = None
        """Calls that are queued when all have been looked at; None to queue each at once."""
        self.starts: list[LiveCall] = []
        """Calls whose body may be entered once the facts are kept."""
        self.probes: list[LiveCall] = _NONE
        """UNCERTAIN calls whose probe may be asked once the facts are kept."""
        self.ready: list[LiveCall] = []
        """Calls that wait for nothing any more and have not been looked at yet."""
        self.skips: list[tuple[LiveCall, LiveCall]] = _NONE
        """Calls that will not run, with the call that they needed."""
        self.turns: list[LiveTurn] = []
        """Turns in which something has ended."""
        self.released: list[LiveCall] = _NONE
        """Calls of other runs that were granted their lanes."""
        self.landed: list[tuple[LiveCall, LiveCall]] = _NONE
        """Calls of other runs that waited for one that is the same and over, with that one."""

    # From ready to running

    def in_order(self, ready: list[LiveCall]) -> list[LiveCall]:
        """Sort calls that ask for their lanes in one instant, given in request order.

        A priority goes first, then the longest path where that can matter, then the request.
        """
        seats = ready[0].turn.seats if ready else None
        if seats is not None:
            ready = seats.longest_first(ready)
        if self.services.tools.graded:
            return sorted(ready, key=self._priority, reverse=True)
        return ready

    def consider(self, call: LiveCall) -> None:
        """Nothing that the call depends on is open: complete and judge it."""
        if self.scheduler.halted and call.plan is None:
            return  # The stop of the run, which is on its way, ends it.
        if call.checked is None:
            failure = self.scheduler.complete(call)
            if failure is not None:
                self.end(call, State.FAILED, failure)
                return
        verdict = self.judge(call)
        call.rule = verdict.rule
        watch = self.scheduler.watch
        if watch is not None and verdict.decision is not DENY:
            loop = watch.refuses(call)
            if loop is not None:
                self.end(call, State.DENIED, loop)
                return
        if verdict.decision is ALLOW:
            self.queue(call, verdict.rule)
        elif verdict.decision is DENY:
            self.end(call, State.DENIED, denied(verdict))
        elif rule := self.passes(call):
            self.queue(call, rule)
        elif call.turn.withdrawn:
            self.end_unstarted(call, WITHDRAWN)
        else:
            self._ask(call, verdict)

    def passes(self, call: LiveCall) -> str:
        """Who has granted already what is to be asked about; empty for nobody."""
        if call.approval is not None and (rule := answered(call, bound_digest(call))):
            return rule
        return granted(call, self.demands(call)) if self.scheduler.log.view.grants else ""

    def demands(self, call: LiveCall) -> Demands:
        """What is wanted of the answer about a call that is to be asked about."""
        asking = (call,) if call.part_of is None else (call, call.part_of.call)
        questions: list[Question] = []
        for mode in (self.scheduler.mode, *modes_above(self.scheduler)):
            for one in asking:
                self._verdict(one, mode)
                assert self.question is not None
                questions.append(self.question)
        return wanted_by(self.scheduler.policy, questions, call)

    def take_up(self, call: LiveCall) -> bool:
        """Look again at what an earlier driver let pass: tools, policy and mode may be others now.

        Returns:
            Whether the call may go on; if not, it has ended.
        """
        failure = self.scheduler.complete(call)
        if failure is not None:
            self.end(call, State.FAILED, _after_attempts(call, failure))
            return False
        verdict = self.judge(call)
        refusal: Failure | None = None
        if call.attempt > call.cleared and not call.record.idempotent:
            self.end(call, State.FAILED, _not_twice(call.record.tool))
            return False
        if call.approval is not None and not self._still_bound(call, call.approval):
            refusal = APPROVAL_STALE
        elif verdict.decision is Decision.DENY:
            call.rule = verdict.rule
            refusal = denied(verdict)
        elif verdict.decision is Decision.ASK and call.approval is None and not self.passes(call):
            refusal = asks_now(verdict)
        if refusal is None:
            return True
        self.end(call, State.DENIED, _after_attempts(call, refusal))
        return False

    def _still_bound(self, call: LiveCall, approval: ApprovalId) -> bool:
        """Whether what a human was asked about is what would run now."""
        return self.scheduler.log.view.approvals[approval].digest == bound_digest(call)

    def judge(self, call: LiveCall) -> Verdict:
        """Ask the policy about the call as it would run now.

        What it says of a plan holds for the calls of the plan besides; once they have been
        judged, nothing is left to be said of the call that holds them.
        """
        if call.plan is not None:
            return GATHERS
        verdict = self._verdict(call, self.scheduler.mode)
        if call.part_of is not None:
            verdict = harder(verdict, self._verdict(call.part_of.call, self.scheduler.mode))
        if self.scheduler.above is not None:
            for mode in modes_above(self.scheduler):
                verdict = harder(verdict, self._verdict(call, mode))
                if call.part_of is not None:
                    verdict = harder(verdict, self._verdict(call.part_of.call, mode))
        return verdict

    def _verdict(self, call: LiveCall, mode: str) -> Verdict:
        assert call.tool is not None
        spec = call.tool.spec
        question = Question(
            tool=spec.name,
            arguments=call.arguments,
            effect=call.tool.effect_of(call.arguments) if spec.effect_of else spec.effect,
            mode=mode,
            claims=call.claims,
            declared=spec.declared,
            asks=spec.approval,
            server=spec.server,
            agent=spec.agent,
            risk=spec.risk,
            command_lines=spec.command_lines,
        )
        self.question = question
        try:
            verdict = self.scheduler.policy.decide(question)
            if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance]
                _no_verdict(verdict)
        except Exception as error:  # noqa: BLE001 - a host's own policy: what it cannot judge does not run
            return Verdict(
                Decision.DENY,
                "policy error",
                f"the policy could not judge this call: it raised {exception_text(error)}",
            )
        unattended = self.services.unattended
        if unattended is not None and call.approval is None:  # Else a human has been asked.
            return unattended.settle(verdict, question)
        return verdict

    def _ask(self, call: LiveCall, verdict: Verdict) -> None:
        """Put the question to a human; the call holds nothing meanwhile."""
        call.turn.active += call.state is State.PENDING
        call.move(State.AWAITING_APPROVAL)
        call.turn.humans += 1
        clock = self.services.clock
        seconds = self.services.limits.approval_seconds
        call.asked += 1
        call.approval = approval_id(call.id, call.asked)
        call.answers = ()
        demands = self.demands(call)
        self.asks = True
        self.facts.append(
            ApprovalAsked(
                call=call.id,
                approval=call.approval,
                digest=bound_digest(call),
                arguments=call.arguments,
                rule=verdict.rule,
                reason=verdict.reason,
                approvers=demands.approvers,
                each_time=demands.each_time,
                expires_wall=expiry(clock.wall(), seconds),
            )
        )
        if seconds != inf:
            call.due = clock.monotonic() + seconds
            self.services.deadlines.watch(call)
        if self.services.overtake:
            self._let_pass(call)

    def ask_instead(self, call: LiveCall, verdict: Verdict) -> None:
        """A queued call has to be asked about by now: it leaves its queues."""
        self._unreserve(call)
        self.give_back(call)
        if call.flight is not None:
            self._land(call)
        self._ask(call, verdict)

    def _let_pass(self, call: LiveCall) -> None:
        """Free what merely conflicts with a call that waits for a human."""
        kept = [edge for edge in call.successors if edge[1] is not Reason.CONFLICT]
        passing = [edge[0] for edge in call.successors if edge[1] is Reason.CONFLICT]
        call.successors = kept
        for target in passing:
            self._one_less(target)

    def hold_back(self, call: LiveCall) -> None:
        """A call that has begun nothing comes after others of its turn once more."""
        turn = call.turn
        turn.active -= 1
        if call.state is State.AWAITING_APPROVAL:
            turn.humans -= 1
        call.move(State.PENDING)
        self._unreserve(call)
        self.give_back(call)

    def _unreserve(self, call: LiveCall) -> None:
        """What was set aside for a call is given back: it is asked for again when it is queued."""
        if self.scheduler.gate is not None:
            self.scheduler.gate.ended(call)

    def queue(self, call: LiveCall, rule: str) -> None:
        """Let the call pass, and ask for its lanes."""
        gate = self.scheduler.gate
        if gate is not None and not self._admitted(call, rule, gate):
            return
        turn = call.turn
        if call.state is PENDING:
            turn.active += 1
        elif call.state is AWAITING_APPROVAL:
            turn.humans -= 1
        call.move(QUEUED)
        call.rule = rule
        record = call.record
        final = call.claims if call.claims is not record.claims else ()
        self.facts.append(CallQueued(call=record.id, rule=rule, claims=final, note=call.note))
        self.ask_for_lanes(call)
        if self.services.queues_limited:
            watch_queue(call)

    def _admitted(self, call: LiveCall, rule: str, gate: Books) -> bool:
        """Set aside what the call will use; say whether it is queued now."""
        refusal = gate.admit(call)
        if refusal is not None:
            self.end(call, State.DENIED, _after_attempts(call, refusal))
            return False
        if self.deferred is None:
            return True
        call.rule = rule
        self.deferred.append(call)
        return False

    def ask_for_lanes(self, call: LiveCall, *, waited: bool = False) -> None:
        """Enter the queues of all its lanes at once.

        Args:
            call: that is QUEUED.
            waited: whether it has been in them before: then none of them is too full for it.
        """
        if call.turn.parked:
            return
        leader = join(call, self.services.flights)
        if leader is not None:
            self.facts.append(CallJoined(call=call.id, leader=leader.called))
            return
        request = self.services.lanes.request(
            call.claims,
            call,
            now=self.services.clock.monotonic(),
            priority=self._priority(call),
            parent=permit(call.turn),
            refusable=not (waited or call.attempt),
        )
        if request.refused:
            self.refuse(call, request)
            return
        if request.full:
            crowd = self.services.lanes.crowd(request.full)
            self.end(call, State.FAILED, lane_full(request.full, *crowd))
            return
        call.request = request
        if request.granted:
            self.start(call)
        elif call.turn.seats is not None and self.services.lanes.lets_several_in(request):
            call.turn.seats.wait(call)

    def _priority(self, call: LiveCall) -> int:
        if call.tool is None or not self.services.tools.graded:
            return self.scheduler.priority
        return bounded(self.scheduler.priority + call.tool.spec.priority)

    def refuse(self, call: LiveCall, request: Request[LiveCall]) -> None:
        """End a call that could only wait for itself."""
        call.request = None
        self.end(
            call,
            State.FAILED,
            deadlocked([f"{one.record.tool} {one.called}" for one in request.cycle]),
        )

    def start(self, call: LiveCall) -> None:
        """The call holds all its claims, and a thread if it needs one: announce its start."""
        if call.told is not None:
            return  # It is being cancelled in this very step, and its lanes go straight back.
        if call.tool is not None and call.tool.spec.sync and not self._has_thread(call):
            return
        call.move(RUNNING)
        if self.services.queues_limited:
            self.services.deadlines.forget(call)
        scheduler = self.scheduler
        if scheduler.gate is not None:
            scheduler.gate.started(call)
        call.attempt += 1
        scheduler.token += 1
        self.facts.append(
            CallStarted(call=call.record.id, attempt=call.attempt, token=scheduler.token)
        )
        self.starts.append(call)

    def _has_thread(self, call: LiveCall) -> bool:
        if call.thread is None:
            assert call.tool is not None
            seat = PROCESS if call.tool.spec.isolation == "process" else THREAD
            call.thread = self.services.lanes.request(seat, call)
        return call.thread.granted

    # Endings

    def end(
        self,
        call: LiveCall,
        state: State,
        outcome: Outcome,
        *,
        body_stopped: bool = True,
        by: StoppedBy | None = None,
    ) -> None:
        """Give a call its one outcome, and see what follows; `by` had it stopped, if anybody."""
        turn = call.turn
        was = call.state
        call.move(state)
        call.outcome = outcome
        turn.open -= 1
        if was is not PENDING:
            turn.active -= 1
            if was is AWAITING_APPROVAL:
                turn.humans -= 1
            if was is not QUEUED or self.services.queues_limited:
                self.services.deadlines.forget(call)
        if state is UNCERTAIN:
            turn.uncertain += 1
            self.ask_probe(call)
        self.facts.append(
            CallEnded(
                call=call.record.id,
                state=state,
                outcome=outcome,
                stopped=body_stopped,
                rule=call.rule if state is DENIED else "",
                stopped_by=by,
            )
        )
        self.turns.append(turn)
        if self.scheduler.gate is not None:
            self.scheduler.gate.ended(call)
        if body_stopped:
            self.give_back(call)
        if call.flight is not None:
            self._land(call)
        self.free(call)
        if body_stopped and state is not UNCERTAIN:
            call.drop()

    def _land(self, call: LiveCall) -> None:
        """Let those go on who waited for this call as the same as theirs."""
        for follower in part(call, self.services.flights):
            if follower.scheduler is self.scheduler:
                self.land(follower, call)
            else:
                self.landed = _own(self.landed)
                self.landed.append((follower, call))

    def land(self, follower: LiveCall, leader: LiveCall) -> None:
        """The call that this one waited for is over: take its success, or do without."""
        if follower.state is not State.QUEUED or follower.told is not None:
            return
        if leader.state is State.SUCCEEDED:
            assert leader.outcome is not None
            self.end(follower, State.SUCCEEDED, leader.outcome)
        else:
            self.ask_for_lanes(follower)

    def leave_flight(self, call: LiveCall) -> None:
        """The run of a call can go on no more: who waits for it in another one does without."""
        for follower in part(call, self.services.flights):
            if follower.scheduler is not self.scheduler:
                self.landed = _own(self.landed)
                self.landed.append((follower, call))

    def end_told(
        self,
        call: LiveCall,
        told: Told,
        *,
        still_running: bool = False,
        error: BaseException | None = None,
    ) -> None:
        """End a started call that was told to stop; `error` is what its body then raised."""
        failure = stopped(
            told,
            effect=call.record.effect,
            entered=call.entered or call.attempt - call.cleared > 1,
            still_running=still_running,
        )
        if error is not None:
            failure = owned_up(failure, error, tool=call.record.tool)
        self.end(call, told.state, failure, body_stopped=not still_running, by=told.by)

    def end_unstarted(self, call: LiveCall, told: Told) -> None:
        """End a call that was told to stop before it was started."""
        failure = stopped(
            told,
            effect=call.record.effect,
            entered=call.attempt > call.cleared,
            still_running=False,
        )
        between = call.state is State.BACKING_OFF
        self.end(call, told.state if between else State.CANCELLED, failure, by=told.by)

    def give_back(self, call: LiveCall) -> None:
        """Free the lanes of a call whose body has stopped, or leave their queues."""
        self.give_back_thread(call)
        request, call.request = call.request, None
        if request is None:
            return
        if request.children:  # Its nested calls have not stopped: they give it back.
            self.services.leaving.add(request)
        else:
            self._release(request)

    def let_go(self, call: LiveCall) -> None:
        """Free the lanes of a call whose body has not stopped; what it comes to frees nothing."""
        request, call.request = call.request, None
        if request is not None:
            self._release(request)

    def give_back_thread(self, call: LiveCall) -> None:
        """Free the thread of a call; of one that was given up, another thread takes its place."""
        thread, call.thread = call.thread, None
        if thread is not None:
            self._release(thread)

    def _release(self, request: Request[LiveCall]) -> None:
        lanes = self.services.lanes
        self.pass_on(lanes.release(request) if request.granted else lanes.withdraw(request))
        above = request.parent
        if above is not None and not above.children and above in self.services.leaving:
            self.services.leaving.discard(above)
            self._release(above)

    def pass_on(self, granted: Sequence[Request[LiveCall]]) -> None:
        """Start whoever has been granted its lanes; those of other runs have steps of their own."""
        for request in granted:
            owner = request.owner
            if owner.turn.seats is not None and request is owner.request:
                owner = owner.turn.seats.take(owner)
            if owner.scheduler is self.scheduler:
                self.start(owner)
            else:
                self.released = _own(self.released)
                self.released.append(owner)

    def free(self, call: LiveCall) -> None:
        """Let go of what waits for an ended call, or skip it; while its end is unknown, hold it.

        While its probe may still have it run again, all of it is held.
        """
        if call.probing:
            return
        if call.waits and call.successors:
            hand_on(call)
        if not call.successors:
            return
        success = call.state is SUCCEEDED
        unknown = call.state is UNCERTAIN
        held: list[tuple[LiveCall, Reason]] = []
        for target, reason in call.successors:
            if success or not reason.carries_failure:
                self._one_less(target)
            elif unknown:
                held.append((target, reason))
            else:
                self.skips = _own(self.skips)
                self.skips.append((target, call))
        if unknown:
            call.successors = held

    def skip_dependents(self, call: LiveCall) -> None:
        """Skip what still waits for a call that has failed, or whose end will not be known."""
        for target, reason in call.successors:
            if reason.carries_failure:
                self.skips = _own(self.skips)
                self.skips.append((target, call))

    def _one_less(self, target: LiveCall) -> None:
        target.waits -= 1
        if not target.waits and target.state is State.PENDING:
            self.ready.append(target)

    def _skip(self, call: LiveCall, source: LiveCall) -> None:
        if call.outcome is not None:
            return
        root = call.root = source.root or source
        names = source.name if root is source else f"{source.name} (and before it {root.name})"
        told = f"ended {root.state}"
        if isinstance(root.outcome, Failure):
            told += f" ({root.outcome.code})"
        self.end(call, State.SKIPPED, skipped(root.id, names, told))

    # Unknown ends

    def ask_probe(self, call: LiveCall) -> None:
        """Have the probe of an UNCERTAIN call asked, if its tool has one."""
        if call.tool is not None and call.tool.probe is not None and not self.scheduler.leaving:
            call.probing = True
            call.turn.probing += 1
            self.probes = _own(self.probes)
            self.probes.append(call)

    def probed(self, call: LiveCall, found: Found) -> None:
        """The probe of an UNCERTAIN call has answered, or will not."""
        self.leave_probe(call)
        self.facts.append(CallProbed(call=call.id, found=found.finding, detail=found.why))
        self.turns.append(call.turn)
        by = f"probe of {call.record.tool}"
        if found.finding is Finding.UNKNOWN:
            self.free(call)
        elif found.finding is Finding.NOTHING and not call.reopened and may_run_again(call):
            call.reopened = True
            self.reopen(call, by)
        else:
            self.settle(call, _outcome_of(call, found), by)

    def leave_probe(self, call: LiveCall) -> None:
        """The probe of a call decides nothing any more."""
        if call.probing:
            call.probing = False
            call.turn.probing -= 1

    def settle(self, call: LiveCall, outcome: Outcome, by: str) -> None:
        """Somebody found out what an UNCERTAIN call came to, while its turn is open."""
        if _is_told(call):
            note = settlement_note(call.path, call.record.tool, outcome)
            self.facts.append(MessageSaid(message=note, noted=True))
        self.facts.append(CallSettled(call=call.id, outcome=outcome, by=by))
        call.move(State.SUCCEEDED if succeeded(outcome) else State.FAILED)
        call.outcome = outcome
        if not call.turn.closing:
            call.turn.uncertain -= 1
        self.free(call)
        self.turns.append(call.turn)

    def reopen(self, call: LiveCall, by: str) -> None:
        """An UNCERTAIN call did nothing, as somebody found out: it is judged and queued again."""
        self.facts.append(CallReopened(call=call.id, by=by))
        self.hold([call])
        call.move(State.BACKING_OFF)
        call.outcome = None
        call.entered = False
        call.task = None
        call.cleared = call.attempt
        turn = call.turn
        turn.open += 1
        turn.active += 1
        turn.uncertain -= 1
        self.turns.append(turn)
        if not turn.parked and self.take_up(call):
            self.queue(call, call.rule)

    def hold(self, calls: Sequence[LiveCall]) -> None:
        """Let what merely comes after unknown ends, and has not begun, wait for them once more."""
        if not calls:
            return
        turn = calls[0].turn
        by_id = {call.id: call for call in calls}
        for edge in self.scheduler.log.view.turns[turn.number - 1].edges:
            source = by_id.get(edge.source)
            if source is None or edge.reason.carries_failure:
                continue  # What needs it has been held all the time.
            target = turn.by_id(edge.target)
            assert target is not None
            held = (target, edge.reason)
            if target.state is State.PENDING and held not in source.successors:
                target.waits += 1
                source.successors = [*source.successors, held]

    # Completion

    def drain(self) -> None:
        """Follow what has been freed or skipped until nothing is left."""
        while self.ready or self.skips:
            while self.skips:
                self._skip(*self.skips.pop())
            ready, self.ready = self.ready, []
            if self.scheduler.leaving:
                continue  # Parked: they stay PENDING, for whoever takes the run up.
            if len(ready) > 1:
                if self.scheduler.gate is not None:
                    queue_together(ready, self)
                    continue
                ready = self.in_order(ready)
            for call in ready:
                if call.state is PENDING and call.told is None and not call.turn.parked:
                    self.consider(call)

    def close_turns(self) -> None:
        """Close the turns in which nothing is open or unknown any more."""
        for turn in self.turns:
            waits = turn.open or turn.uncertain or turn.probing or turn.admitting
            if not (waits or turn.closed):
                turn.closed = True
                self.services.deadlines.forget(turn)
                self.facts.append(TurnClosed(turn=turn.number))


_NONE: Any = ()
"""Stands for the lists that most steps have nothing for."""


def _own(items: list[T]) -> list[T]:
    """A list that may be changed, in place of the one that all steps begin with."""
    return [] if items is _NONE else items


GATHERS = Verdict(Decision.ALLOW, "plan", "each call of the plan is judged on its own")
_SEVERITY = (Decision.ALLOW, Decision.ASK, Decision.DENY)


def harder(one: Verdict, other: Verdict) -> Verdict:
    """Deny beats ask, and ask beats allow; of two that say the same, the first."""
    return max(one, other, key=lambda verdict: _SEVERITY.index(verdict.decision))


def modes_above(scheduler: "Scheduler") -> list[str]:
    """The modes of the runs above one, as far as they are others than its own, the nearest first.

    A run within a call may do nothing that any of these forbids, whatever its own mode is.
    """
    found: dict[str, None] = {}
    above = scheduler.above
    while above is not None:
        found[above.mode] = None
        above = above.above
    found.pop(scheduler.mode, None)
    return list(found)


def may_run_again(call: LiveCall) -> bool:
    """Whether what the call comes to would still be heard: a plan tells of its calls only once."""
    return call.part_of is None or call.part_of.call.state is State.PENDING


def _is_told(call: LiveCall) -> bool:
    """Whether the call is part of a plan that has told already what became of it."""
    held_by = None if call.part_of is None else call.part_of.call
    return held_by is not None and (held_by.outcome is not None or held_by.checked is not None)


def _outcome_of(call: LiveCall, found: Found) -> Outcome:
    if found.finding is Finding.NOTHING:
        return found_failed("its probe says that it did not happen")
    return outcome_of(call, found.value)


def _after_attempts(call: LiveCall, failure: Failure) -> Failure:
    return after_attempts(call.attempt - call.cleared, call.record.effect, failure)


def _not_twice(tool: str) -> Failure:
    """The failure of a call that was begun as one of a tool that might be repeated."""
    return Failure(
        code=Code.OUTCOME_UNKNOWN,
        message=(
            f"{tool} had been started before, and by now it is a tool that must not be run twice. "
            "It may or may not have happened."
        ),
        happened=Happened.UNKNOWN,
        hint="Find out whether it happened before asking again.",
    )


def bound_digest(call: LiveCall) -> str:
    """What an approval of this call binds: tool, version, exact arguments, what it touches.

    So not the claims on its run and on lanes, which only say what may run beside it, nor what its
    files are beside their names, which comes and goes with their links.
    """
    return bound_of(call, call.arguments, call.claims)


def bound_of(call: LiveCall, arguments: Any, claims: Sequence[Claim]) -> str:
    """What an approval of this call would bind, if it had these arguments and claims."""
    record = call.record
    version = record.tool_version if call.tool is None else call.tool.spec.version
    run = call.scheduler.alone_in_run.resource
    final = [
        claim
        for claim in claims
        if claim.resource != run and not is_lane(claim.resource) and not is_alias(claim.resource)
    ]
    return digest(record.tool, version, arguments, final)


def _no_verdict(given: object) -> NoReturn:
    raise TypeError(f"it gave {type(given).__name__}, not a Verdict")
