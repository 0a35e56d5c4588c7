"""Is a journal whole? What SQLite, the chains and somebody's memory say of it.

Reads the file and its large values, and changes nothing; gives an account of each run. A chain
shows what was changed, dropped or put in between, but not that its end was cut off: that takes an
anchor, a sequence number and its hash, which somebody kept elsewhere.
"""

import re
import sqlite3
from contextlib import suppress
from pathlib import Path

import msgspec

from laneway.errors import DamagedJournalError, IllegalTransitionError, UnknownRunError, UsageError
from laneway.ids import RunId
from laneway.journal.codec import Chain
from laneway.journal.fold import fold
from laneway.journal.reading import file_faults, find, kept_rows, looking_at, names
from laneway.journal.spill import values_folder


class Anchor(msgspec.Struct, frozen=True):
    """How far a run had come once: `SEQ:HASH`."""

    seq: int
    hash: str

    @classmethod
    def read(cls, text: str, /) -> "Anchor":
        """Read one as `laneway verify` prints it; the hash may be cut to 8 digits or more.

        Raises:
            UsageError: it is none.
        """
        found = re.fullmatch(r"([1-9][0-9]{0,9}):([0-9a-fA-F]{8,32})", text.strip())
        if found is None:
            raise UsageError(
                f"{text!r} is no anchor; give a sequence number and its hash, as `laneway verify` "
                "prints them: 42:9f86d081884c7d65"
            )
        return cls(int(found[1]), found[2].lower())

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


class VerifiedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a run."""

    run: RunId
    facts: int
    """Whole ones, from the first."""
    hash: str
    """Of the last whole one: with its number the anchor to remember."""
    damage: str = ""
    """What is wrong with the fact behind them; empty if nothing is."""
    lost: int = 0
    """Rows behind the damage, as far as they can be counted."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.damage

    @property
    def anchor(self) -> Anchor:
        """How far it has come."""
        return Anchor(self.facts, self.hash)


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a journal."""

    path: str
    file: tuple[str, ...]
    """What SQLite finds wrong with the file itself, the first 20 faults."""
    runs: tuple[VerifiedRun, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.file and all(run.whole for run in self.runs)


def verify(path: Path, /, *, run: str = "", expect: Anchor | None = None) -> Verified:
    """Look at all of a journal.

    Args:
        path: the file.
        run: only this one; empty for all.
        expect: how far that run had come when somebody looked before.

    Raises:
        UnknownRunError: there is no such run.
        UsageError: an anchor is given, and no run.
        JournalError: it is not there, foreign, newer, or nothing at all of it can be read.
    """
    if expect is not None and not run:
        raise UsageError("--expect is about one run: name it")
    with looking_at(path) as connection:
        faults = file_faults(connection)
        known = names(connection)
        if run and run not in known:
            raise UnknownRunError(run, known)
        found = tuple(
            _verified(connection, path, name, expect)
            for name in ([RunId(run)] if run else reversed(known))
        )
    return Verified(path=str(path), file=faults, runs=found)


def _verified(
    connection: sqlite3.Connection, path: Path, run: RunId, expect: Anchor | None
) -> VerifiedRun:
    found = find(connection, path, run)
    damage = _text(found.damage)
    if not damage:
        try:
            fold(run, found.rows)
        except (DamagedJournalError, IllegalTransitionError) as error:
            damage = _text(error)
    if not damage and expect is not None:
        damage = _missed(connection, path, run, expect)
    return VerifiedRun(
        run=run,
        facts=len(found.rows),
        hash=found.link.hex(),
        damage=damage,
        lost=found.behind,
    )


def _text(error: BaseException | None) -> str:
    return str(error) if error is not None else ""


def _missed(connection: sqlite3.Connection, path: Path, run: RunId, expect: Anchor) -> str:
    """What somebody remembers of a run whose chain is whole, and is not so."""
    chain = Chain(run, values_folder(path.absolute()))
    for kept in kept_rows(connection, run, chain):
        with suppress(DamagedJournalError):
            chain.decode(kept)
        if chain.seq == expect.seq:
            if chain.link.hex().startswith(expect.hash):
                return ""
            return (
                f"run {run!r}: fact {expect.seq} is another one than was expected: its hash is "
                f"{chain.link.hex()}, not {expect.hash}"
            )
    return (
        f"run {run!r}: its end is missing: fact {expect.seq} was there once, and the last one is "
        f"{chain.seq}"
    )
