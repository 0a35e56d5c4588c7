"""Group commit: whatever was posted since the last commit goes down in the next one.

One task owns the store. Callers post facts and are called back when these are kept; between the
two nothing that they announce has happened. Nobody waits for company: a post on an idle writer is
committed as soon as the event loop has run what was already runnable.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from laneway.errors import EngineFaultError, JournalError, RunOwnedError
from laneway.facts import Driver, Fact, Row
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView
from laneway.journal.store import Fenced, JournalStore, when_lost

BATCH_ROWS = 1000
"""A commit takes no further post beyond so many rows: a batch of 1,000 holds the interpreter for
5 to 18 ms beside a busy loop, and the loop's other users wait no longer than that."""


class Time(Protocol):
    """What the writer asks of a clock; see laneway.engine.clock."""

    def monotonic(self) -> float:
        """Seconds, never backwards."""
        ...

    def wall(self) -> float:
        """Unix seconds."""
        ...

    def hold(self) -> None:
        """Work begins outside the event loop."""
        ...

    def release(self) -> None:
        """It is over."""
        ...


Kept = Callable[[JournalError | None], None]
"""Told None when the facts are kept, else why they are not known to be."""


class Sealing(Protocol):
    """Takes out of facts what is never to be written down."""

    def sealed(self, run: RunId, facts: Sequence[Fact], /) -> Sequence[Fact]:
        """Give the facts as they may be kept."""
        ...


class Listening(Protocol):
    """Hears the facts of one run, and tells others of them; raises nothing."""

    early: bool
    """It hears facts when they are posted, not when they are kept."""

    def heard(self, rows: Sequence[Row], /) -> None:
        """Take in facts, in their order."""
        ...

    def entering(self, call: CallId, /) -> None:
        """The running task is about to enter the body of a call that has started."""
        ...

    def left(self) -> None:
        """Nothing more comes of the run."""
        ...


class RunLog:
    """The end of one run's journal: hands out sequence numbers and folds what is kept."""

    __slots__ = ("broken", "listener", "on_broken", "secrets", "seq", "view")

    def __init__(self, view: RunView, on_broken: Callable[[JournalError], None]) -> None:
        """Go on after the facts of `view`; `on_broken` learns that no fact can be kept any more."""
        self.view = view
        self.seq = view.seq
        self.on_broken = on_broken
        self.broken: JournalError | None = None
        self.secrets: Sealing | None = None
        """Whatever is posted goes through it."""
        self.listener: Listening | None = None
        """None where nobody listens."""


class Post(msgspec.Struct, gc=False):
    """Rows of one run that are kept together, and who wants to know."""

    log: RunLog
    rows: list[Row]
    then: Kept | None


class Journal:
    """Takes facts from all runs of an engine and keeps them in order."""

    def __init__(self, store: JournalStore, clock: Time) -> None:
        """Write to a store, in the running event loop."""
        self.store = store
        self.commits = 0
        """How many batches of facts have been kept."""
        self.broken: JournalError | None = None
        """Why nothing can be kept any more: a commit that failed leaves the store unknown."""
        self._clock = clock
        self._at_once: bool = getattr(store, "keeps_at_once", False)
        self._fenced = store if isinstance(store, Fenced) else None
        self._queue: deque[Post] = deque()
        self._idle = True
        """Nobody commits, and nobody has been told to."""
        self._closing = False
        self._logs: set[RunLog] = set()
        self._wake: asyncio.Future[None] | None = None
        self._task: _WriterTask | None = None

    async def open(self) -> None:
        """Open the store.

        Raises:
            JournalError: it cannot be used.
        """
        with self._outside():
            await self.store.open()
        when_lost(self.store, self._lost)

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Become the driver of a run; see JournalStore.take.

        Raises:
            JournalError: the journal broke before; the run was not taken.
        """
        if self.broken is not None:
            raise self.broken
        with self._outside():
            return await self.store.take(run, driver)

    async def leave(self, log: RunLog) -> None:
        """Stop being the driver of a run, once what was posted of it is out of the way."""
        if not self._idle and self.broken is None:
            await self._passed(log)
        self.detach(log)
        if log.listener is not None:
            log.listener.left()
        if log.broken is None:
            log.broken = JournalError(
                f"run {log.view.run!r} has been left; nothing more is written of it here"
            )
        with self._outside():
            await self.store.leave(log.view.run)

    async def _passed(self, log: RunLog) -> None:
        """Wait until what was posted of a run has been kept, or refused."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then(_: JournalError | None) -> None:
            if not passed.done():
                passed.set_result(None)

        self._enqueue(Post(log, [], then))
        await passed

    @contextmanager
    def _outside(self) -> Generator[None]:
        self._clock.hold()
        try:
            yield
        finally:
            self._clock.release()

    def attach(self, log: RunLog) -> None:
        """Tell this log too when the journal breaks."""
        self._logs.add(log)

    def detach(self, log: RunLog) -> None:
        """Forget the log; its run has been left."""
        self._logs.discard(log)

    def post(self, log: RunLog, facts: Sequence[Fact], then: Kept | None = None) -> None:
        """Hand over facts of one run; they are kept together, and then `then(None)` is called.

        Where they cannot be kept, `then` gets the error, after the log's `on_broken`.

        Raises:
            JournalError: the journal broke before; nothing was posted.
        """
        broken = log.broken or self.broken
        if broken is not None:
            raise broken
        clock = self._clock
        wall, mono = clock.wall(), clock.monotonic()
        run, seq = log.view.run, log.seq
        if log.secrets is not None:
            facts = log.secrets.sealed(run, facts)
        rows = [Row(run, seq + n, wall, mono, fact) for n, fact in enumerate(facts, 1)]
        log.seq = seq + len(rows)
        if log.listener is not None and log.listener.early:
            log.listener.heard(rows)
        self._enqueue(Post(log, rows, then))

    def _enqueue(self, post: Post) -> None:
        self._queue.append(post)
        if self._idle:
            self._idle = False
            if self._at_once:
                self._keep_now()
            else:
                self._wake_writer()

    def confirm(self, log: RunLog) -> Awaitable[None] | None:
        """See that a run can still be driven, right before a body is entered.

        If it cannot, its log breaks, here or in what is awaited.
        """
        if self._fenced is None or log.broken is not None:
            return None
        try:
            asking = self._fenced.confirm(log.view.run)
        except JournalError as error:
            self._break(log, error)
            return None
        return None if asking is None else self._confirm(log, asking)

    async def _confirm(self, log: RunLog, asking: Awaitable[None]) -> None:
        try:
            with self._outside():
                await asking
        except JournalError as error:
            if log.broken is None:
                self._break(log, error)

    def _lost(self, error: RunOwnedError) -> None:
        """The store found out that somebody else drives runs of ours."""
        for log in list(self._logs):
            if log.view.run in error.runs and log.broken is None:
                self._break(log, error)

    async def keep(self, log: RunLog, facts: Sequence[Fact]) -> None:
        """Hand over facts and wait until they are kept; cancelling the wait withdraws nothing.

        Raises:
            JournalError: they are not known to be kept.
        """
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then(error: JournalError | None) -> None:
            if kept.done():
                return
            if error is None:
                kept.set_result(None)
            else:
                kept.set_exception(error)

        self.post(log, facts, then)
        await kept

    async def close(self) -> None:
        """Write what is left, let go of the task, and close the store."""
        self._closing = True
        if self._task is not None and not self._task.done():
            if self._idle:
                self._wake_writer()
            await asyncio.wait([self._task])
        self._task = None
        if self.broken is None:
            self.broken = JournalError("the journal is closed: its engine has been left")
        with self._outside():
            await self.store.close()

    @property
    def idle(self) -> bool:
        """Whether nothing is being kept or waits for it."""
        return self._idle

    def _wake_writer(self) -> None:
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = _WriterTask(self._write(), loop=loop, name="laneway-journal")
            self._task.journal = self
        elif self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _write(self) -> None:
        task = self._task
        assert task is not None
        while True:
            while self._queue:
                await self._keep(self._next_batch())
            self._idle = True
            if self._closing or task.ending:
                return
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            except asyncio.CancelledError:
                if self._idle:
                    raise
                task.ending = True  # Somebody posted in the same breath: that is kept first.

    def _next_batch(self) -> list[Post]:
        posts = [self._queue.popleft()]
        rows = len(posts[0].rows)
        while self._queue and rows + len(self._queue[0].rows) <= BATCH_ROWS:
            posts.append(self._queue.popleft())
            rows += len(posts[-1].rows)
        return posts

    async def _keep(self, posts: list[Post]) -> None:
        self._clock.hold()
        try:
            rows = posts[0].rows
            if len(posts) > 1:
                rows = [row for post in posts for row in post.rows]
            committing = self.store.commit(rows) if rows else None
            if committing is not None:
                await committing
        except RunOwnedError as error:
            self._lose(posts, error)
        # Whatever a store raises, no fact is known to be kept.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001
            self._break_all(posts, error)
        except (KeyboardInterrupt, SystemExit) as error:
            self._break_all(posts, error)
            raise
        else:
            self._acknowledge(posts)
        finally:
            self._clock.release()

    def _keep_now(self) -> None:
        """Keep what was posted at once, and whatever is posted by those who are told of it."""
        try:
            while self._queue:
                post = self._queue.popleft()
                try:
                    if post.rows:
                        self.store.commit(post.rows)
                except RunOwnedError as error:
                    self._lose([post], error)
                except BaseException as error:
                    self._break_all([post], error)
                    if not isinstance(error, (Exception, asyncio.CancelledError)):
                        raise
                else:
                    self._acknowledge([post])
        finally:
            self._idle = True

    def _acknowledge(self, posts: list[Post]) -> None:
        for post in posts:
            if post.rows:
                self.commits += 1
                break
        for post in posts:
            self._tell(post)

    def _tell(self, post: Post) -> None:
        """Fold what has been kept, and call back."""
        log = post.log
        if log.broken is None:
            try:
                apply = log.view.apply
                for row in post.rows:
                    apply(row)
                if log.listener is not None and not log.listener.early:
                    log.listener.heard(post.rows)
                if post.then is not None:
                    post.then(None)
            except Exception as error:  # noqa: BLE001 - a fault of one run must not stop the others
                self._break(log, EngineFaultError(log.view.run, error))
        if log.broken is not None:
            self._refuse([post], log.broken)

    def _refuse(self, posts: Iterable[Post], error: JournalError) -> None:
        for post in posts:
            if post.then is not None:
                post.then(error)

    def _lose(self, posts: list[Post], error: RunOwnedError) -> None:
        """Some runs have another driver now; what else was posted has been kept."""
        lost = {post.log for post in posts if post.log.view.run in error.runs}
        for log in lost:
            if log.broken is None:
                self._break(log, error)
        self._acknowledge([post for post in posts if post.log not in lost])
        self._refuse([post for post in posts if post.log in lost], error)
        behind = [post for post in self._queue if post.log in lost]
        if behind:
            self._queue = deque(post for post in self._queue if post.log not in lost)
            self._refuse(behind, error)

    def _break(self, log: RunLog, error: JournalError) -> None:
        log.broken = error
        self._logs.discard(log)
        try:
            log.on_broken(error)
        except Exception as fault:  # noqa: BLE001 - a fault of one run must not stop the others
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"run {log.view.run!r} could not be stopped", "exception": fault}
            )

    def _break_all(self, posts: list[Post], cause: BaseException) -> None:
        error = cause if isinstance(cause, JournalError) else unknown_commit(cause)
        self.broken = error
        refused = [*posts, *self._queue]
        self._queue.clear()
        logs = list(self._logs)
        for log in logs:
            log.broken = error  # Of all, before any is told: stopping one run moves others on.
        for log in logs:
            self._break(log, error)
        self._refuse(refused, error)


class _WriterTask(asyncio.Task[None]):
    """Not to be cancelled in a commit: a loop that is torn down cancels every task it finds."""

    journal: Journal
    ending = False
    """It has been cancelled, and ends as soon as nothing waits to be kept."""

    def cancel(self, msg: object = None) -> bool:
        """End now, or, while something is being kept, when all of it has been."""
        if self.journal.idle:
            return super().cancel(msg)
        self.ending = True
        return False


def unknown_commit(cause: BaseException) -> JournalError:
    """Say that a commit ended in a way that nobody foresaw."""
    error = JournalError(
        f"the journal could not be written ({type(cause).__name__}: {cause}); what was being "
        "written may or may not be kept, and nothing further is begun: mend the cause, then "
        "resume the run"
    )
    error.__cause__ = cause
    return error
