"""Write docs/reference.md from the public docstrings: `python docs/reference.py`.

Reads what `laneway` exports and what its objects hand out; a test compares the page with it.
"""

import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import laneway
from laneway.engine.controls import Lanes
from laneway.engine.explain import Explanation, Wait
from laneway.engine.foreseen import Preview
from laneway.engine.questions import OpenApproval
from laneway.journal.fold import ApprovalView, CallView, GrantView

OURS = frozenset(
    {
        *(
            "Engine.services",
            "Engine.drives",
            "Engine.joined",
            "Engine.leave",
            "Engine.see_that_open",
            "ToolContext.nest",
        ),
        *("Engine.shown", "Run.shown", "Engine.catalogue", "Engine.shaping", "Engine.prompt_for"),
        *("Lanes.room", "Lanes.call_in", "Lanes.tell", "Lanes.close", "Lanes.standing"),
    }
)
"""What the engine's own parts say to each other."""
PAGE = Path(__file__).with_name("reference.md")
GROUPS: dict[str, tuple[Any, ...]] = {
    "The engine": (
        laneway.Engine,
        laneway.Limits,
        laneway.Search,
        laneway.Shaping,
        laneway.Status,
        laneway.Blocked,
        laneway.Shutdown,
    ),
    "A run and its turns": (
        laneway.Run,
        laneway.Turn,
        laneway.Abandoned,
        laneway.Stream,
        CallView,
        ApprovalView,
        OpenApproval,
        GrantView,
    ),
    "Looking": (Explanation, Wait, Preview, laneway.StopReport),
    "Tools": (
        laneway.tool,
        laneway.Tool,
        laneway.ToolContext,
        laneway.plan_tool,
        laneway.image_part,
        laneway.file_part,
        laneway.read_result,
        laneway.Shape,
        laneway.Bound,
        laneway.Secret,
        laneway.Found,
        laneway.Done,
    ),
    "MCP servers": (laneway.MCPServer, laneway.MCPLimits),
    "What a tool raises": (
        laneway.ToolFailed,
        laneway.PartialEffect,
        laneway.NestedCallFailed,
        laneway.TransportClosed,
    ),
    "Lanes": (laneway.Lane, laneway.Rate, Lanes, laneway.LaneStatus, laneway.Claim),
    "Policies": (
        laneway.Policy,
        laneway.Rule,
        laneway.Unattended,
        laneway.Reserve,
        laneway.Loops,
        laneway.Recursion,
    ),
    "Budgets": (
        laneway.Budgets,
        laneway.Budget,
        laneway.UNLIMITED,
        laneway.Price,
        laneway.Request,
        laneway.BudgetStatus,
        laneway.BudgetWarning,
    ),
    "Telemetry": (laneway.Telemetry, laneway.trace_context, laneway.continued),
    "Outcomes": (laneway.Success, laneway.Failure, laneway.Outcome),
    "Words": (
        laneway.Access,
        laneway.Code,
        laneway.StoppedBy,
        laneway.Decision,
        laneway.Effect,
        laneway.Happened,
        laneway.State,
        laneway.StopReason,
    ),
    "Errors": (laneway.LanewayError, laneway.BudgetExceededError),
}


def page() -> str:
    """All of it, as Markdown."""
    lines = [
        "# Reference",
        "",
        "What a host has in its hands, a sentence each, made from the docstrings, which say more.",
    ]
    for group, members in GROUPS.items():
        lines += ["", f"## {group}"]
        for member in members:
            lines += ["", *_described(member)]
    return "\n".join(lines) + "\n"


def _described(member: Any) -> Iterator[str]:
    if member == laneway.UNLIMITED:
        yield "### `UNLIMITED`\n\nLifts a budget, by name: `Budgets(model_turns=UNLIMITED)`."
        return
    if get_args(member):
        yield f"### `Outcome`\n\n{' or '.join(f'`{one.__name__}`' for one in get_args(member))}."
        return
    yield f"### `{member.__name__}`"
    yield ""
    yield _sentence(member)
    if inspect.isclass(member):
        parts = [
            part
            for part in vars(member).items()
            if not part[0].startswith("_") and f"{member.__name__}.{part[0]}" not in OURS
        ]
        told = [line for name, part in parts for line in _part(name, part)]
        every = getattr(member, "__struct_fields__", getattr(member, "__dataclass_fields__", ()))
        fields = [
            name
            for name in every
            if not name.startswith("_") and f"{member.__name__}.{name}" not in OURS
        ]
        values = [str(one.value) for one in member] if hasattr(member, "__members__") else []
        if fields:
            yield f"\nFields: {', '.join(f'`{name}`' for name in fields)}."
        if values:
            yield f"\n{', '.join(f'`{value}`' for value in values)}."
        if told:
            yield ""
            yield from told


def _part(name: str, part: Any) -> Iterator[str]:
    if isinstance(part, (property, cached_property)):
        yield f"- `.{name}`: {_sentence(part)}"
    elif inspect.isfunction(part) or isinstance(part, (classmethod, staticmethod)):
        function = part if inspect.isfunction(part) else part.__func__
        given = ", ".join(
            one
            for one in inspect.signature(function).parameters
            if one not in ("self", "cls", "kind", "error", "trace")
        )
        wait = "await " if inspect.iscoroutinefunction(function) else ""
        yield f"- `{wait}{name}({given})`: {_sentence(function)}"


def _sentence(member: Any) -> str:
    text = inspect.getdoc(member) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
