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
from laneway.engine.context import ToolContext
from laneway.engine.engine import Engine, Status
from laneway.engine.failing import NestedCallFailed, ToolFailed, TransportClosed
from laneway.engine.mcp.server import MCPServer
from laneway.engine.mcp.settings import MCPLimits
from laneway.engine.planning import plan_tool
from laneway.engine.probing import Found
from laneway.engine.reports import StopReport
from laneway.engine.run import Run
from laneway.engine.secrets.marks import Secret
from laneway.engine.services import Limits
from laneway.engine.tools import Bound, Tool, tool
from laneway.engine.turn import Turn
from laneway.errors import LanewayError
from laneway.lanes.lane import Lane, Rate
from laneway.lanes.statistics import LaneStatus
from laneway.outcomes import Code, Failure, Happened, Outcome, StopReason, Success
from laneway.policies.loops import Loops
from laneway.policies.questions import Decision
from laneway.policies.recursion import Recursion
from laneway.policies.rules import Policy, Rule
from laneway.policies.stopping import Reserve
from laneway.policies.unattended import Unattended
from laneway.states import State

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Bound",
    "Claim",
    "Code",
    "Decision",
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
    "Policy",
    "Rate",
    "Recursion",
    "Reserve",
    "Rule",
    "Run",
    "Secret",
    "State",
    "Status",
    "StopReason",
    "StopReport",
    "Success",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "TransportClosed",
    "Turn",
    "Unattended",
    "__version__",
    "plan_tool",
    "tool",
]
