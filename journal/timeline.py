"""When everything in a run happened, on one axis: each driver's own time, hung up on the wall.

A driver's monotonic clock says exactly how long things took, and nothing about another driver's.
So each is placed by the wall clock when it took the run up, and never before the one before it;
within its time a wall clock that jumps moves nothing. Reads the rows of a run once; feeds the
answers and the exports that draw time.
"""

from collections.abc import Iterable

import msgspec

from laneway.errors import DamagedJournalError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallJoined,
    CallProbed,
    CallReopened,
    CallSettled,
    CallStarted,
    Driver,
    Fact,
    HolderStopped,
    LaneChanged,
    LossAccepted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
    TurnClosed,
    TurnStreamed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.fold import CallView, RunView
from laneway.states import ENDED, State


class Moment(msgspec.Struct, frozen=True, gc=False):
    """When a fact was written."""

    seq: int
    at: float
    """Unix seconds on the axis of the run: never less than of an earlier fact."""
    mono: float
    """Monotonic seconds of the driver."""
    driver: int
    """Which of `Timeline.drivers`."""


class Period(msgspec.Struct, gc=False):
    """A call in one state, under one driver."""

    state: State
    began: Moment
    ended: Moment | None = None
    """None while it lasts; where the driver was lost, the last that was heard of it."""
    attempt: int = 0
    cut: bool = False
    """It ends where its driver was lost, and goes on under the next."""


class Attempt(msgspec.Struct, gc=False):
    """One entry into the body of a call."""

    number: int
    token: int
    began: Moment
    ended: Moment | None = None
    cause: str = ""
    """Why another may follow; empty for the last."""
    delay_seconds: float = 0.0


class Question(msgspec.Struct, gc=False):
    """A question to a human, with its times."""

    asked: ApprovalAsked
    asked_at: Moment
    answer: ApprovalAnswered | None = None
    answered_at: Moment | None = None


class Course(msgspec.Struct, eq=False):
    """What befell a call, in order."""

    view: CallView
    periods: list[Period]
    attempts: list[Attempt] = []
    questions: list[Question] = []
    probes: list[CallProbed] = []
    joined: list[str] = []
    """The calls that it waited for as the same."""
    reopened: list[str] = []
    """Who said that it had done nothing, each time."""
    stopped: Moment | None = None
    """When a body stopped that had outlived its call."""
    settled: Moment | None = None

    def holds(self) -> Iterable[tuple[Moment, Moment | None]]:
        """When it held its claims: while it ran, and until a body that outlived it had stopped."""
        for period in self.periods:
            if period.state is State.RUNNING:
                over = period.ended
                if over is not None and period is self._last_run and self.outlived:
                    over = self.stopped
                yield period.began, over

    @property
    def outlived(self) -> bool:
        """Whether its body went on when its outcome stood."""
        return self.view.stuck or self.stopped is not None

    @property
    def _last_run(self) -> Period | None:
        running = (one for one in reversed(self.periods) if one.state is State.RUNNING)
        return next(running, None)


class Drive(msgspec.Struct, gc=False):
    """The time of one driver."""

    driver: Driver | None
    """None for whoever forked the run or gave up a part of it."""
    first: Moment
    last: Moment
    wall: float
    """Unix seconds of its first fact, as its clock said."""
    facts: int = 0
    changes: tuple[str, ...] = ()


class TurnTime(msgspec.Struct, gc=False):
    """From a model's answer to the end of its turn."""

    submitted: Moment
    closed: Moment | None = None


class Timeline:
    """The course of a run and of all its calls."""

    def __init__(self, run: RunId) -> None:
        """Start before the first row."""
        self.view = RunView(run)
        self.drivers: list[Drive] = []
        self.courses: dict[CallId, Course] = {}
        self.turns: list[TurnTime] = []
        self.lane_changes: list[tuple[Moment, LaneChanged]] = []
        self.losses: list[tuple[Moment, LossAccepted]] = []
        self._questions: dict[ApprovalId, Question] = {}

    @property
    def last(self) -> Moment:
        """When the last fact was written; there is one."""
        return self.drivers[-1].last

    def add(self, row: Row) -> None:
        """Take in the next row.

        Raises:
            DamagedJournalError: it is not the next one.
        """
        fact = row.fact
        call: CallId | None = getattr(fact, "call", None)
        course = None if call is None else self.courses.get(call)
        before = None if course is None else course.view.state
        self.view.apply(row)
        moment = self._place(row)
        if course is not None and course.view.state is not before:
            _turn_over(course, moment)
        match fact:
            case TurnSubmitted() | TurnStreamed():
                self._submit(fact, moment)
            case TurnClosed():
                self.turns[fact.turn - 1].closed = moment
            case LaneChanged():
                self.lane_changes.append((moment, fact))
            case LossAccepted():
                self.losses.append((moment, fact))
            case _ if course is not None:
                self._note(course, row, moment)
            case _:
                pass

    def _note(self, course: Course, row: Row, moment: Moment) -> None:
        match row.fact:
            case CallStarted(attempt=number, token=token):
                course.attempts = [*course.attempts, Attempt(number, token, moment)]
            case AttemptEnded(cause=cause, delay_seconds=delay):
                _end_attempt(course, moment, cause, delay)
            case CallEnded():
                _end_attempt(course, moment)
            case ApprovalAsked() as asked:
                question = self._questions[asked.approval] = Question(asked, moment)
                course.questions = [*course.questions, question]
            case ApprovalAnswered() as answer:
                question = self._questions[answer.approval]
                if self.view.approvals[answer.approval].answer is answer:  # Else others must, too.
                    question.answer, question.answered_at = answer, moment
            case _ as seldom:
                _note_seldom(course, seldom, moment)

    def _submit(self, fact: TurnSubmitted | TurnStreamed, moment: Moment) -> None:
        if len(self.turns) < fact.turn:
            self.turns.append(TurnTime(moment))
        for record in fact.calls:
            if record.id in self.courses:
                continue  # It was started while the model still wrote the answer.
            view = self.view.calls[record.id]
            self.courses[record.id] = Course(view, [Period(State.PENDING, moment)])

    def _place(self, row: Row) -> Moment:
        if not self.drivers or isinstance(row.fact, (RunOpened, RunTaken, RunForked, LossAccepted)):
            moment = self._next_driver(row)
        else:
            drive = self.drivers[-1]
            at = max(drive.first.at + row.mono - drive.first.mono, drive.last.at)
            moment = Moment(row.seq, at, row.mono, len(self.drivers) - 1)
        drive = self.drivers[-1]
        drive.last = moment
        drive.facts += 1
        return moment

    def _next_driver(self, row: Row) -> Moment:
        fact = row.fact
        at = max(row.wall, self.last.at) if self.drivers else row.wall
        moment = Moment(row.seq, at, row.mono, len(self.drivers))
        self._hand_over(moment)
        driver = fact.driver if isinstance(fact, (RunOpened, RunTaken)) else None
        changes = fact.changes if isinstance(fact, RunTaken) else ()
        self.drivers.append(Drive(driver, moment, moment, row.wall, changes=changes))
        return moment

    def _hand_over(self, moment: Moment) -> None:
        """What was open goes on under another driver, from when that took the run up."""
        turn = self.view.open_turn
        for view in turn.calls if turn is not None else ():
            course = self.courses[view.id]
            if view.state not in ENDED:
                _end_attempt(course, self.last)
                course.periods[-1].ended, course.periods[-1].cut = self.last, True
                course.periods.append(Period(view.state, moment, attempt=view.attempt))


def timeline(run: RunId, rows: Iterable[Row]) -> Timeline:
    """Lay out the facts of a run, from the first.

    Raises:
        DamagedJournalError: facts are missing.
    """
    found = Timeline(run)
    for row in rows:
        try:
            found.add(row)
        except LookupError as error:
            raise DamagedJournalError(
                run, row.seq, f"it tells of {error}, of which no earlier fact tells"
            ) from error
    return found


def _turn_over(course: Course, moment: Moment) -> None:
    course.periods[-1].ended = moment
    view = course.view
    course.periods.append(Period(view.state, moment, attempt=view.attempt))


def _end_attempt(
    course: Course, moment: Moment, cause: str = "", delay_seconds: float = 0.0
) -> None:
    """Note the end of the attempt that is under way, or what the end of the last one led to."""
    if course.attempts:
        attempt = course.attempts[-1]
        attempt.ended = attempt.ended or moment
        if cause:
            attempt.cause, attempt.delay_seconds = cause, delay_seconds


def _note_seldom(course: Course, fact: Fact, moment: Moment) -> None:
    match fact:
        case CallProbed():
            course.probes = [*course.probes, fact]
        case CallJoined(leader=leader):
            course.joined = [*course.joined, leader]
        case CallReopened(by=by):
            course.reopened = [*course.reopened, by]
        case CallSettled():
            course.settled = moment
        case HolderStopped():
            course.stopped = moment
        case _:
            pass
