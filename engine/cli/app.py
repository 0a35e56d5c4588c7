"""The commands: what each takes, does and prints. What a caller did wrong ends as exit code 2."""

import asyncio
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from laneway.engine.cli import journals, plans
from laneway.engine.cli.commands import housekeeping
from laneway.engine.cli.commands.approvals import approvals, approve, deny
from laneway.engine.cli.commands.compare import compare_
from laneway.engine.cli.commands.export import export
from laneway.engine.cli.commands.fork import fork_
from laneway.engine.cli.commands.history import history_app
from laneway.engine.cli.commands.mcp_proxy import mcp_proxy
from laneway.engine.cli.commands.policy import policy_app
from laneway.engine.cli.commands.replay import replay_
from laneway.engine.cli.commands.report import report_
from laneway.engine.cli.commands.settle import settle
from laneway.engine.cli.commands.tools import tools_app
from laneway.engine.cli.commands.verify import verify_
from laneway.engine.cli.commands.why import why
from laneway.engine.cli.lanes import read_lanes
from laneway.engine.cli.lanes_shown import ShownLanes
from laneway.engine.cli.lanes_table import next_look, table_lines, watch_lanes
from laneway.engine.cli.options import (
    Journal,
    Json,
    LaneLimits,
    Mode,
    PlanFile,
    PolicyFile,
    RunName,
    ToolsName,
    Workspace,
)
from laneway.engine.cli.progress import Progress
from laneway.engine.cli.resuming import carry_on_of
from laneway.engine.cli.shown import ShownRun, read_shown, show_run, workspace_of
from laneway.engine.cli.stores import CrashingStore, ObservedStore
from laneway.engine.cli.terminal import Terminal, program
from laneway.engine.cli.tree import result_lines, tree_lines
from laneway.engine.cli.watching import watch_run
from laneway.errors import DamagedJournalError, LanewayError, UsageError
from laneway.journal.loss import accept_loss
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore


class Commands(TyperGroup):
    """Turns an error that is the caller's into one message and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except LanewayError as error:
            print(f"laneway: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print(
                "laneway: interrupted; what was running has been cancelled, and is recorded so",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Runs the tool calls of a language model, and shows what became of them.",
    epilog="Exit codes: 0 all is well; 1 calls did not succeed or a turn is open; "
    "2 what was given cannot be used, and nothing was begun.",
)


@app.command()
def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="For the project and its journal; a new temporary one if not given."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="The journal's file; in the folder if not given.")
    ] = None,
    run: Annotated[str, typer.Option(help="The name of the run.")] = "demo",
    crash_at: Annotated[
        int, typer.Option(min=0, help="Die by SIGKILL right after this commit to the journal.")
    ] = 0,
    before: Annotated[
        bool, typer.Option("--before", help="Die right before that commit instead.")
    ] = False,
    json: Json = False,
) -> None:
    """An agent repairs a small Python project, from recorded answers of a model."""
    from laneway.engine.cli import demo as demonstration  # noqa: PLC0415 - its tools load slowly

    terminal = Terminal(json=json)
    folder = (folder or Path(tempfile.mkdtemp(prefix="laneway-demo-"))).resolve()
    workspace, file = folder / "project", (journal or folder / "laneway.db").resolve()
    journals.refuse_known(file, run)
    demonstration.lay_out(workspace)

    def last_words() -> None:
        when = "before" if before else "after"
        terminal.note(f"killed right {when} commit {crash_at}, as asked")
        if before and crash_at == 1:
            terminal.note("nothing was written yet, so there is nothing to go on with")
            return
        terminal.note("go on with:")
        name, path = shlex.quote(run), shlex.quote(str(file))
        terminal.note(f"  {program()} resume {name} --journal {path}")

    store = CrashingStore(
        observed(SqliteStore(file), terminal, str(workspace)),
        at=crash_at,
        before=before,
        last_words=last_words,
    )
    asyncio.run(demonstration.repair(store, run, workspace))
    shown = shown_run(file, run)
    passed = demonstration.tests_passed(shown)
    terminal.say_all(tree_lines(shown))
    terminal.say(f"{'✓ the tests pass' if passed else '✗ the tests fail'}; journal: {file}")
    terminal.give(
        {"passed": passed, "workspace": str(workspace), "journal": str(file), "run": shown}
    )
    raise typer.Exit(0 if passed and shown.succeeded else 1)


@app.command("run")
def run_(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    plan: PlanFile,
    tools: ToolsName,
    journal: Journal = None,
    run: Annotated[
        str, typer.Option(help="A name for the run; made from the plan's if not given.")
    ] = "",
    policy: PolicyFile = None,
    mode: Mode = "build",
    workspace: Workspace = Path(),
    lanes: LaneLimits = None,
    yes: Annotated[bool, typer.Option("--yes", help="Grant whatever the policy asks.")] = False,
    json: Json = False,
) -> None:
    """Run a plan: all of it, or, where it has a fault, nothing.

    Calls that ask a human are asked for at the terminal; without one they are refused.
    """
    terminal = Terminal(json=json)
    file = journals.journal_path(journal)
    name = run or f"{plan.stem}-{secrets.token_hex(3)}"
    settings = plans.settings_of(plan, tools, policy, mode, workspace, lanes or (), yes=yes)
    asyncio.run(plans.check_plan(settings))
    journals.refuse_known(file, name)
    store = observed(SqliteStore(file), terminal, settings.workspace)
    asyncio.run(plans.run_plan(settings, name, store))
    finish(terminal, shown_run(file, name))


@app.command("plan")
def plan_(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    plan: PlanFile,
    tools: ToolsName,
    journal: Annotated[
        Path | None,
        typer.Option(help="A journal to learn durations from, if not the one that `run` would use"),
    ] = None,
    policy: PolicyFile = None,
    mode: Mode = "build",
    workspace: Workspace = Path(),
    lanes: LaneLimits = None,
    json: Json = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart, and nothing else.")
    ] = False,
) -> None:
    """Show what would become of a plan: order, conflicts, verdicts, times. Nothing is run.

    Exit code 1: some calls would not run, since they have a fault or are denied.
    """
    if json and mermaid:
        raise UsageError("--json and --mermaid are two forms of one answer; choose one")
    terminal = Terminal(json=json)
    settings = plans.settings_of(plan, tools, policy, mode, workspace, lanes or ())
    preview = asyncio.run(plans.foresee(settings, plans.earlier_runs(journal)))
    shown = preview.to_mermaid() if mermaid else str(preview)
    terminal.say_all(shown.splitlines())
    terminal.give(preview)
    raise typer.Exit(0 if preview.sound else 1)


@app.command()
def resume(
    run: RunName,
    journal: Journal = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Go on from what is whole of a damaged run; see `verify`."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Take up a run that was interrupted; what has an outcome is not done again.

    Imports and calls the function that the run names: only for journals that you trust.
    """
    terminal = Terminal(json=json)
    file = journals.journal_path(journal)
    lost = accept_loss(journals.existing(file), run) if accept else 0
    if lost:
        terminal.note(f"{lost} damaged facts were given up")
    before = shown_run(file, run)
    carry_on = carry_on_of(run, before.resume_with)
    store = observed(SqliteStore(file), terminal, workspace_of(before))

    async def go_on() -> None:
        await carry_on(store, run, before.settings)

    asyncio.run(go_on())
    finish(terminal, shown_run(file, run))


@app.command()
def show(
    run: RunName,
    journal: Journal = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Look again each second, until it stops, or Ctrl-C."),
    ] = False,
    json: Json = False,
) -> None:
    """Show a run as a tree: its calls, their states, what they waited for, how long they took.

    A damaged run is shown up to the damage, with exit code 1.
    """
    if watch and json:
        raise UsageError(
            "--watch shows a run to people; a program calls --json as often as it likes"
        )
    terminal = Terminal(json=json)
    if watch:
        file = journals.journal_path(journal)
        with suppress(KeyboardInterrupt):
            watch_run(
                lambda: shown_run(file, run),
                lambda shown: terminal.say_all(tree_lines(shown)),
                next_look,
                clear=sys.stdout.isatty(),
            )
        return
    damage: DamagedJournalError | None = None
    try:
        shown = shown_run(journals.journal_path(journal), run)
    except DamagedJournalError as error:
        if not error.whole:
            raise
        shown, damage = show_run(run, error.whole), error
    terminal.say_all(tree_lines(shown))
    terminal.give(shown)
    if damage is not None:
        terminal.note(str(damage))
        raise typer.Exit(1)


@app.command("lanes")
def lanes_(
    journal: Journal = None,
    run: Annotated[str, typer.Option(help="Only the lanes that calls of this run use.")] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again each second, until Ctrl-C.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the lanes of the engines at work: who holds them, and who waits for whom.

    Reads the journal, which can be one commit behind them, and disturbs nobody. Limits of lanes are
    in no journal, but for those that `laneway run` was given.
    """
    if watch and json:
        raise UsageError(
            "--watch shows lanes to people; a program calls --json as often as it likes"
        )
    terminal = Terminal(json=json)
    file = journals.journal_path(journal)
    seen = sys.stdout.isatty()

    def read() -> ShownLanes:
        return read_lanes(file, run, now_wall=time.time())

    def say(shown: ShownLanes) -> None:
        terminal.say_all(table_lines(shown, width=shutil.get_terminal_size()[0] if seen else None))

    if watch:
        with suppress(KeyboardInterrupt):
            watch_lanes(read, say, next_look, clear=seen)
        return
    shown = read()
    say(shown)
    terminal.give(shown)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(context: typer.Context) -> None:
    """Measure the engine against a bare gather and a raw journal; --help lists the options."""
    from laneway.benchmarks import main  # noqa: PLC0415 - nobody else pays for its import

    raise typer.Exit(main(context.args))


app.command("runs")(housekeeping.runs)
app.command("verify")(verify_)
app.command("settle")(settle)
app.command("approvals")(approvals)
app.command("approve")(approve)
app.command("deny")(deny)
app.command("replay")(replay_)
app.command("fork")(fork_)
app.command("compare")(compare_)
app.command("why")(why)
app.command("report")(report_)
app.command("export")(export)
app.command("mcp-proxy")(mcp_proxy)
app.command("compact")(housekeeping.compact)
app.command("prune")(housekeeping.prune)
app.command("vacuum")(housekeeping.vacuum)
app.command("backup")(housekeeping.backup)
app.add_typer(policy_app, name="policy")
app.add_typer(history_app, name="history")
app.add_typer(tools_app, name="tools")


def observed(store: JournalStore, terminal: Terminal, folder: str) -> JournalStore:
    """Let the terminal tell what a store keeps."""
    progress = Progress(terminal.say, folder=folder)
    return ObservedStore(store, taken=progress.taken, kept=progress.kept)


def shown_run(file: Path, run: str) -> ShownRun:
    """Read a run as it is shown."""
    return read_shown(file, run)


def finish(terminal: Terminal, shown: ShownRun) -> NoReturn:
    """Show how a run ended, and leave with the exit code that says so."""
    terminal.say_all(tree_lines(shown))
    terminal.say_all(result_lines(shown))
    terminal.give(shown)
    raise typer.Exit(0 if shown.succeeded else 1)
