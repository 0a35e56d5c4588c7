"""`laneway approvals`, `approve`, `deny`: what waits for a human, and what a human says to it.

Whoever drives the run, in whatever process, goes on meanwhile, and takes the answer up.
"""

import getpass
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from laneway.engine.cli.asked import (
    Became,
    ShownApproval,
    became,
    open_approvals,
    send,
    sent_answers,
)
from laneway.engine.cli.because import clock
from laneway.engine.cli.journals import existing, journal_path
from laneway.engine.cli.options import Journal, Json, RunName
from laneway.engine.cli.terminal import Terminal
from laneway.engine.kinds import is_object
from laneway.engine.plain import whole_text
from laneway.errors import UsageError
from laneway.ids import ApprovalId
from laneway.journal.inbox import Letter, SentAnswer

Approval = Annotated[
    str,
    typer.Argument(metavar="APPROVAL", help="The question (t1.2.a1), or its call (t1.2)."),
]
By = Annotated[str, typer.Option(metavar="NAME", help="Who says so; you, if left out.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Kept with the answer.")]
Wait = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0, help="Wait so long for the driver of the run to take it up."
    ),
]


def approvals(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Only of this run, and of calls within its calls")
    ] = "",
    journal: Journal = None,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="List instead what was sent: not taken up, or refused."),
    ] = False,
    json: Json = False,
) -> None:
    """List what waits for a human, in all runs of a journal.

    Reads the journal beside whoever drives the runs. Exit code 0, whether something waits or not.
    """
    terminal = Terminal(json=json)
    path = existing(journal_path(journal))
    if answers:
        letters = sent_answers(path, run)
        terminal.say_all([_letter_line(one) for one in letters] or ["no answer lies in the inbox"])
        terminal.give(letters)
        return
    found = open_approvals(path, run)
    for one in found:
        terminal.say_all(_lines(one))
    if not found:
        terminal.say("nothing waits for a human")
    terminal.give(found)


def approve(  # noqa: PLR0913, PLR0917 - typer makes an option of each parameter
    run: RunName,
    approval: Approval,
    arguments: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Run with these arguments, all of them, instead."),
    ] = None,
    for_: Annotated[
        str,
        typer.Option("--for", metavar="run", help="`run`: later calls of the tool in it, too."),
    ] = "",
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='Later calls that fit, too: \'{"path": "src/*"}\', as in rules.'
        ),
    ] = None,
    by: By = "",
    reason: Reason = "",
    wait: Wait = 0.0,
    journal: Journal = None,
    json: Json = False,
) -> None:
    """Let a call run that waits for a human, whichever process drives its run.

    The driver takes the answer up within a second or so; where nobody drives the run, it lies
    there until somebody does. Exit code 1: it was refused, or not taken up in the time of --wait.
    """
    if for_ not in ("", "run"):
        raise UsageError(f"--for {for_}: say --for run, or --pattern JSON for calls that fit")
    said = SentAnswer(
        approval=ApprovalId(""),
        digest="",
        granted=True,
        by=whole_text(by) or _user(),
        reason=whole_text(reason),
        arguments=_object("--arguments", arguments),
        scope=for_,
        pattern=_object("--pattern", pattern),
    )
    _say(Terminal(json=json), said, run, approval, wait, journal)


def deny(
    run: RunName,
    approval: Approval,
    by: By = "",
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Kept with the answer; the model is told.")
    ] = "",
    wait: Wait = 0.0,
    journal: Journal = None,
    json: Json = False,
) -> None:
    """Refuse a call that waits for a human, whichever process drives its run.

    Exit code 1: the answer was refused, or not taken up in the time of --wait.
    """
    said = SentAnswer(
        approval=ApprovalId(""),
        digest="",
        granted=False,
        by=whole_text(by) or _user(),
        reason=whole_text(reason),
    )
    _say(Terminal(json=json), said, run, approval, wait, journal)


def _say(
    terminal: Terminal, said: SentAnswer, run: str, name: str, wait: float, journal: Any
) -> None:
    path = existing(journal_path(journal))
    sent = send(path, run, name, said)
    if wait:
        sent = became(path, sent, wait)
    terminal.say(_became_line(sent, wait))
    terminal.give(sent)
    if sent.standing == "refused" or (wait and sent.standing == "waits"):
        raise typer.Exit(1)


def _became_line(sent: Became, wait: float) -> str:
    about = f"answer {sent.number} to {sent.run} {sent.approval}"
    match sent.standing:
        case "counted":
            return f"✓ {about}: taken up; {sent.why}"
        case "refused":
            return f"✗ {about}: refused: {sent.why}"
        case _:
            after = f" after {wait:g} s" if wait else ""
            return f"· {about}: not taken up yet{after}; `laneway approvals --answers` tells"


def _lines(one: ShownApproval) -> Iterator[str]:
    yield f"? {one.run} {one.approval}  {one.tool} {_json(one.arguments)}"
    if one.changed:
        yield "    its arguments were changed by whoever answered before"
    because = f": {one.reason}" if one.reason else ""
    yield f"    asked by {one.rule}{because}"
    word = "expired" if one.expired else "expires"
    yield f"    {word} {clock(one.expires_wall)}"
    if one.approvers > 1:
        names = ", ".join(one.granted_by)
        yield f"    needs {one.approvers} people" + (f"; granted by {names}" if names else "")
    if one.unblocks:
        yield f"    only this holds up {', '.join(one.unblocks)}"
    for answer in one.waiting_answers:
        yield f"    answered, not taken up yet: {answer}"


def _letter_line(letter: Letter) -> str:
    word = "granted" if letter.answer.granted else "refused"
    by = f" by {letter.answer.by}" if letter.answer.by else ""
    about = f"{letter.number} {letter.run} {letter.answer.approval}: {word}{by}"
    at = clock(letter.sent_wall)
    return f"{about}, {at}, {f'does not count: {letter.refused}' if letter.refused else 'waits'}"


def _object(option: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{option} {text}: this is no JSON ({error})") from None
    if not is_object(found):
        raise UsageError(f'{option} {text}: give an object, such as \'{{"path": "a.txt"}}\'')
    return found


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return ""
