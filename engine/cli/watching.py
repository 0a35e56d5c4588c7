"""The call tree of a run while it goes on in another process: `laneway show --watch`.

Reads the journal again and again, which can be one commit behind the run, and disturbs nobody.
"""

from collections.abc import Callable

from laneway.engine.cli.lanes_table import CLEAR
from laneway.engine.cli.shown import ShownRun


def watch_run(
    read: Callable[[], ShownRun],
    say: Callable[[ShownRun], None],
    tick: Callable[[], bool],
    *,
    clear: bool,
) -> None:
    """Show a run again and again, until it has stopped.

    Args:
        read: looks at the journal.
        say: shows what was read.
        tick: waits until the next look is due; False ends it.
        clear: show each picture in the place of the last; else only those that differ, one below
            the other.
    """
    before: ShownRun | None = None
    while True:
        shown = read()
        if clear:
            print(CLEAR, end="")
        if clear or shown != before:
            say(shown)
        before = shown
        if shown.stopped or not tick():
            return
