"""The list of runs for people: how old, how large, how each stands. Reads the file from outside.

Whether a run has an open turn is told from its last facts alone: nothing is folded, so that a
journal of a million facts is listed at once.
"""

import re
import sqlite3
from pathlib import Path

import msgspec

from laneway.errors import JournalError
from laneway.facts import Driver
from laneway.ids import RunId
from laneway.journal.reading import looking_at

LOOKED_BACK = 20_000
"""Facts at the end of a run among which its last turn is looked for; a turn that began earlier, and
of which nothing says that it has ended, is open."""


STOP_LOOKED_BACK = 2_000
"""Facts at the end of a run among which its stop is looked for."""


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as far as it can be told at a glance."""

    run: RunId
    facts: int
    bytes: int | None
    """Of its facts on the disk, large values apart; None where it was not counted."""
    opened_wall: float
    """Unix seconds of its first fact."""
    touched_wall: float
    """Unix seconds of its last fact."""
    open_turn: bool
    """Whether a turn of it has not been closed."""
    stopped: str
    """Why it goes on no more by itself: the reason, or empty while it does; told from its last
    2,000 facts."""
    compacted: bool
    driver: Driver | None = None
    """Who has taken it and not left it, alive or not."""
    beat_wall: float = 0.0
    """Unix seconds of that one's last sign of life."""


def lines(path: Path, /, *, latest: int | None = None, sized: bool = False) -> list[RunLine]:
    """List the runs, the last made first; of one without facts these were lost, or come next.

    Args:
        path: of the journal.
        latest: only so many; None for all.
        sized: whether their bytes are counted, which goes through all of their facts.

    Raises:
        JournalError: the journal is not there, or cannot be read.
    """
    with looking_at(path) as connection:
        rows = connection.execute(_LINES, {"limit": -1 if latest is None else latest}).fetchall()
        return [_line(connection, row, sized=sized) for row in rows]


def count(path: Path, /) -> int:
    """How many runs there are, those without facts too.

    Raises:
        JournalError: the journal is not there, or cannot be read.
    """
    with looking_at(path) as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM runs")
        return int(found)


_LINES = """
SELECT runs.id, runs.name, runs.driver, runs.beat, latest.place & 4294967295, earliest.wall,
    latest.wall, archives.facts, archives.opened, archives.touched, length(archives.body)
FROM runs
LEFT JOIN facts AS earliest ON earliest.place = (
    SELECT min(place) FROM facts
    WHERE place BETWEEN runs.id << 32 AND runs.id << 32 | 4294967295)
LEFT JOIN facts AS latest ON latest.place = (
    SELECT max(place) FROM facts
    WHERE place BETWEEN runs.id << 32 AND runs.id << 32 | 4294967295)
LEFT JOIN archives ON archives.run = runs.id
ORDER BY runs.id DESC
LIMIT :limit
"""

_LAST_TURN = """
SELECT body LIKE '%"turn_closed"%' FROM (
    SELECT substr(body, 1, 60) AS body FROM facts
    WHERE place > max(:last - :back, :first) AND place <= :last
    ORDER BY place DESC)
WHERE body LIKE '{"fact":"turn_%' OR body LIKE '{"fact":"spilled","was":"turn_%'
LIMIT 1
"""


def _line(connection: sqlite3.Connection, row: tuple[object, ...], *, sized: bool) -> RunLine:
    number, name, driver, beat, last, opened, touched, *archive = row
    compacted = last is None and archive[0] is not None
    facts, first_wall, last_wall = archive[:3] if compacted else (last, opened, touched)
    assert isinstance(number, int)
    facts = facts if isinstance(facts, int) else 0  # of a damaged archive
    size = archive[3] if compacted else None
    if sized and not compacted:
        ((size,),) = connection.execute(
            "SELECT sum(length(CAST(body AS BLOB)) + 50) FROM facts WHERE place BETWEEN ? AND ?",
            (number << 32, number << 32 | 0xFFFFFFFF),
        )
    return RunLine(
        run=RunId(str(name)),
        facts=facts,
        bytes=size if isinstance(size, int) else None,
        opened_wall=seconds(first_wall),
        touched_wall=seconds(last_wall),
        open_turn=not compacted and _has_open_turn(connection, number, facts),
        stopped="" if compacted else _stopped(connection, number, facts),
        compacted=compacted,
        driver=None if driver is None else read_driver(str(name), str(driver)),
        beat_wall=seconds(beat),
    )


def _has_open_turn(connection: sqlite3.Connection, number: int, facts: int) -> bool:
    first = number << 32
    bounds = {"first": first, "last": first + facts, "back": LOOKED_BACK}
    for (closed,) in connection.execute(_LAST_TURN, bounds):
        return not closed
    return facts > LOOKED_BACK


def _stopped(connection: sqlite3.Connection, number: int, facts: int) -> str:
    bounds = {"first": number << 32, "last": (number << 32) + facts, "back": STOP_LOOKED_BACK}
    for (body,) in connection.execute(_LAST_STOP, bounds):
        found = _REASON.match(body)
        if found is not None:
            return str(found[1])
    spoken = [str(body) for (body,) in connection.execute(_LAST_SAID, bounds)]
    answered = len(spoken) == _AN_ANSWER and "turn_closed" in spoken[0]
    # A turn without calls is closed in the next fact: there is nothing to be told between.
    return "COMPLETED" if answered and "turn_submitted" in spoken[1] else ""


_LAST_STOP = """
SELECT substr(body, 1, 80) FROM facts
WHERE place > max(:last - :back, :first) AND place <= :last
    AND (body LIKE '{"fact":"run_stopped"%' OR body LIKE '{"fact":"run_reopened"%')
ORDER BY place DESC
LIMIT 1
"""
_LAST_SAID = """
SELECT substr(facts.body, 1, 60) FROM facts, (
    SELECT place FROM facts
    WHERE place > max(:last - :back, :first) AND place <= :last
        AND (substr(body, 1, 60) LIKE '{"fact":"turn_%' OR body LIKE '{"fact":"message_said"%'
            OR substr(body, 1, 60) LIKE '{"fact":"spilled","was":"turn_%')
    ORDER BY place DESC
    LIMIT 1) AS latest
WHERE facts.place BETWEEN latest.place - 1 AND latest.place
ORDER BY facts.place DESC
"""
_REASON = re.compile(r'\{"fact":"run_stopped","reason":"([A-Z_]+)"')
_AN_ANSWER = 2


def seconds(value: object, /) -> float:
    """A time as a column keeps it; 0 for what is none: a damaged file keeps anything anywhere."""
    return value if isinstance(value, float) else 0.0


def read_driver(run: str, text: str, /) -> Driver:
    """Read who has taken a run.

    Raises:
        JournalError: that is damaged.
    """
    try:
        return msgspec.json.decode(text, type=Driver)
    except msgspec.MsgspecError as error:
        raise JournalError(f"run {run!r}: its lease cannot be read ({error}): {text}") from error
