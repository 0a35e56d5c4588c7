"""`laneway tools tokens | unused`: what tools cost in each request, and which nobody calls."""

import time
from typing import Annotated

import typer

from laneway.engine.cli.journals import existing, journal_path, list_runs, read_run
from laneway.engine.cli.options import Journal, Json
from laneway.engine.cli.policy_files import tools_or_engine
from laneway.engine.cli.terminal import Terminal
from laneway.engine.toolsearch.cost import toolset_tokens
from laneway.engine.toolsearch.options import SEARCHED_FROM, WHOLE_UP_TO
from laneway.engine.toolsearch.unused import Use, Uses

DAY_SECONDS = 86_400.0
NamedTools = Annotated[
    str, typer.Option("--tools", help="module or module:attribute with the tools, or an engine.")
]

tools_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Looks at toolsets: what they cost, and what of them is used.",
)


@tools_app.command()
def tokens(tools: NamedTools, json: Json = False) -> None:
    """Estimate what the definitions of tools cost in each request, the dearest first."""
    terminal = Terminal(json=json)
    costs = toolset_tokens(tools_or_engine(tools))
    total = sum(costs.values())
    for name, cost in sorted(costs.items(), key=lambda one: (-one[1], one[0])):
        terminal.say(f"{cost:>7,}  {name}")
    terminal.say(f"{total:>7,}  tokens in all, about, for {len(costs)} tools{_advice(len(costs))}")
    terminal.give({"tools": costs, "tokens": total})


@tools_app.command()
def unused(
    tools: NamedTools = "",
    days: Annotated[float, typer.Option(min=0, help="For how long.")] = 30.0,
    journal: Journal = None,
    json: Json = False,
) -> None:
    """List the tools that no run has called for so many days; each costs tokens all the same.

    Without --tools, of those that the runs of the journal knew.
    """
    terminal = Terminal(json=json)
    path = existing(journal_path(journal))
    costs = toolset_tokens(tools_or_engine(tools)) if tools else {}
    uses = Uses(costs)
    for entry in list_runs(path):
        uses.take(read_run(path, entry.run))
    now = time.time()
    found = uses.unused(now - days * DAY_SECONDS)
    for one in found:
        one.tokens = costs.get(one.tool)
        terminal.say(_line(one, now))
    cost = sum(one.tokens or 0 for one in found)
    about = f", about {cost:,} tokens in each request" if cost else ""
    terminal.say(f"{len(found)} of {uses.count} tools unused for {days:g} days{about}")
    terminal.give({"days": days, "unused": found})


def _line(one: Use, now: float) -> str:
    if one.last_wall is None:
        return f"{one.tool}  never called"
    ago = (now - one.last_wall) / DAY_SECONDS
    return f"{one.tool}  last called {ago:.0f} days ago, {one.calls} times in {one.runs} runs"


def _advice(count: int) -> str:
    if count <= WHOLE_UP_TO:
        return ""
    return (
        "; by default they are found by search"
        if count >= SEARCHED_FROM
        else "; they may be found by search (docs/results.md)"
    )
