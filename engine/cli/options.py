"""The options and arguments that several commands take, each said once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
Journal = Annotated[
    Path | None,
    typer.Option(help="The journal's file; $LANEWAY_JOURNAL, else ./laneway.db, if not given."),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN.json", help="Calls, and what each needs.")]
ToolsName = Annotated[str, typer.Option(help="module or module:attribute with the tools.")]
PolicyFile = Annotated[Path | None, typer.Option(help="A TOML file of rules.")]
Mode = Annotated[str, typer.Option(help="build, plan, or a mode of the policy.")]
Workspace = Annotated[Path, typer.Option(help="The folder that relative file names start from.")]
LaneLimits = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=N", help="How many calls a lane takes at once; repeatable."),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of a run.")]
