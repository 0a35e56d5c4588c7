"""`laneway policy check | test | explain`: what a policy says, before a call depends on it."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from laneway.engine.cli.journals import journal_path, read_run
from laneway.engine.cli.options import Json, Workspace
from laneway.engine.cli.plans import existing_folder
from laneway.engine.cli.policy_calls import (
    Recorded,
    asked_by_engine,
    call_in_json,
    json_object,
    recorded_call,
    with_declarations,
)
from laneway.engine.cli.policy_examples import example_files, read_examples, try_examples
from laneway.engine.cli.policy_files import Loaded, known_tool, load, load_sound, tools_or_engine
from laneway.engine.cli.terminal import Terminal
from laneway.engine.cli.wording import brief
from laneway.errors import UsageError
from laneway.lanes.names import Names
from laneway.outcomes import Failure
from laneway.policies.account import Account, RuleAccount, account
from laneway.policies.lint import lint
from laneway.policies.meant import lint_tools
from laneway.policies.questions import Question

PolicyFiles = Annotated[
    list[Path],
    typer.Argument(metavar="FILE…", help="Policies; several are layers, the broadest first."),
]
NamedPolicies = Annotated[
    list[Path],
    typer.Option(
        "--policy", metavar="FILE", help="A policy; repeat it for layers, the broadest first."
    ),
]
NamedTools = Annotated[
    str, typer.Option("--tools", help="module or module:attribute with the tools, or an engine.")
]

policy_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Checks a policy, tests it with examples, explains what it says of a call.",
)


@policy_app.command()
def check(files: PolicyFiles, tools: NamedTools = "", json: Json = False) -> None:
    """Read policies, and look for what cannot be meant: rules without effect, or too weak.

    With --tools, also for rules that mean none of them. Exit code 1: something was found; 2: a
    policy cannot be read.
    """
    terminal = Terminal(json=json)
    known = [known_tool(tool) for tool in tools_or_engine(tools)] if tools else None
    loaded = load(files)
    if not isinstance(loaded, Loaded):
        terminal.say_all(map(str, loaded))
        terminal.say(f"{_counted(len(loaded), 'fault')}; nothing of it can be used")
        faults = [{"where": one.where, "message": str(one)} for one in loaded]
        terminal.give({"faults": faults, "findings": []})
        raise typer.Exit(2)
    findings = [
        finding
        for at, layer in enumerate(loaded.layers)
        for finding in lint(layer, loaded.layers[:at])
    ]
    if known is not None:
        findings += lint_tools(loaded.rules, known)
    for one in findings:
        terminal.say(f"{one.rule}: {one.lint}: {one.message}")
    terminal.say(f"{_counted(len(loaded.rules), 'rule')}, {_counted(len(findings), 'finding')}")
    terminal.give({"faults": [], "findings": findings})
    raise typer.Exit(1 if findings else 0)


@policy_app.command("test")
def try_(
    files: PolicyFiles,
    examples: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Examples; NAME_test.toml beside NAME.toml if left out."),
    ] = None,
    tools: NamedTools = "",
    workspace: Workspace = Path(),
    json: Json = False,
) -> None:
    """Put examples to policies: calls, each with the verdict that is expected.

    With --tools, the tools say what a call takes and does. Exit code 1: an example is not as it is
    expected.
    """
    terminal = Terminal(json=json)
    folder = existing_folder(workspace)
    loaded = load_sound(files)
    given = tools_or_engine(tools) if tools else []
    found = read_examples(example_files(files, examples or ()), Names(folder))
    tried = asyncio.run(try_examples(found, loaded, given, folder))
    for one in tried:
        said = f"{one.decision} by {one.rule}" if one.decision else "no verdict"
        if one.ok:
            terminal.say(f"✓ ok      {one.example}: {said}")
        else:
            terminal.say(f"✗ not ok  {one.example}: {said}; {one.fault}")
    passed = sum(one.ok for one in tried)
    terminal.say(f"{_counted(len(tried), 'example')}: {passed} ok, {len(tried) - passed} not ok")
    terminal.give({"examples": tried, "passed": passed, "failed": len(tried) - passed})
    raise typer.Exit(0 if passed == len(tried) else 1)


@policy_app.command()
def explain(
    call: Annotated[
        list[str],
        typer.Argument(
            metavar="CALL…",
            help="JSON with tool, arguments, effect, claims …; or TOOL [ARGUMENTS in JSON]; or, "
            "with --journal, RUN CALL.",
        ),
    ],
    policy: NamedPolicies,
    journal: Annotated[
        Path | None, typer.Option(help="A journal's file, for a call of a recorded run.")
    ] = None,
    tools: NamedTools = "",
    mode: Annotated[str, typer.Option(help="Judge the call in this mode.")] = "",
    workspace: Workspace = Path(),
    json: Json = False,
) -> None:
    """Show what each rule makes of a call, what mode and tool say, and the verdict.

    With --tools, the tools say what the call takes and does.
    """
    terminal = Terminal(json=json)
    loaded = load_sound(policy)
    folder = existing_folder(workspace)
    if journal is not None:
        recorded = _of_run(call, journal, tools, mode, folder)
    else:
        recorded = Recorded(question=_typed(call, tools, mode, folder), rule="")
    said = account(loaded.policy, loaded.rules, loaded.modes, recorded.question)
    terminal.say_all(_lines(recorded, said))
    terminal.give(
        {
            "call": recorded.question,
            "recorded_rule": recorded.rule,
            "note": recorded.note,
            **msgspec.to_builtins(said),
        }
    )


def _of_run(words: list[str], journal: Path, tools: str, mode: str, folder: Path) -> Recorded:
    match words:
        case [run, call]:
            file = journal_path(journal)
            given = tools_or_engine(tools) if tools else []
            found = recorded_call(run, read_run(file, run), call, given, mode)
            return asyncio.run(with_declarations(found, given, folder))
        case _:
            raise UsageError("with --journal, name a run and a call of it: RUN CALL")


def _typed(words: list[str], tools: str, mode: str, folder: Path) -> Question:
    """Read a call from the command line.

    Raises:
        LanewayError: it cannot be read, or with these tools it would be no call.
    """
    said: Mapping[str, Any]
    match words:
        case [text] if text.lstrip().startswith("{"):
            said = call_in_json(text, Names(folder))
        case [tool]:
            said = {"tool": tool, "arguments": {}}
        case [tool, arguments]:
            said = {"tool": tool, "arguments": json_object("ARGUMENTS", arguments)}
        case _:
            raise UsageError(
                "write a call as one JSON object, or as TOOL and its arguments in JSON"
            )
    if mode:
        said = {**said, "mode": mode}
    if not tools:
        return Question(**said)
    (asked,) = asyncio.run(asked_by_engine([said], tools_or_engine(tools), folder))
    if isinstance(asked, Failure):
        raise UsageError(f"this would be no call: {asked.message}")
    return asked


def _lines(recorded: Recorded, said: Account) -> Iterator[str]:
    question = recorded.question
    effect = question.effect if question.declared else "declares nothing, so external"
    arguments = "of unknown arguments" if question.arguments is None else brief(question.arguments)
    yield f"{question.tool} {arguments}  {effect}, mode {question.mode}"
    yield from (f"  takes {claim}" for claim in question.claims)
    if recorded.note:
        yield f"  {recorded.note}"
    yield from map(_rule_line, said.rules)
    for voice in (said.mode, said.tool):
        yield f"  {voice.rule}: {voice.decision}, for {voice.reason}"
    verdict = said.verdict
    yield f"{verdict.decision} by {verdict.rule}: {verdict.reason}"
    if recorded.rule:
        then = "the same" if recorded.rule == verdict.rule else "another"
        yield f"recorded with the call is {then}: {recorded.rule}"


def _rule_line(one: RuleAccount) -> str:
    if one.decides:
        return f"✓ {one.rule}: {one.decision}, matches, and decides"
    if one.matches:
        return f"· {one.rule}: {one.decision}, matches, but does not decide"
    return f"– {one.rule}: {one.decision}, does not match: {one.unmet}"


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
