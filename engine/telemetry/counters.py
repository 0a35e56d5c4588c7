"""The counters of an engine, and of one run of it.

By tool and task class, as far as `Labels` tells them apart: the number of series is bounded by what
the host allows, never by what a model asks for. Written by the rows of `metrics`.
"""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from laneway.engine.telemetry.courses import Course, Courses
from laneway.engine.telemetry.instruments import Instruments
from laneway.engine.telemetry.labels import OTHER, Labels
from laneway.outcomes import Failure

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetStatus
    from laneway.engine.tools import Toolset

Marks = dict[str, str | bool | int]


class Counters:
    """The instruments of an engine, and the names that they tell apart."""

    def __init__(
        self, instruments: Instruments, tools: "Toolset", *, names: int, classes: int
    ) -> None:
        """Tell so many names of tools and budgets apart, and so many task classes."""
        self.instruments = instruments
        self._tools = tools
        self._names = Labels(names)
        self._classes = Labels(classes)
        self._budgets = Labels(names)
        self._breakers = Labels(names)
        self._agents = Labels(names)

    def tool(self, name: str) -> str:
        """A tool's name; those that a model made up are `other`."""
        return self._names.of(name) if name in self._tools else OTHER

    def task_class(self, name: str) -> str:
        """A task class; empty stays empty."""
        return self._classes.of(name) if name else ""

    def budget(self, name: str) -> str:
        """A budget's name."""
        return self._budgets.of(name)

    def breaker(self, name: str) -> str:
        """The key of a circuit breaker: a tool, a server, or what the host calls it."""
        return self._breakers.of(name)

    def agent(self, name: str) -> str:
        """The name of an agent."""
        return self._agents.of(name)


class RunMetrics:
    """Counts for one run."""

    def __init__(self, counters: Counters, courses: Courses, task_class: str, now: float) -> None:
        """Serve a run that is driven since `now`."""
        self.counters = counters
        self.instruments = counters.instruments
        self.courses = courses
        self.task_class = counters.task_class(task_class)
        self.of_class: Marks = {"laneway.task.class": self.task_class} if self.task_class else {}
        self.began = now
        self.turns: dict[int, float] = {}
        self.token_reservations: set[str] = set()

    def marks(self, course: Course) -> Marks:
        """By what the metrics of a call are told apart."""
        return {"gen_ai.tool.name": self.counters.tool(course.record.tool), **self.of_class}

    def count_end(self, course: Course, now: float) -> None:
        """The outcome of a call is final; it is counted once."""
        if course.told:
            return
        course.told = True
        marks = self.marks(course)
        if isinstance(course.outcome, Failure):
            marks["error.type"] = course.outcome.code.value
        self.instruments.call_seconds.record(max(now - course.submitted, 0.0), marks)
        if course.answer:
            marks["laneway.answer"] = course.answer
        self.instruments.calls.add(1, {**marks, "laneway.state": course.state.value})

    def count_attempt(self, course: Course, now: float, error: str) -> None:
        """A body is over, or given up."""
        marks = self.marks(course)
        if error:
            marks["error.type"] = error
        self.instruments.attempt_seconds.record(max(now - course.started, 0.0), marks)

    def left(self, now: float, agent: str, *, top: bool, budgets: Iterable["BudgetStatus"]) -> None:
        """The run is being left."""
        seconds = max(now - self.began, 0.0)
        if agent:
            named: Marks = {"gen_ai.agent.name": self.counters.agent(agent)}
            self.instruments.agent_seconds.record(seconds, named)
        elif top:
            name: Marks = {"gen_ai.workflow.name": self.task_class} if self.task_class else {}
            self.instruments.run_seconds.record(seconds, name)
        else:
            return  # A call of a body: its budgets are those of the run above it.
        for one in budgets:
            if one.limit not in (0, inf):
                share = (one.settled + one.reserved) / one.limit
                marks: Marks = {"laneway.budget": self.counters.budget(one.budget)}
                self.instruments.budget_share.record(share, {**marks, **self.of_class})
