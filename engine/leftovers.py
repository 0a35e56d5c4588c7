"""What a crash left open without anybody to go on with it, ended from the facts alone.

Reads runs of the journal; writes into those that nobody drives any more. Feeds the host that takes
up or settles the call above them, and the command line.
"""

from collections.abc import Iterable, Sequence

from laneway.engine.clock import Clock
from laneway.engine.failures import stopped
from laneway.engine.groups import look
from laneway.engine.holdovers import groups_left
from laneway.engine.nesting import ORPHANED
from laneway.engine.recovery import found_out
from laneway.errors import DamagedJournalError, RunOwnedError
from laneway.facts import CallEnded, Fact, Row, RunTaken, TurnClosed
from laneway.ids import RunId
from laneway.journal.fold import CallView, RunView, fold
from laneway.journal.lease import this_driver
from laneway.journal.writer import Journal, RunLog
from laneway.states import State


def is_over(view: RunView, call: CallView) -> bool:
    """Whether the outcome of a call can change no more."""
    if call.outcome is None:
        return False
    return call.state is not State.UNCERTAIN or view.turns[call.turn - 1].closed


async def end_left(journal: Journal, clock: Clock, runs: Iterable[RunId]) -> list[RunId]:
    """End the open turns of runs within a call that is over, and of those within their calls.

    What had not started, or would be run again, is CANCELLED; what nobody saw the end of stays
    UNCERTAIN, for good. A run that somebody drives, or that cannot be read, is left alone.

    Args:
        journal: that is open.
        clock: of the engine, which stands still while the journal is read.
        runs: within the call.

    Returns:
        Those in which something was ended.
    """
    ended: list[RunId] = []
    pending = list(runs)
    while pending:
        run = pending.pop()
        clock.hold()
        try:
            view = fold(run, await journal.store.read(run))
        except DamagedJournalError:
            continue
        finally:
            clock.release()
        pending += [child for call in view.calls.values() for child in call.children]
        if view.open_turn is not None and await _end(journal, run):
            ended.append(run)
    return ended


async def _end(journal: Journal, run: RunId) -> bool:
    try:
        rows = await journal.take(run, this_driver())
    except RunOwnedError:
        return False
    log = RunLog(fold(run, rows), lambda _: None)
    journal.attach(log)
    try:
        view, facts = taken_up(run, rows)
        facts += _endings(view)
        await journal.keep(log, facts)
    finally:
        await journal.leave(log)
    return True


def taken_up(run: RunId, rows: Sequence[Row]) -> tuple[RunView, list[Fact]]:
    """Take a run up without tools: what this process finds out of the driver before, and after it.

    Returns:
        The view once the facts are kept, and these.
    """
    view = fold(run, rows)
    left = groups_left(run, rows).items()
    held = {call for call, groups in left if not all(look(group).gone for group in groups)}
    facts = [RunTaken(driver=this_driver(), mode=view.mode), *found_out(view, held)]
    for fact in facts:
        view.apply(Row(run, view.seq + 1, 0.0, 0.0, fact))
    return view, facts


def _endings(view: RunView) -> list[Fact]:
    turn = view.open_turn
    if turn is None:
        return []
    endings: list[Fact] = [
        CallEnded(
            call=call.id,
            state=State.CANCELLED,
            outcome=stopped(
                ORPHANED,
                effect=call.record.effect,
                entered=call.attempt > call.cleared,
                still_running=False,
            ),
        )
        for call in turn.calls
        if call.outcome is None
    ]
    return [*endings, TurnClosed(turn=turn.number)]
