"""The workflow kernel between a language model and its tools.

    provider answer ─ providers ─▶ Turn ─ arguments ─▶ calls ─ graph ─▶ CallGraph
       ─ policies ─▶ verdicts ─ lanes ─▶ permits ─ execution ─▶ outcomes ─ results ─▶ message(s)

The package, from the bottom up:

    ids effects states outcomes claims calls facts errors   the vocabulary: frozen data
    journal/     keeps facts; state is a fold of them
    lanes/       canonical resources, and the queue of each
    policies/    questions and answers; they never act
    engine/      takes calls through all of it: the scheduler is the only loop
    testing/     virtual time, scripted tools, contract suites
    benchmarks/  what it costs
"""

from laneway.claims import Access, Claim
from laneway.effects import Effect
from laneway.engine import history as history
from laneway.engine.abandoning import Abandoned
from laneway.engine.budget_status import BudgetStatus, BudgetWarning
from laneway.engine.context import ToolContext
from laneway.engine.engine import Engine, Status
from laneway.engine.failing import NestedCallFailed, PartialEffect, ToolFailed, TransportClosed
from laneway.engine.isolation.watchdog import Blocked
from laneway.engine.mcp.server import MCPServer
from laneway.engine.mcp.settings import MCPLimits
from laneway.engine.planning import plan_tool
from laneway.engine.probing import Found
from laneway.engine.providers.parts import file_part, image_part
from laneway.engine.reports import StopReport
from laneway.engine.requesting import Request
from laneway.engine.run import Run
from laneway.engine.secrets.marks import Secret
from laneway.engine.services import Limits
from laneway.engine.shape import Shape
from laneway.engine.shaping.options import Shaping
from laneway.engine.shaping.reading import read_result
from laneway.engine.shutdown import Shutdown
from laneway.engine.streaming.stream import Stream
from laneway.engine.telemetry.carrying import continued, trace_context
from laneway.engine.telemetry.options import Telemetry
from laneway.engine.tools import Bound, Tool, tool
from laneway.engine.toolsearch.options import Search
from laneway.engine.turn import Turn
from laneway.engine.undoing.compensation import Done
from laneway.errors import BudgetExceededError, LanewayError
from laneway.lanes.lane import Lane, Rate
from laneway.lanes.statistics import LaneStatus
from laneway.outcomes import Code, Failure, Happened, Outcome, StoppedBy, StopReason, Success
from laneway.policies.budgets import UNLIMITED, Budget, Budgets
from laneway.policies.loops import Loops
from laneway.policies.prices import Price
from laneway.policies.questions import Decision
from laneway.policies.recursion import Recursion
from laneway.policies.rules import Policy, Rule
from laneway.policies.stopping import Reserve
from laneway.policies.unattended import Unattended
from laneway.states import State

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - in plain order, constants among the rest
    "Abandoned",
    "Access",
    "Blocked",
    "Bound",
    "Budget",
    "BudgetExceededError",
    "BudgetStatus",
    "BudgetWarning",
    "Budgets",
    "Claim",
    "Code",
    "Decision",
    "Done",
    "Effect",
    "Engine",
    "Failure",
    "Found",
    "Happened",
    "Lane",
    "LaneStatus",
    "LanewayError",
    "Limits",
    "Loops",
    "MCPLimits",
    "MCPServer",
    "NestedCallFailed",
    "Outcome",
    "PartialEffect",
    "Policy",
    "Price",
    "Rate",
    "Recursion",
    "Request",
    "Reserve",
    "Rule",
    "Run",
    "Search",
    "Secret",
    "Shape",
    "Shaping",
    "Shutdown",
    "State",
    "Status",
    "StopReason",
    "StopReport",
    "StoppedBy",
    "Stream",
    "Success",
    "Telemetry",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "TransportClosed",
    "Turn",
    "UNLIMITED",
    "Unattended",
    "__version__",
    "continued",
    "file_part",
    "image_part",
    "plan_tool",
    "read_result",
    "tool",
    "trace_context",
]
