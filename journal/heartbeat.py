"""Signs of life of a driver, from a thread of its own, with a connection of its own.

What blocks the event loop, or the store's connection, must not make a driver look dead; what stops
the process must. Reads the leases that are held; writes their beats into the file, and finds out
which of them somebody else has taken, and to which of them others have sent something.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from laneway.ids import RunId
from laneway.journal.identity import identity
from laneway.journal.lease import lease_clock, pulse
from laneway.journal.statements import STATEMENTS

BUSY_SECONDS = 0.25
"""How long the thread waits for another's lock before it tries again: it must be able to end."""
LOOK_SECONDS = 1.0
"""Between two looks at what others have sent; between two beats, if these come sooner."""
BEATS = 3
"""Signs of life within a lease."""


class Beating(Protocol):
    """A lease that is kept alive."""

    id: int
    """The number of the run in the file."""
    token: int
    """The fencing token."""
    heard: float
    """When the lease was last known to be held, by `lease_clock`."""


class Heartbeat:
    """The thread lives while a lease is held, and never keeps the process alive."""

    def __init__(
        self,
        path: Path,
        lease_seconds: float,
        lost: Callable[[RunId, Beating], None],
        addressed: Callable[[RunId], None] = lambda _: None,
        /,
    ) -> None:
        """Hold nothing yet.

        Args:
            path: of the journal.
            lease_seconds: a third of which passes between two beats.
            lost: told, in the thread, of a lease that somebody else has now.
            addressed: told, in the thread, of a run that is held and was sent something.
        """
        self._path = path
        self._identity = identity(path)
        self._seconds = lease_seconds / BEATS
        self._lost = lost
        self._addressed = addressed
        self._held: dict[RunId, Beating] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._lives = False
        """Whether the thread will look again at what is held."""
        self._pid = os.getpid()

    def hold(self, run: RunId, lease: Beating, /) -> None:
        """Keep a lease alive from now on.

        Raises:
            RuntimeError: the system has no thread for it; the lease is not kept alive.
        """
        if not self._is_here:
            return
        with self._changed:
            if not self._lives:
                thread = threading.Thread(target=self._live, name="laneway-lease", daemon=True)
                thread.start()  # It waits for the lock that is held here.
                self._thread, self._lives = thread, True
            self._held[run] = lease

    def drop(self, run: RunId, lease: Beating, /) -> None:
        """Keep it alive no more. A beat that is under way changes nothing of a lease given back.

        Another lease of the run, which was taken meanwhile, is kept alive.
        """
        if not self._is_here:
            return
        with self._changed:
            if self._held.get(run) is lease:
                del self._held[run]
            self._changed.notify()

    def close(self) -> None:
        """Drop all, and wait for the thread; this blocks for less than a second."""
        if not self._is_here:
            return
        with self._changed:
            self._held.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join()

    @property
    def _is_here(self) -> bool:
        """Whether this is the process that holds the leases, and not a fork of it.

        A fork has no such thread and must not start one; nor may it touch the lock, which the
        thread may have had in that moment.
        """
        return os.getpid() == self._pid

    def _live(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            due = time.monotonic() + self._seconds
            while self._rest(max(min(due - time.monotonic(), LOOK_SECONDS), 0.0)):
                try:
                    connection = connection or self._connect()
                    if time.monotonic() >= due:
                        due = time.monotonic() + self._seconds
                        self._beat(connection)
                    self._look(connection)
                except (sqlite3.Error, OSError):
                    # A beat is no fact: what is wrong with the file, the next commit says. But it
                    # is tried again soon, since a lease may run out meanwhile.
                    due = time.monotonic() + self._seconds / 10
        finally:
            if connection is not None:
                connection.close()

    def _rest(self, seconds: float) -> bool:
        """Wait until it is time for a beat; False once nothing is held, and the thread has gone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, seconds)
            if self._held:
                return True
            self._lives = False
            return False

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        # A beat may be lost with the power, and long work in the log is the store's.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _look(self, connection: sqlite3.Connection) -> None:
        """Find out which runs were sent something; nothing is written, and nobody waits."""
        if identity(self._path) != self._identity:
            return
        sent = {number for (number,) in connection.execute(STATEMENTS["addressed"]).fetchall()}
        if sent:
            with self._changed:
                held = dict(self._held)
            for run, lease in held.items():
                if lease.id in sent:
                    self._addressed(run)

    def _beat(self, connection: sqlite3.Connection) -> None:
        if identity(self._path) != self._identity:
            return  # In a file that nobody can find, nothing is held.
        with self._changed:
            held = dict(self._held)
        connection.execute("BEGIN IMMEDIATE")
        try:
            now, since_boot, known = time.time(), pulse(), lease_clock()
            gone = [
                run
                for run, lease in held.items()
                if not connection.execute(
                    STATEMENTS["beat"], (now, since_boot, lease.id, lease.token)
                ).rowcount
            ]
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        for run, lease in held.items():
            if run in gone:
                self.drop(run, lease)
                self._lost(run, lease)
            else:
                lease.heard = max(lease.heard, known)
