"""The books of a run while it is driven: what its calls and turns draw on, up through its tree.

A run within a call draws on its own budgets and on those of every tree that it is part of, in one
check. Reads what the host gave, the fold and the claims of calls; answers the scheduler before a
call is queued, and the run before a turn is taken in or a request made.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from laneway.engine.budget_status import BudgetStatus, BudgetWarning, status_of
from laneway.engine.providers.reply import Reply
from laneway.engine.run_clock import RunClock
from laneway.engine.tally import left_open, used
from laneway.errors import JournalError
from laneway.facts import BudgetNeared
from laneway.ids import RunId
from laneway.journal.fold import RunView
from laneway.outcomes import Failure
from laneway.policies.budgets import MICROS, Budgets, Limit, Scope, Unit
from laneway.policies.ledger import (
    RULE,
    Line,
    Refused,
    Wants,
    concerns,
    exceeded,
    hold,
    release,
    reserve,
    settle,
)

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.services import Services
    from laneway.journal.writer import RunLog

CALLS = (Unit.TOOL_CALLS, Unit.ATTEMPTS)


class Booked(Line):
    """A line in the books of one account."""

    account: "Account"


class Account:
    """The books of one run."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        *,
        log: "RunLog",
        services: "Services",
        budgets: Budgets,
        given: Sequence[Limit],
        above: "Account | None",
        spent_seconds: float,
        on_over: Callable[[], None],
        on_end: Callable[[str, str], None],
        last: bool,
    ) -> None:
        """Open the books.

        Args:
            log: of the run.
            services: of the engine.
            budgets: the narrowest that says what models cost, and how tokens are counted.
            given: the limits.
            above: the books of the run of whose call this one is part.
            spent_seconds: at work so far.
            on_over: called when the time is used up.
            on_end: called with the reason and the budget when the model is let in no more.
            last: whether the run has stopped for that: what was kept back may be used.
        """
        self.log = log
        self.services = services
        self.budgets = budgets
        self.above = above
        self.chain: tuple[Account, ...] = (self, *(() if above is None else above.chain))
        """Its own books, and those of each run above."""
        self.paid: list[tuple[str, object]] = []
        """Answers that a request has settled and that have not been submitted: key and message."""
        self._on_over = on_over
        self.end = on_end
        """To be called with the reason and the budget when the model is let in no more."""
        self._held: dict[LiveCall, Wants] = {}
        """What is set aside for calls that have not been started."""
        self._below: dict[RunId, dict[str, int]] = {}
        """What runs in the tree had used when they were last seen, by line."""
        self._requests = log.view.reservations
        view = log.view
        self.lines = [self._line(limit, view) for limit in given if limit.unit is not Unit.SECONDS]
        seconds = next(limit for limit in given if limit.unit is Unit.SECONDS)
        neared = view.neared.get(seconds.key, 0)
        self.clock = RunClock(
            services.clock, services.deadlines, seconds.limit, spent_seconds, neared, self._reached
        )
        self._seconds = seconds
        self.wide = [line for line in self.lines if line.limit.scope is not Scope.RUN]
        self.calls = [*self._drawn(*CALLS)]
        """What calls draw on, if they are of the right tool and lane."""
        self.turns = [(line, 1) for line in self._drawn(Unit.MODEL_TURNS)]
        self.tokens = self._drawn(Unit.TOKENS)
        self.cost = self._drawn(Unit.COST)
        of_requests = (*(line for line, _ in self.turns), *self.tokens, *self.cost)
        self._bounded = [line for line in of_requests if line.limit.limit != inf]
        self.keep_back(last=last)
        self._join(view)

    def _line(self, limit: Limit, view: RunView) -> Booked:
        settled, reserved = (0, 0)
        if limit.unit not in CALLS or limit.limit != inf:
            settled, reserved = used(view, limit)
        if limit.unit in CALLS:
            reserved = 0  # They are set aside again as the calls come to life.
        key = limit.key
        neared = view.neared.get(key, 0)
        return Booked(
            limit=limit, key=key, settled=settled, reserved=reserved, neared=neared, account=self
        )

    def _drawn(self, *units: Unit) -> list[Booked]:
        own = [line for line in self.lines if line.limit.scope is Scope.RUN]
        drawn = [*own, *(line for one in self.chain for line in one.wide)]
        found = [line for line in drawn if line.limit.unit in units]
        # Calls are counted by the fold, so a line without a limit is of no use to them.
        return [one for one in found if one.limit.limit != inf or one.limit.unit not in CALLS]

    def keep_back(self, *, last: bool) -> None:
        """Put a share for a last summary out of reach, until it is all that is left."""
        reserve = self.services.reserve
        if reserve is None:
            return
        for line in self._bounded:
            if line.limit.scope is Scope.RUN:
                share = {Unit.MODEL_TURNS: reserve.turns, Unit.TOKENS: reserve.tokens}
                kept = 0 if last else share.get(line.limit.unit, 0)
                line.kept_back = int(min(kept, line.limit.limit))

    # The tree

    def _join(self, view: RunView) -> None:
        """Count what the run has used in the trees above it, in place of what was known before."""
        if self.above is None:
            return
        for account in self.above.chain:
            known = account._below.pop(view.run, {})  # noqa: SLF001 - of its own kind
            for line in account.wide:
                settled, reserved = used(view, line.limit)
                line.settled += settled - known.get(line.key, 0)
                line.reserved += 0 if line.limit.unit in CALLS else reserved

    def count_below(self, view: RunView) -> None:
        """Count what a run in the tree had used that nobody drives now."""
        known = self._below[view.run] = {}
        for line in self.wide:
            settled = used(view, line.limit)[0] + left_open(view, line.limit)
            line.settled += settled
            known[line.key] = settled

    def close(self) -> None:
        """The run is left: give back what was never begun, and remember what it has used."""
        self.clock.close()
        for wants in self._held.values():
            release(wants)
        self._held.clear()
        if self.above is not None:
            view = self.log.view
            for account in self.above.chain:
                account._below[view.run] = {  # noqa: SLF001 - of its own kind
                    line.key: used(view, line.limit)[0] for line in account.wide
                }

    # Calls

    @property
    def gates(self) -> bool:
        """Whether calls have to be looked at before they are queued."""
        return bool(self.calls) or self.services.tools.hasty or self.over is not None

    @property
    def over(self) -> "Account | None":
        """Whose time is used up, of this run and those above it."""
        for one in self.chain:
            if one.clock.over:
                return one
        return None

    def admit(self, call: "LiveCall") -> Failure | None:
        """Set aside what a call draws on, before it is queued; or say why it may not be."""
        if call in self._held or (call.plan is not None and call.plan.calls):
            return None
        refusal = self._too_late(call)
        if refusal is not None:
            return refusal
        wants = self._wants(call)
        answer = reserve(wants)
        if isinstance(answer, Refused):
            call.rule = f"{RULE}{answer.line.key}"
            return exceeded(answer)
        self._held[call] = wants
        self.look(wants)
        return None

    def hold(self, call: "LiveCall") -> None:
        """Set aside again what was set aside for a call that an earlier driver had queued."""
        wants = self._held[call] = self._wants(call)
        hold(wants)

    def started(self, call: "LiveCall") -> None:
        """A call is begun: what was set aside is used."""
        settle(self._held.pop(call, ()))

    def ended(self, call: "LiveCall") -> None:
        """A call is over; what it never began is given back."""
        release(self._held.pop(call, ()))

    def _wants(self, call: "LiveCall") -> Wants:
        tool, resources = call.record.tool, {claim.resource for claim in call.claims}
        return [
            (line, 1)
            for line in self.calls
            if (line.limit.unit is Unit.ATTEMPTS or not call.attempt)
            and concerns(line.limit, tool, resources)
        ]

    def _too_late(self, call: "LiveCall") -> Failure | None:
        over = self.over
        if over is not None:
            call.rule = f"{RULE}seconds"
            return over.time_used_up()
        least = 0.0 if call.tool is None else call.tool.spec.minimum_seconds
        left = self.left_seconds if least else inf
        if left < least:
            call.rule = f"{RULE}seconds"
            return exceeded(
                f"{call.record.tool} needs at least {least:g} s, and {left:.3g} s are left of the "
                "run's time"
            )
        return None

    @property
    def time_told(self) -> str:
        """That no time is left, in words."""
        return f"the run's time of {self._seconds.limit:g} s is used up"

    @property
    def left_seconds(self) -> float:
        """What is left of the run's time, and of that of each run above it."""
        return min(one.clock.left_seconds for one in self.chain)

    def time_used_up(self) -> Failure:
        """The outcome of a call for which no time is left."""
        return exceeded(self.time_told)

    # Thresholds

    def look(self, wants: Wants) -> None:
        """Tell of the thresholds that what was just set aside or used has reached."""
        for line, _ in wants:
            for percent in line.crossed():
                assert isinstance(line, Booked)
                line.account.near(line.limit, percent, line.used)

    def near(self, limit: Limit, percent: int, amount: float) -> None:
        """Write down that a threshold has been reached, then tell the host."""
        scale = MICROS if limit.unit is Unit.COST else 1
        most, amount = limit.limit / scale, amount / scale
        fact = BudgetNeared(budget=limit.key, percent=percent, used=amount, limit=most)
        warning = BudgetWarning(
            run=self.log.view.run, budget=limit.key, percent=percent, used=amount, limit=most
        )
        tell = self.services.on_budget

        def kept(error: JournalError | None) -> None:
            if error is None and tell is not None:
                # What the host's own function raises is the event loop's to report.
                self.services.loop.call_soon(tell, warning)

        with suppress(JournalError):  # Of a run that was left nothing more is written.
            self.services.journal.post(self.log, [fact], kept)

    def _reached(self, percent: int) -> None:
        if percent == 100:  # noqa: PLR2004 - all of it
            self._on_over()
        else:
            self.near(self._seconds, percent, self.clock.spent_seconds)

    # For the host

    def statuses(self) -> dict[str, BudgetStatus]:
        """How every budget stands: those of the run, and what the host gave besides."""
        view = self.log.view
        found: dict[str, BudgetStatus] = {}
        for line in self.lines:
            settled, reserved = line.settled, line.reserved
            if line.limit.unit in CALLS and line.limit.limit == inf:
                settled, reserved = used(view, line.limit)
            found[line.key] = status_of(line.limit, settled, reserved)
        found[self._seconds.key] = status_of(self._seconds, self.clock.spent_seconds, 0)
        return found

    def exhausted(self) -> tuple[str, str]:
        """Why no further answer of the model may be let in, and by which budget, or nothing."""
        over = self.over
        if over is not None:
            return over.time_told, over._seconds.key  # noqa: SLF001 - of its own kind
        for line in self._bounded:
            if line.settled + line.reserved >= line.limit.limit - line.kept_back:
                return str(Refused(line, 1)), line.key
        return "", ""

    # Model requests

    @property
    def counts_cost(self) -> bool:
        """Whether anything has to be priced."""
        return any(line.limit.limit != inf for line in self.cost)

    def next_request(self) -> int:
        """A number that no request of the run has had."""
        self._requests += 1
        return self._requests

    def is_paid(self, reply: Reply) -> bool:
        """Whether a request has settled an answer, which is then charged no more."""
        for at, (key, message) in enumerate(self.paid):
            if (key and key == reply.key) or message == reply.message:
                del self.paid[at]
                return True
        return bool(reply.key) and reply.key in self.log.view.paid_replies
