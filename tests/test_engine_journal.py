"""What is durable before what, what a broken journal does, and how a run is taken up again."""

import asyncio
import gc
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest

from laneway import (
    Bound,
    Code,
    Effect,
    Engine,
    Happened,
    Limits,
    State,
    Success,
    Tool,
    ToolContext,
    Turn,
)
from laneway.engine.run import Run
from laneway.engine.scheduler import Scheduler
from laneway.errors import (
    DamagedJournalError,
    EngineClosedError,
    EngineFaultError,
    JournalError,
    OpenTurnError,
    PayloadError,
    PolicyError,
    RunOwnedError,
    TurnNotReadyError,
    UnknownApprovalError,
    UnknownCallError,
    UsageError,
)
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallSettled,
    CallStarted,
    Fact,
    HolderStopped,
    MessageSaid,
    Row,
    RunOpened,
    RunTaken,
    Setting,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.journal.lease import this_driver
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.store import JournalStore
from laneway.policies.rules import Policy
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.theatre import failure, plan, states
from laneway.testing.watched import WatchedStore

NAME = RunId("case")
LOST = ConnectionResetError("the reply did not come")


def call(name: str, tool: str, needs: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool, "needs": list(needs), **more}


def kinds(facts: Sequence[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


async def passes(count: int = 8) -> None:
    """Let the loop run what is runnable."""
    for _ in range(count):
        await asyncio.sleep(0)


class Gate:
    """Stops the commit that holds a fact of some kind, until it is opened."""

    def __init__(self, kind: type[Fact], **fields: Any) -> None:
        self._kind = kind
        self._fields = fields
        self.open = asyncio.Event()
        self.reached = asyncio.Event()

    async def __call__(self, _number: int, rows: Sequence[Row]) -> None:
        if any(self._holds(row.fact) for row in rows) and not self.reached.is_set():
            self.reached.set()
            await self.open.wait()

    def _holds(self, fact: Fact) -> bool:
        return isinstance(fact, self._kind) and all(
            getattr(fact, name) == value for name, value in self._fields.items()
        )


@dataclass
class Scene:
    """A stage with its journal, where a run can be played, left, and taken up again."""

    stage: Stage = field(default_factory=Stage)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    store: WatchedStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = WatchedStore(MemoryStore(self.journal))

    @property
    def facts(self) -> list[Fact]:
        """What the journal holds of the run."""
        return [row.fact for row in self.journal.facts.get(NAME, ())]

    def play(
        self,
        main: Callable[[Run], Awaitable[Any]],
        tools: Sequence[Any],
        *,
        store: JournalStore | None = None,
        run: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Enter the run on virtual time; a fresh store of the same journal each time."""

        async def work() -> Any:
            engine = Engine(
                tools, journal=store or self.fresh(), clock=self.stage.make_clock, **options
            )
            async with engine, engine.run(NAME, **(run or {})) as entered:
                return await main(entered)

        return run_virtual(work)

    def fresh(self) -> WatchedStore:
        """A store that another process would open."""
        self.store = WatchedStore(MemoryStore(self.journal), before=self.store.before)
        return self.store

    def cut(self, facts: int) -> None:
        """Forget all but the first facts: a death came before the others were kept."""
        del self.journal.facts[NAME][facts:]

    def cut_after(self, kind: type[Fact], **fields: Any) -> None:
        """Die right after a fact of this kind was kept."""
        for at, fact in enumerate(self.facts, 1):
            if isinstance(fact, kind) and all(
                getattr(fact, name) == value for name, value in fields.items()
            ):
                self.cut(at)
                return
        raise AssertionError(f"no {kind.__name__} with {fields} among {kinds(self.facts)}")


# Durable before the engine goes on


def test_no_body_is_entered_before_its_start_is_kept() -> None:
    """Every attempt of every effect class, by task and by thread, looks at what has been kept."""
    scene = Scene()
    seen: list[tuple[str, int]] = []

    def look(context: ToolContext) -> None:
        started = [
            (fact.call, fact.attempt) for fact in scene.store.kept if isinstance(fact, CallStarted)
        ]
        assert (context.call, context.attempt) in started
        seen.append((context.call, context.attempt))

    async def flaky(context: ToolContext) -> str:
        look(context)
        if context.attempt < 3:
            raise LOST
        return "ok"

    def threaded(context: ToolContext) -> str:
        look(context)
        return "ok"

    async def plain(context: ToolContext) -> str:
        look(context)
        return "ok"

    tools: list[Tool[..., Any]] = [
        Tool.of(plain, name="pure", effect=Effect.PURE),
        Tool.of(plain, name="write", effect=Effect.WRITE),
        Tool.of(plain, name="external", effect=Effect.EXTERNAL),
        Tool.of(plain, name="unknown"),
        Tool.of(flaky, name="read", effect=Effect.READ, retries=5),
        Tool.of(threaded, name="thread", effect=Effect.WRITE, claims=["lane:tool/write"]),
    ]
    names = [tool.spec.name for tool in tools]
    reply = plan(
        *(call(f"{name}{n}", name) for n in range(3) for name in names),
        *(call(f"after_{name}", name, [f"{name}0"]) for name in names),
    )

    async def main(run: Run) -> Turn:
        scene.store.before = lambda *_: passes(3)
        return await run.submit(reply)

    turn = scene.play(main, tools)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert len(seen) == len(turn.calls) + 2 * 4, "three attempts of each read"


@pytest.mark.parametrize("effect", list(Effect))
def test_a_body_waits_for_its_start_however_long_the_commit_takes(effect: Effect) -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"), effect=effect)

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(CallStarted)
        submitting = asyncio.create_task(run.submit(plan(call("a", "work"))))
        await gate.reached.wait()
        await asyncio.sleep(800)
        assert scene.stage.entered == {}
        gate.open.set()
        assert states(await submitting) == {"a": State.SUCCEEDED}

    scene.play(main, [tool], limits=Limits(call_seconds=1))

    assert scene.stage.entered == {"work": 1}


def test_the_limit_of_a_body_does_not_count_the_commit_of_its_start() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(0.9), Return("ok"), timeout=1)

    async def main(run: Run) -> Turn:
        async def slow(_number: int, _rows: Sequence[Row]) -> None:
            await asyncio.sleep(5)

        scene.store.before = slow
        return await run.submit(plan(call("a", "work")))

    assert states(scene.play(main, [tool])) == {"a": State.SUCCEEDED}


def test_the_reply_is_kept_before_submit_comes_back_or_a_call_is_seen() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"))

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(TurnSubmitted)
        submitting = asyncio.create_task(run.submit(plan(call("a", "work")), wait=False))
        await gate.reached.wait()
        await asyncio.sleep(1)
        assert not submitting.done()
        assert run.turns == []
        gate.open.set()
        turn = await submitting
        assert [one.number for one in run.turns] == [1]
        assert turn.open_calls == ["a"]
        assert any(isinstance(fact, TurnSubmitted) for fact in scene.store.kept)

    scene.play(main, [tool])


def test_an_outcome_is_kept_before_it_is_shown_and_before_a_dependent_starts() -> None:
    scene = Scene()
    tools = [scene.stage.tool("first", Return("one")), scene.stage.tool("second", Return("two"))]

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(CallEnded, call="t1.1")
        submitting = asyncio.create_task(
            run.submit(plan(call("a", "first"), call("b", "second", ["a"])))
        )
        await gate.reached.wait()
        await asyncio.sleep(1)
        assert scene.stage.entered == {"first": 1}
        turn = run.turns[0]
        assert turn.outcomes == {}
        assert states(turn) == {"a": State.RUNNING, "b": State.PENDING}
        assert not turn.ready
        with pytest.raises(TurnNotReadyError, match="calls a, b are open"):
            _ = turn.messages
        gate.open.set()
        assert (await submitting).ready

    scene.play(main, tools)


def test_the_messages_of_a_turn_wait_until_its_end_is_kept() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(TurnClosed)
        submitting = asyncio.create_task(run.submit(plan(call("a", "work"))))
        await gate.reached.wait()
        await asyncio.sleep(1)
        assert not submitting.done()
        assert run.history() == []
        gate.open.set()
        turn = await submitting
        assert turn.messages == run.history()

    scene.play(main, [tool])


def test_a_run_is_open_when_its_opening_is_kept() -> None:
    scene = Scene()

    async def main() -> None:
        gate = scene.store.before = Gate(RunOpened)
        engine = Engine(journal=scene.store, clock=scene.stage.make_clock)
        async with engine:
            entering = asyncio.create_task(engine.run(NAME).__aenter__())
            await gate.reached.wait()
            await passes()
            assert not entering.done()
            gate.open.set()
            run = await entering
            assert run.view.seq == 1
            await run.__aexit__(None, None, None)

    run_virtual(main)


def test_a_question_is_kept_before_it_is_shown_and_its_answer_before_it_counts() -> None:
    scene = Scene()
    tool = scene.stage.tool("ask", Return("ok"), effect=Effect.EXTERNAL, approval=True)

    async def main(run: Run) -> None:
        asked = scene.store.before = Gate(ApprovalAsked)
        submitting = asyncio.create_task(run.submit(plan(call("a", "ask"))))
        await asked.reached.wait()
        await passes()
        assert run.approvals == []
        with pytest.raises(UnknownApprovalError, match=r"no open approval 'a'.*open: none"):
            await run.approve("a")
        asked.open.set()
        await asyncio.sleep(1)
        assert [one.id for one in run.approvals] == ["t1.1.a1"]

        answered = scene.store.before = Gate(ApprovalAnswered)
        approving = asyncio.create_task(run.approve("a", by="ann"))
        await answered.reached.wait()
        await asyncio.sleep(1)
        assert not approving.done()
        assert scene.stage.entered == {}
        with pytest.raises(UnknownApprovalError):
            await run.deny("a")
        answered.open.set()
        await approving
        assert states(await submitting) == {"a": State.SUCCEEDED}

    scene.play(main, [tool])


def test_a_refusal_is_kept_before_it_is_shown() -> None:
    scene = Scene()
    tool = scene.stage.tool("ask", Return("ok"), approval=True)

    async def main(run: Run) -> None:
        turn = await run.submit(plan(call("a", "ask")), wait=False)
        gate = scene.store.before = Gate(ApprovalAnswered)
        denying = asyncio.create_task(run.deny("a", by="ann", reason="no"))
        await gate.reached.wait()
        await passes()
        assert turn.outcomes == {}
        assert not denying.done()
        gate.open.set()
        await denying
        assert failure(turn, "a").code is Code.APPROVAL_REJECTED

    scene.play(main, [tool])


def test_a_settlement_is_kept_before_a_dependent_starts() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("lose", Raise(LOST), effect=Effect.EXTERNAL),
        scene.stage.tool("next", Return("n")),
    ]

    async def main(run: Run) -> None:
        turn = await run.submit(plan(call("a", "lose"), call("b", "next", ["a"])), wait=False)
        await turn.wait()
        assert states(turn) == {"a": State.UNCERTAIN, "b": State.PENDING}
        gate = scene.store.before = Gate(CallSettled)
        settling = asyncio.create_task(run.settle("a", value="done", by="ann"))
        await gate.reached.wait()
        await asyncio.sleep(1)
        assert not settling.done()
        assert scene.stage.entered == {"lose": 1}
        gate.open.set()
        await settling
        await turn.wait()
        assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}

    scene.play(main, tools)


def test_what_the_host_says_is_kept_when_say_comes_back() -> None:
    scene = Scene()

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(MessageSaid)
        saying = asyncio.create_task(run.say("hello"))
        await gate.reached.wait()
        await passes()
        assert not saying.done()
        assert run.history() == []
        gate.open.set()
        assert await saying == [{"role": "user", "content": "hello"}]

    scene.play(main, [])


def test_a_cancelled_call_is_answered_when_that_is_kept() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"), approval=True)

    async def main(run: Run) -> None:
        turn = await run.submit(plan(call("a", "work")), wait=False)
        gate = scene.store.before = Gate(CallEnded)
        cancelling = asyncio.create_task(run.cancel("a"))
        await gate.reached.wait()
        await passes()
        assert not cancelling.done()
        assert turn.outcomes == {}
        gate.open.set()
        await cancelling
        assert states(turn) == {"a": State.CANCELLED}

    scene.play(main, [tool])


def test_what_a_release_starts_goes_down_with_it() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"), claims=["lane:one"])

    async def main(run: Run) -> None:
        await run.submit(plan(*(call(name, "work") for name in "abc")))

    scene.play(main, [tool])

    batches = [kinds([row.fact for row in batch]) for batch in scene.store.batches]
    assert batches[2:4] == [["CallEnded", "CallStarted"]] * 2


def test_what_a_release_starts_in_another_run_goes_down_with_it() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"), claims=["lane:one"])

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            first = await one.submit(plan(call("a", "work")), wait=False)
            second = await two.submit(plan(call("b", "work")), wait=False)
            await asyncio.gather(first.wait(), second.wait())

    run_virtual(main)

    released = [
        batch
        for batch in scene.store.batches
        if any(row.run == "one" and isinstance(row.fact, CallEnded) for row in batch)
    ]
    assert [(row.run, type(row.fact).__name__) for row in released[0]] == [
        ("one", "CallEnded"),
        ("one", "TurnClosed"),
        ("two", "CallStarted"),
    ]


# The weaker mode


def test_relaxed_durability_enters_what_changes_nothing_at_once_and_nothing_else() -> None:
    scene = Scene()
    tools = [scene.stage.tool(effect, Sleep(0.1), Return("ok"), effect=effect) for effect in Effect]

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(CallStarted)
        submitting = asyncio.create_task(run.submit(plan(*(call(one, one) for one in Effect))))
        await gate.reached.wait()
        await asyncio.sleep(10)
        assert scene.stage.entered == {"pure": 1, "read": 1}
        assert run.turns == []
        gate.open.set()
        turn = await submitting
        assert set(states(turn).values()) == {State.SUCCEEDED}

    scene.play(main, tools, durability="relaxed")

    assert scene.stage.entered == dict.fromkeys(["pure", "read", "write", "external"], 1)
    fold(NAME, scene.journal.facts[NAME])


def test_relaxed_durability_still_keeps_an_outcome_before_it_shows_it() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("look", Return("ok")),
        scene.stage.tool("change", Return("ok"), effect=Effect.WRITE),
    ]

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(CallEnded, call="t1.1")
        submitting = asyncio.create_task(
            run.submit(plan(call("a", "look"), call("b", "change", ["a"])))
        )
        await gate.reached.wait()
        await asyncio.sleep(10)
        assert run.turns == [] or run.turns[0].outcomes == {}
        assert scene.stage.entered == {"look": 1}
        gate.open.set()
        await submitting

    scene.play(main, tools, durability="relaxed")

    assert scene.stage.entered == {"look": 1, "change": 1}


def test_a_relaxed_run_that_dies_early_runs_its_reads_again_and_its_writes_once() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool(effect, Log(effect), Return("ok"), effect=effect) for effect in Effect
    ]

    async def first(run: Run) -> None:
        await run.submit(plan(*(call(one, one) for one in Effect)))

    scene.play(first, tools, durability="relaxed")
    scene.cut_after(TurnSubmitted)
    scene.stage.entered.clear()

    async def again(run: Run) -> Turn | None:
        return await run.finish()

    turn = scene.play(again, tools, durability="relaxed")

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert scene.stage.entered == dict.fromkeys(Effect, 1)


# A journal that fails


@dataclass
class Troupe:
    """Tools of every kind, which note what they were told; and a turn that uses all of them."""

    stage: Stage
    stopped: list[str] = field(default_factory=list)

    def tools(self) -> list[Tool[..., Any]]:
        stage = self.stage

        async def slow(arguments: Any) -> str:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                self.stopped.append("slow")
                raise
            return "slept"

        async def deaf(arguments: Any) -> str:
            for _ in range(20):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    self.stopped.append("deaf")
            return "did not hear"

        tries: list[int] = []

        def flaky(arguments: Any) -> str:
            tries.append(1)
            if len(tries) % 2:
                raise LOST
            return "ok"

        return [
            stage.tool("quick", Log("quick"), Return("q")),
            stage.tool("slow", Log("slow"), Do(slow), effect=Effect.WRITE, claims=["lane:s"]),
            stage.tool("deaf", Log("deaf"), Do(deaf), effect=Effect.EXTERNAL, timeout=50),
            stage.tool("block", Block(3), Log("block"), Return("b"), sync=True, timeout=30),
            stage.tool("flaky", Do(flaky), retries=6),
            stage.tool("pay", Log("pay"), Return("paid"), effect=Effect.EXTERNAL),
            stage.tool("ask", Log("asked"), Return("yes"), approval=True),
        ]


TROUPE_TURN = plan(
    call("q1", "quick"),
    call("s1", "slow"),
    call("s2", "slow"),
    call("d1", "deaf"),
    call("b1", "block"),
    call("f1", "flaky"),
    call("p1", "pay", ["q1"]),
    call("p2", "pay", ["f1"]),
    call("a1", "ask"),
    call("q2", "quick", ["a1", "s2"]),
)


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
@pytest.mark.parametrize("kept", [False, True], ids=["nothing kept", "all kept"])
def test_a_store_that_fails_at_any_commit_stops_the_run_and_no_more(
    durability: Any, *, kept: bool, at_once: bool
) -> None:
    """For every n: no body is entered afterwards, bodies are told, nobody hangs, all goes on."""
    at = 1
    while play_until(at, kept=kept, at_once=at_once, durability=durability):
        at += 1

    assert at > 10, "the turn makes more commits than that"


class AtOnce(MemoryStore):
    """A store that keeps at once, but for one commit, before or after which it fails."""

    def __init__(self, journal: MemoryJournal, fail: Any, *, kept: bool) -> None:
        super().__init__(journal)
        self._fail = fail
        self._kept = kept
        self._commits = 0

    def commit(self, batch: Sequence[Row], /) -> None:
        self._commits += 1
        if not self._kept:
            self._fail(self._commits, batch)
        super().commit(batch)
        if self._kept:
            self._fail(self._commits, batch)


def play_until(at: int, *, kept: bool, at_once: bool, **options: Any) -> bool:
    """Let commit `at` fail; return whether there was such a commit."""
    scene = Scene()
    troupe = Troupe(scene.stage)
    broke = 0
    entered_then: Counter[str] = Counter()

    def fail(number: int, _rows: Sequence[Row]) -> None:
        nonlocal broke, entered_then
        if number == at:
            broke, entered_then = number, scene.stage.entered.copy()
            raise OSError("the disk is gone")

    store: JournalStore = AtOnce(scene.journal, fail, kept=kept)
    if not at_once:
        store = WatchedStore(
            MemoryStore(scene.journal),
            before=None if kept else fail,
            after=fail if kept else None,
        )

    async def main() -> None:
        engine = Engine(troupe.tools(), journal=store, clock=scene.stage.make_clock, **options)
        async with engine, engine.run(NAME) as run:
            await say_and_submit(run)

    try:
        run_virtual(main)
    except JournalError as error:
        told = str(error)
    else:
        assert not broke, "the error was swallowed"
        return False
    assert broke == at
    assert "OSError: the disk is gone" in told
    assert "resume the run" in told

    entered_then["block"] = scene.stage.entered["block"]  # Its thread may have begun just then.
    assert scene.stage.entered == entered_then, "a body was entered on a broken journal"
    # A thread of this life may still be about to begin: it keeps the clock that it belongs to.
    later = Scene(Stage(_log=scene.stage.log), scene.journal)
    check_that_it_goes_on(later, Troupe(later.stage))
    return True


async def say_and_submit(run: Run) -> None:
    """A host with a human, who answers after a second."""

    async def answer() -> None:
        await asyncio.sleep(1)
        for approval in run.approvals:
            await run.approve(approval.id)

    answering = asyncio.create_task(answer())
    try:
        await run.say("do it")
        await run.submit(TROUPE_TURN)
    finally:
        answering.cancel()
        await asyncio.wait([answering])
        if not answering.cancelled():
            assert isinstance(answering.exception(), JournalError | None)


def check_that_it_goes_on(scene: Scene, troupe: Troupe) -> None:
    """A later engine on the same journal ends the turn, and pays nothing twice."""
    if scene.journal.facts.get(NAME):
        fold(NAME, scene.journal.facts[NAME])

    async def again(run: Run) -> dict[str, State]:
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(1)
        for approval in run.approvals:
            await run.approve(approval.id)
        turn = await finishing or (run.turns[0] if run.turns else None)
        return states(turn) if turn is not None else {}

    first = scene.play(again, troupe.tools())
    second = scene.play(again, troupe.tools())

    assert first == second
    assert set(first.values()) <= {State.SUCCEEDED, State.UNCERTAIN, State.SKIPPED}
    paid = sum(first[name] is State.SUCCEEDED for name in ("p1", "p2") if name in first)
    assert paid <= scene.stage.log.count("pay") <= 2
    for name in ("q1", "b1", "f1"):
        assert first.get(name, State.SUCCEEDED) is State.SUCCEEDED


def test_bodies_are_told_when_the_journal_breaks() -> None:
    scene = Scene()
    troupe = Troupe(scene.stage)
    seen: list[Any] = []

    async def watch(context: ToolContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(context.cancelled)

    def watch_in_thread(context: ToolContext) -> None:
        assert scene.stage.clock is not None
        while not context.cancelled:
            scene.stage.clock.block(1)
        seen.append("told in a thread")

    async def main() -> None:
        engine = Engine(
            [
                *troupe.tools(),
                Tool.of(watch, name="watch", effect=Effect.READ),
                Tool.of(watch_in_thread, name="watch_in_thread", effect=Effect.READ),
            ],
            journal=scene.store,
            clock=scene.stage.make_clock,
        )
        async with engine, engine.run(NAME) as run:
            turn = await run.submit(
                plan(
                    call("s", "slow"),
                    call("d", "deaf"),
                    call("w", "watch"),
                    call("t", "watch_in_thread"),
                ),
                wait=False,
            )
            await asyncio.sleep(0.5)
            break_now(scene.store)
            waiting = asyncio.create_task(turn.wait())
            with pytest.raises(JournalError):
                await run.say("x")
            with pytest.raises(JournalError):
                await waiting
            await asyncio.sleep(0.2)
            assert troupe.stopped == ["slow", "deaf"]
            with pytest.raises(JournalError):
                await turn.wait()
            with pytest.raises(JournalError):
                await turn.close()
            with pytest.raises(JournalError):
                await run.finish()
            await asyncio.sleep(3)
            assert seen == [True, "told in a thread"]
            assert engine.status().lanes != ()

    run_virtual(main)


def break_now(store: WatchedStore) -> None:
    def fail(_number: int, _rows: Sequence[Row]) -> None:
        raise OSError("the disk is gone")

    store.before = fail


def test_a_stubborn_body_keeps_nobody_in_a_broken_engine() -> None:
    """Its grace is counted although nothing can be written down any more."""
    scene = Scene()
    troupe = Troupe(scene.stage)

    async def main() -> float:
        engine = Engine(troupe.tools(), journal=scene.store, clock=scene.stage.make_clock)
        loop = asyncio.get_running_loop()
        async with engine, engine.run(NAME) as run:
            await run.submit(plan(call("d", "deaf"), call("b", "block")), wait=False)
            await asyncio.sleep(0.5)
            break_now(scene.store)
            began = loop.time()
            with pytest.raises(JournalError):
                await run.say("x")
        return loop.time() - began

    assert run_virtual(main) < 2


def test_a_thread_keeps_its_claims_though_its_run_was_lost() -> None:
    """A body that has not really stopped still holds them, against the other runs."""
    scene = Scene()
    tools = [
        scene.stage.tool(
            "block", Block(3), Log("block over"), sync=True, effect=Effect.WRITE, claims=["lane:x"]
        ),
        scene.stage.tool("next", Log("next"), effect=Effect.WRITE, claims=["lane:x"]),
    ]

    async def main() -> None:
        engine = Engine(tools, journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            await lost.submit(plan(call("a", "block")), wait=False)
            await asyncio.sleep(0.5)
            turn = await kept.submit(plan(call("b", "next")), wait=False)
            lose(scene.journal, RunId("lost"))
            with pytest.raises(RunOwnedError, match="'lost' is driven by somebody else"):
                await lost.say("x")
            assert [one.call for one in engine.status().stuck] == ["t1.1"]
            await turn.wait()
            assert engine.status().stuck == ()
            assert engine.status().stuck_threads == 0

    run_virtual(main)

    assert scene.stage.log == ["block over", "next"]


def lose(journal: MemoryJournal, run: RunId) -> None:
    """Somebody else has taken the run, as if its owner had been thought dead."""
    lease = journal.leases.pop(run)
    lease.held.pop(run)
    lease.lost[run] = "somebody else"


def test_a_run_that_was_lost_stops_and_frees_its_lanes_for_the_others() -> None:
    scene = Scene()
    troupe = Troupe(scene.stage)

    async def main() -> None:
        engine = Engine(troupe.tools(), journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            first = await lost.submit(plan(call("a", "slow"), call("b", "slow")), wait=False)
            await asyncio.sleep(0.5)
            second = await kept.submit(plan(call("c", "slow"), call("d", "quick")), wait=False)
            waiting = asyncio.create_task(first.wait())
            lose(scene.journal, RunId("lost"))
            with pytest.raises(RunOwnedError):
                await lost.say("x")
            with pytest.raises(RunOwnedError):
                await waiting
            with pytest.raises(RunOwnedError):
                await lost.cancel()
            await second.wait()
            assert states(second) == {"c": State.SUCCEEDED, "d": State.SUCCEEDED}
            assert troupe.stopped == ["slow"]

    run_virtual(main)

    assert scene.stage.entered == {"slow": 2, "quick": 1}


def test_a_run_that_another_process_took_in_the_file_stops_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    scene = Scene()
    troupe = Troupe(scene.stage)
    path = tmp_path / "runs.db"

    def taken_elsewhere() -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE runs SET token = token + 1 WHERE name = 'lost'")
        connection.close()

    async def main() -> None:
        engine = Engine(troupe.tools(), journal=path, clock=scene.stage.make_clock)
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            await lost.submit(plan(call("a", "slow"), call("b", "pay", ["a"])), wait=False)
            await asyncio.sleep(0.5)
            taken_elsewhere()
            results = await asyncio.gather(
                *(lost.say(f"{n}") for n in range(3)),
                kept.submit(plan(call("c", "slow"), call("d", "quick"))),
                *(lost.say(f"{n}") for n in range(3)),
                return_exceptions=True,
            )
            turn = results.pop(3)
            assert isinstance(turn, Turn)
            assert states(turn) == {"c": State.SUCCEEDED, "d": State.SUCCEEDED}
            assert [type(one) for one in results] == [RunOwnedError] * 6
            with pytest.raises(RunOwnedError):
                await lost.finish()

    run_virtual(main)

    assert scene.stage.entered == {"slow": 2, "quick": 1}
    assert troupe.stopped == ["slow"]


@pytest.mark.parametrize("where", ["queued", "backing off", "awaiting", "starting"])
def test_a_run_that_was_lost_leaves_no_lane_behind(where: str) -> None:
    """Whatever its call did at that moment."""
    scene = Scene()
    stage = scene.stage
    tools = [
        stage.tool("hold", Sleep(50), effect=Effect.WRITE, claims=["lane:x"], timeout=100),
        stage.tool("flaky", Raise(LOST), effect=Effect.READ, claims=["lane:x"], retries=3),
        stage.tool("ask", effect=Effect.WRITE, claims=["lane:x"], approval=True),
        stage.tool("next", Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
    ]
    turns = {
        "queued": plan(call("a", "hold"), call("b", "hold")),
        "backing off": plan(call("a", "flaky")),
        "awaiting": plan(call("a", "ask")),
        "starting": plan(call("a", "hold")),
    }

    async def main() -> None:
        engine = Engine(tools, journal=scene.store, clock=stage.make_clock)
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            if where == "starting":
                lose(scene.journal, RunId("lost"))
            submitting = asyncio.create_task(lost.submit(turns[where]))
            await asyncio.sleep(0.5)
            if where != "starting":
                lose(scene.journal, RunId("lost"))
                with pytest.raises(RunOwnedError):
                    await lost.say("x")
            with pytest.raises(RunOwnedError):
                await submitting
            turn = await kept.submit(plan(call("c", "next")))
            assert states(turn) == {"c": State.SUCCEEDED}
            await asyncio.sleep(100)
            assert not [lane for lane in engine.status().lanes if lane.resource == "lane:x"]

    run_virtual(main)


def test_a_retried_call_in_a_queue_leaves_it_when_its_run_is_lost() -> None:
    scene = Scene()
    stage = scene.stage
    tools = [
        stage.tool("flaky", Raise(LOST), effect=Effect.READ, claims=["lane:x"], retries=3),
        stage.tool("hold", Sleep(5), effect=Effect.WRITE, claims=["lane:x"]),
        stage.tool("next", Return("ok"), effect=Effect.WRITE, claims=["lane:x"]),
    ]

    async def main() -> None:
        engine = Engine(
            tools,
            journal=scene.store,
            clock=stage.make_clock,
            limits=Limits(back_off_seconds=1),
        )
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            first = await lost.submit(plan(call("a", "flaky")), wait=False)
            await asyncio.sleep(0.1)
            holding = await kept.submit(plan(call("h", "hold")), wait=False)
            await asyncio.sleep(2)
            assert states(first) == {"a": State.QUEUED}
            lose(scene.journal, RunId("lost"))
            with pytest.raises(RunOwnedError):
                await lost.say("x")
            await holding.wait()
            turn = await kept.submit(plan(call("n", "next")))
            assert states(turn) == {"n": State.SUCCEEDED}

    run_virtual(main)

    assert scene.stage.entered["flaky"] == 1


@pytest.mark.parametrize("running", [False, True], ids=["starting", "running"])
def test_runs_that_share_a_lane_are_all_told_when_the_journal_breaks(*, running: bool) -> None:
    """The first gives its lane to the next one, which must not begin anything with it."""
    scene = Scene()
    troupe = Troupe(scene.stage)

    async def main() -> None:
        gate = Gate(CallStarted)

        async def fail(number: int, rows: Sequence[Row]) -> None:
            await gate(number, rows)
            raise OSError("the disk is gone")

        engine = Engine(troupe.tools(), journal=scene.store, clock=scene.stage.make_clock)
        async with engine, AsyncExitStack() as entered:
            runs = [await entered.enter_async_context(engine.run(f"r{n}")) for n in range(8)]
            if not running:
                scene.store.before = fail
            waiting = [asyncio.create_task(runs[0].submit(plan(call("a", "slow"))))]
            await asyncio.sleep(0.5)
            scene.store.before = fail
            waiting += [
                asyncio.create_task(run.submit(plan(call("b", "slow")))) for run in runs[1:]
            ]
            await asyncio.sleep(0.5)
            gate.open.set()
            done, _ = await asyncio.wait(waiting, timeout=4)
            assert len(done) == 8
            assert all(isinstance(task.exception(), JournalError) for task in done)

    run_virtual(main)

    assert scene.stage.entered == ({"slow": 1} if running else {})


def test_a_fault_about_a_body_of_a_lost_run_frees_its_lanes_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("block", Block(3), sync=True, effect=Effect.WRITE, claims=["lane:x"]),
        scene.stage.tool("next", Return("n"), effect=Effect.WRITE, claims=["lane:x"]),
    ]

    async def main() -> None:
        engine = Engine(tools, journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("lost") as lost, engine.run("kept") as kept:
            await lost.submit(plan(call("a", "block")), wait=False)
            await asyncio.sleep(0.5)
            lose(scene.journal, RunId("lost"))
            with pytest.raises(RunOwnedError):
                await lost.say("x")
            monkeypatch.setattr("laneway.engine.bodies.late_text", a_fault)
            turn = await kept.submit(plan(call("b", "next")))
            assert states(turn) == {"b": State.SUCCEEDED}

    run_virtual(main)


def a_fault(*_: Any, **__: Any) -> None:
    raise IndexError("of the engine itself")


@pytest.mark.parametrize("at_once", [False, True], ids=["awaited", "at once"])
def test_a_fault_of_the_engine_ends_the_run_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    scene = Scene()
    tools = [scene.stage.tool("work", Return("ok")), scene.stage.tool("other", Return("ok"))]

    async def broken(run: Run) -> None:
        monkeypatch.setattr("laneway.engine.bodies.normalise", a_fault)
        with pytest.raises(EngineFaultError, match=r"IndexError.*please report it.*be resumed"):
            await run.submit(plan(call("a", "work")))
        monkeypatch.undo()
        with pytest.raises(EngineFaultError):
            await run.say("x")

    memory = MemoryStore(scene.journal)
    scene.play(broken, tools, store=memory if at_once else WatchedStore(memory))

    async def again(run: Run) -> Turn | None:
        return await run.finish()

    assert states(scene.play(again, tools)) == {"a": State.SUCCEEDED}


def test_a_fault_of_the_engine_in_one_run_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("work", Return("ok"), claims=["lane:x"]),
        scene.stage.tool("nap", Sleep(2), Return("ok")),
    ]

    async def main() -> None:
        engine = Engine(tools, journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("one") as one, engine.run("two") as two:
            napping = await two.submit(plan(call("n", "nap"), call("w", "work", ["n"])), wait=False)
            monkeypatch.setattr("laneway.engine.bodies.normalise", a_fault)
            with pytest.raises(EngineFaultError):
                await one.submit(plan(call("a", "work")))
            monkeypatch.undo()
            await napping.wait()
            assert set(states(napping).values()) == {State.SUCCEEDED}

    run_virtual(main)


# Stores that do odd things


@pytest.mark.parametrize("verb", ["open", "take", "leave", "close"])
def test_an_engine_survives_a_store_that_fails_in_another_verb(verb: str) -> None:
    """The error comes out where the verb was meant, and the engine can be used again."""
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))
    good = getattr(scene.store, verb)

    async def bad(*_: Any) -> None:
        raise JournalError(f"cannot {verb}")

    async def use(engine: Engine) -> dict[str, State]:
        async with engine, engine.run(NAME) as run:
            return states(await run.submit(plan(call("a", "work"))))

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        setattr(scene.store, verb, bad)
        with pytest.raises(JournalError, match=f"cannot {verb}"):
            await use(engine)
        setattr(scene.store, verb, good)
        if verb in ("leave", "close"):  # What was not given back is given back by another try.
            await scene.store.close()
        assert await use(engine) == {"a": State.SUCCEEDED}

    run_virtual(main)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), RecursionError(), ValueError("\ud800")]
)
def test_a_store_that_raises_something_odd_breaks_the_run_in_order(error: BaseException) -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))

    async def main(run: Run) -> None:
        submitting = asyncio.create_task(run.submit(plan(call("a", "work"))))
        await asyncio.sleep(0.5)

        def fail(_number: int, _rows: Sequence[Row]) -> None:
            raise error

        scene.store.before = fail
        with pytest.raises(JournalError, match=type(error).__name__):
            await submitting

    scene.play(main, [tool])


def test_a_store_that_is_interrupted_lets_the_interrupt_out() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))

    async def main(run: Run) -> None:
        def interrupt(_number: int, _rows: Sequence[Row]) -> None:
            raise KeyboardInterrupt

        scene.store.before = interrupt
        await run.submit(plan(call("a", "work")))

    with pytest.raises((KeyboardInterrupt, JournalError)):
        scene.play(main, [tool])

    assert scene.stage.entered == {}


def test_a_writer_that_somebody_cancels_goes_on_for_the_engine() -> None:
    """A host that cancels every task it finds, as some frameworks do at a shutdown."""
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))

    async def main(run: Run) -> None:
        for n in range(3):
            turn = await run.submit(plan(call("a", "work"), call("b", "work", ["a"])), wait=False)
            for _ in range(n):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                if task.get_name() == "laneway-journal":
                    task.cancel()
            await turn.wait()
            assert set(states(turn).values()) == {State.SUCCEEDED}

    scene.play(main, [tool], loops=None)


def test_one_run_is_never_driven_twice() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        other = Engine([tool], journal=scene.fresh(), clock=scene.stage.make_clock)
        async with engine, other, engine.run(NAME) as run, other.run("theirs") as theirs:
            turn = await run.submit(plan(call("a", "work")), wait=False)
            for one in (engine, other):
                with pytest.raises(RunOwnedError, match="two processes never drive one run"):
                    await one.run(NAME).__aenter__()
            await turn.wait()
            assert states(turn) == {"a": State.SUCCEEDED}
            assert states(await theirs.submit(plan(call("b", "work")))) == {"b": State.SUCCEEDED}
            await run.__aexit__(None, None, None)
            async with other.run(NAME) as taken:
                assert states(taken.turns[0]) == {"a": State.SUCCEEDED}

    run_virtual(main)


def test_a_run_that_was_left_with_a_body_that_will_not_stop_is_given_back_when_it_has() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("stuck", Block(5), Return("late"), sync=True, effect=Effect.WRITE),
        scene.stage.tool("next", Return("n")),
    ]

    async def main() -> None:
        engine = Engine(tools, journal=scene.store, clock=scene.stage.make_clock)
        async with engine:
            async with engine.run(NAME) as run:
                await run.submit(plan(call("a", "stuck")), wait=False)
                await asyncio.sleep(1)
            assert [one.run for one in engine.status().stuck] == [NAME]
            with pytest.raises(RunOwnedError):
                await engine.run(NAME).__aenter__()
            await asyncio.sleep(5)
            async with engine.run(NAME) as again:
                assert again.turns[0].call("a").late == "late"
                assert states(again.turns[0]) == {"a": State.CANCELLED}

    run_virtual(main)


# Leaving


def test_an_engine_is_left_when_all_that_waited_is_kept() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"), effect=Effect.WRITE)

    async def main() -> None:
        async def slow(_number: int, _rows: Sequence[Row]) -> None:
            await asyncio.sleep(1)

        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run(NAME) as run:
            scene.store.before = slow
            await run.submit(plan(call("a", "work")), wait=False)
            saying = asyncio.create_task(run.say("last words"))
            await asyncio.sleep(0)
        assert await saying == [{"role": "user", "content": "last words"}]

    run_virtual(main)

    assert kinds(scene.facts)[-1] == "TurnClosed"
    assert "MessageSaid" in kinds(scene.facts)


def test_an_engine_that_is_left_takes_its_open_runs_along() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"), effect=Effect.WRITE)

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine:
            run = await engine.run(NAME).__aenter__()
            turn = await run.submit(plan(call("a", "work")), wait=False)
            await asyncio.sleep(1)
        assert states(turn) == {"a": State.CANCELLED}
        with pytest.raises(EngineClosedError, match="run 'case' is not open"):
            await run.say("x")
        await run.__aexit__(None, None, None)
        async with engine, engine.run(NAME) as entered:
            assert states(entered.turns[0]) == {"a": State.CANCELLED}

    run_virtual(main)


def test_an_engine_whose_last_commit_fails_is_left_and_can_be_entered_again() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"), effect=Effect.WRITE)

    async def main() -> list[State]:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        await engine.__aenter__()
        run = await engine.run(NAME).__aenter__()
        await run.submit(plan(call("a", "work")), wait=False)
        await asyncio.sleep(1)
        break_now(scene.store)
        with pytest.raises(JournalError, match="the disk is gone"):
            await engine.__aexit__(None, None, None)
        with pytest.raises(EngineClosedError):
            _ = engine.services
        scene.store.before = None
        async with engine, engine.run(NAME) as entered:
            turn = await entered.finish()
            assert turn is not None
            return list(states(turn).values())

    assert run_virtual(main) == [State.UNCERTAIN]


def test_a_run_whose_last_commit_fails_gives_its_lease_back() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"), effect=Effect.WRITE)

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine:
            run = await engine.run(NAME).__aenter__()
            await run.submit(plan(call("a", "work")), wait=False)
            await asyncio.sleep(1)
            break_now(scene.store)
            with pytest.raises(JournalError, match="the disk is gone"):
                await run.__aexit__(None, None, None)
            assert scene.journal.leases == {}
            with pytest.raises(EngineClosedError, match=r"async with engine.run\('case'\)"):
                run.history()
            with pytest.raises(JournalError, match="the disk is gone"):
                await engine.run("another").__aenter__()

    run_virtual(main)


def test_whoever_waits_for_a_human_is_told_when_the_run_is_left() -> None:
    scene = Scene()
    tool = scene.stage.tool("ask", Return("ok"), approval=True)

    async def main() -> None:
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run(NAME) as run:
            submitting = asyncio.create_task(run.submit(plan(call("a", "ask"))))
            await asyncio.sleep(1)
        with pytest.raises(EngineClosedError, match="run 'case' is not open"):
            await submitting

    run_virtual(main)

    assert fold(NAME, scene.journal.facts[NAME]).calls["t1.1"].state is (  # type: ignore[index]
        State.AWAITING_APPROVAL
    )


def test_a_large_turn_whose_run_is_left_while_it_is_taken_in_harms_no_other_run() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))
    large = plan(*(call(f"c{n}", "work") for n in range(2100)))

    async def main(turns: int) -> dict[State, int]:
        scene.journal = MemoryJournal()
        engine = Engine([tool], journal=scene.fresh(), clock=scene.stage.make_clock)
        async with engine, engine.run("other") as other:
            async with engine.run(NAME) as run:
                submitting = asyncio.create_task(run.submit(large))
                await passes(turns)
            await asyncio.wait([submitting])
            assert not isinstance(submitting.exception(), AssertionError)
            turn = await other.submit(plan(call("a", "work")))
            assert states(turn) == {"a": State.SUCCEEDED}
        async with engine, engine.run(NAME) as again:
            finished = await again.finish()
            found = [one.state for one in finished.calls] if finished else []
            return {state: found.count(state) for state in found}

    for turns in range(1, 14, 2):
        ended = run_virtual(lambda turns=turns: main(turns))  # type: ignore[misc]
        assert sum(ended.values()) in (0, 2100)
        assert set(ended) <= {State.SUCCEEDED, State.CANCELLED}


def test_entering_a_run_can_be_cancelled_without_harm_to_the_others() -> None:
    """Its opening waits behind a commit of another run, and its lease is given back."""
    scene = Scene()

    async def main() -> None:
        engine = Engine(journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run("other") as other:
            gate = scene.store.before = Gate(MessageSaid)
            saying = asyncio.create_task(other.say("hello"))
            await gate.reached.wait()
            entering = asyncio.create_task(engine.run(NAME).__aenter__())
            await passes()
            entering.cancel()
            await passes()
            assert not entering.done(), "it sees its facts through"
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await entering
            await saying
            await other.say("still here")
            assert set(scene.journal.leases) == {"other"}
            async with engine.run(NAME) as run:
                assert run.view.seq == 2

    run_virtual(main)


def test_submit_can_be_cancelled_at_every_step_and_leaves_no_call_running() -> None:
    tries = 0

    async def main(at: int) -> bool:
        nonlocal tries
        tries += 1
        scene = Scene()
        tool = scene.stage.tool("work", Sleep(5), Log("end"), Return("ok"))
        engine = Engine([tool], journal=scene.store, clock=scene.stage.make_clock)
        async with engine, engine.run(NAME) as run:
            scene.store.before = lambda *_: passes(2)
            submitting = asyncio.create_task(
                run.submit(plan(call("a", "work"), call("b", "work", ["a"])))
            )
            await passes(at)
            if submitting.done():
                return False
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
            assert run.open_turn is None
            assert len(asyncio.all_tasks()) <= 2, "me and the writer"
            if run.turns:
                assert states(run.turns[0]) == dict.fromkeys("ab", State.CANCELLED)
            await asyncio.sleep(10)
            assert scene.stage.log == []
            after = await run.submit(plan(call("c", "work")))
            assert states(after) == {"c": State.SUCCEEDED}
            return True

    for at in range(40):
        assert run_virtual(lambda at=at: main(at))  # type: ignore[misc]
    assert tries == 40


def test_submit_without_waiting_can_be_cancelled_as_well() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(5), Return("ok"))

    async def main(run: Run) -> None:
        gate = scene.store.before = Gate(TurnSubmitted)
        submitting = asyncio.create_task(run.submit(plan(call("a", "work")), wait=False))
        await gate.reached.wait()
        submitting.cancel()
        await passes()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        assert states(run.turns[0]) == {"a": State.CANCELLED}

    scene.play(main, [tool])

    assert scene.stage.entered == {}


def test_a_loop_that_is_torn_down_around_an_engine_ends() -> None:
    """Nobody leaves the engine in order: asyncio cancels all tasks, the bodies' among them."""
    for turns in range(30):
        scene = Scene()
        tools = Troupe(scene.stage).tools()

        async def main(scene: Scene = scene, tools: Any = tools, turns: int = turns) -> None:
            async def serve() -> None:
                engine = Engine(tools, journal=scene.store, clock=scene.stage.make_clock)
                async with engine, engine.run(NAME) as run:
                    await run.submit(
                        plan(call("s", "slow"), call("q", "quick"), call("p", "pay", ["q"]))
                    )

            serving = asyncio.create_task(serve())
            await passes(turns)
            assert not serving.done()

        run_virtual(main)
        if scene.facts:
            view = fold(NAME, scene.journal.facts[NAME])
            assert all(one.state is not State.RUNNING for one in view.calls.values())
    gc.collect()  # A task that was forgotten would complain now.


# Taking up: the states at a death


ALL_EFFECTS = [
    (Effect.PURE, False),
    (Effect.READ, False),
    (Effect.WRITE, False),
    (Effect.WRITE, True),
    (Effect.EXTERNAL, False),
    (Effect.EXTERNAL, True),
]


async def finish(run: Run) -> Turn:
    """Take up what was left."""
    return await run.finish() or run.turns[-1]


def submitting(reply: Mapping[str, Any]) -> Callable[[Run], Awaitable[Turn]]:
    async def main(run: Run) -> Turn:
        return await run.submit(reply)

    return main


def effect_tool(scene: Scene, effect: Effect, *, idempotent: bool, **declared: Any) -> Any:
    if not effect.changes_nothing:
        declared["idempotent"] = idempotent
    return scene.stage.tool("work", Log("work"), Return("ok"), effect=effect, **declared)


@pytest.mark.parametrize(("effect", "idempotent"), ALL_EFFECTS)
@pytest.mark.parametrize("kind", [TurnSubmitted, CallQueued])
def test_what_had_not_started_starts(kind: type[Fact], effect: Effect, *, idempotent: bool) -> None:
    scene = Scene()
    tools = [
        effect_tool(scene, effect, idempotent=idempotent),
        scene.stage.tool("next", Return("n")),
    ]
    scene.play(submitting(plan(call("a", "work"), call("b", "next", ["a"]))), tools)
    scene.cut_after(kind)
    scene.stage.entered.clear()

    turn = scene.play(finish, tools)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert scene.stage.entered == {"work": 1, "next": 1}


@pytest.mark.parametrize(("effect", "idempotent"), ALL_EFFECTS)
def test_what_was_running_runs_again_only_if_that_is_safe(
    effect: Effect, *, idempotent: bool
) -> None:
    scene = Scene()
    tools = [
        effect_tool(scene, effect, idempotent=idempotent),
        scene.stage.tool("next", Return("n")),
        scene.stage.tool("after", Return("x")),
    ]
    reply = plan(call("a", "work"), call("b", "next", ["a"]), call("c", "after", after=["a"]))
    scene.play(submitting(reply), tools)
    scene.cut_after(CallStarted)
    scene.stage.entered.clear()

    turn = scene.play(finish, tools)

    safe = effect.changes_nothing or idempotent
    assert states(turn) == {
        "a": State.SUCCEEDED if safe else State.UNCERTAIN,
        "b": State.SUCCEEDED if safe else State.SKIPPED,
        "c": State.SUCCEEDED,
    }
    assert scene.stage.entered == ({"work": 1, "next": 1, "after": 1} if safe else {"after": 1})
    assert turn.ready
    if safe:
        assert turn.call("a").attempt == 2
        ended = next(fact for fact in scene.facts if isinstance(fact, AttemptEnded))
        assert ended.cause == "the process that drove the run ended"
    else:
        told = failure(turn, "a")
        assert told.code is Code.OUTCOME_UNKNOWN
        assert told.happened is Happened.UNKNOWN
        assert told.message == (
            "The process that drove the run ended while work was running, so nobody saw its end. "
            "It may or may not have happened."
        )
        assert failure(turn, "b").cause == turn.call("a").id


def test_a_permit_after_a_restart_has_a_higher_token() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))
    scene.play(submitting(plan(call("a", "work"), call("b", "work", ["a"]))), [tool])
    scene.cut_after(CallStarted, call="t1.2")

    scene.play(finish, [tool])

    tokens = [fact.token for fact in scene.facts if isinstance(fact, CallStarted)]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_an_attempt_that_backed_off_is_made_again_and_counted() -> None:
    scene = Scene()
    tries: list[int] = []

    def flaky(_: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise LOST
        return "ok"

    tool = scene.stage.tool("work", Do(flaky), effect=Effect.WRITE, idempotent=True, retries=2)
    scene.play(submitting(plan(call("a", "work"))), [tool])
    scene.cut_after(AttemptEnded)
    tries[:] = [1]

    turn = scene.play(finish, [tool])

    assert states(turn) == {"a": State.SUCCEEDED}
    assert turn.call("a").attempt == 3
    assert len(tries) == 3


def test_a_recorded_outcome_is_answered_without_running_again() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("pay", Log("pay"), Return("paid"), effect=Effect.EXTERNAL),
        scene.stage.tool("bad", Log("bad"), Raise(ValueError("no"))),
        scene.stage.tool("last", Return("${x}")),
    ]
    reply = plan(
        call("a", "pay"), call("b", "bad"), call("c", "last", ["a"]), call("d", "last", ["b"])
    )
    scene.play(submitting(reply), tools)
    scene.cut_after(CallEnded, call="t1.1")
    before = outcomes_kept(scene)

    turn = scene.play(finish, tools)

    assert scene.stage.log.count("pay") == 1
    for name, outcome in before.items():
        assert turn.outcomes[name] == outcome
    assert states(turn)["d"] is State.SKIPPED


def outcomes_kept(scene: Scene) -> dict[str, Any]:
    view = fold(NAME, scene.journal.facts[NAME])
    return {
        one.record.provider_id: one.outcome
        for one in view.calls.values()
        if one.outcome is not None
    }


def test_an_unknown_end_stays_unknown_until_it_is_settled() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("lose", Raise(LOST), effect=Effect.EXTERNAL),
        scene.stage.tool("next", Return("n")),
        scene.stage.tool("other", Return("o")),
    ]
    reply = plan(call("a", "lose"), call("b", "next", ["a"]), call("c", "other", after=["a"]))

    async def first(run: Run) -> None:
        turn = await run.submit(reply, wait=False)
        await turn.wait()
        assert states(turn) == {
            "a": State.UNCERTAIN,
            "b": State.PENDING,
            "c": State.SUCCEEDED,
        }

    async def second(run: Run) -> Turn:
        turn = run.open_turn
        assert turn is not None
        await turn.wait()
        assert not turn.ready
        assert turn.open_calls == ["b"]
        await run.settle("a", value={"id": 7}, by="ann")
        await turn.wait()
        return turn

    scene.play(first, tools)
    turn = scene.play(second, tools)

    assert turn.ready
    assert states(turn) == dict.fromkeys("abc", State.SUCCEEDED)
    assert turn.outcomes["a"] == Success(value={"id": 7})
    assert scene.stage.entered == {"lose": 1, "next": 1, "other": 1}


def test_a_stuck_body_ends_with_its_process() -> None:
    scene = Scene()
    tool = scene.stage.tool(
        "stuck", Block(10), Return("late"), sync=True, effect=Effect.EXTERNAL, timeout=1
    )

    async def first(run: Run) -> None:
        turn = await run.submit(plan(call("a", "stuck")))
        assert turn.call("a").stuck

    scene.play(first, [tool])
    assert isinstance(scene.facts[-1], TurnClosed), "the engine was left, and saw no end"

    async def again(run: Run) -> Any:
        view = run.turns[0].call("a")
        return view.state, view.stuck, view.late, run.history()

    state, stuck, late, history = scene.play(again, [tool])

    assert (state, stuck, late) == (State.TIMED_OUT, False, "the process that drove the run ended")
    assert "may still be working" in str(history)
    assert kinds(scene.facts)[-2:] == ["RunTaken", "HolderStopped"]


# Taking up: approvals


def deploy_scene() -> tuple[Scene, list[Any]]:
    scene = Scene()
    tools = [
        scene.stage.tool(
            "deploy", Log("deploy {v}"), Return("ok"), effect=Effect.EXTERNAL, approval=True
        ),
        scene.stage.tool("tell", Log("told"), Return("told")),
        scene.stage.tool("find", Return({"version": 7})),
    ]
    return scene, tools


DEPLOY = plan(call("d", "deploy", arguments={"v": 7}), call("t", "tell", ["d"]))


@pytest.mark.parametrize("named", ["d", "t1.1", "t1.1.a1"])
def test_h_crash_2_a_question_to_the_human_survives_a_restart(named: str) -> None:
    scene, tools = deploy_scene()
    seen: list[Any] = []

    async def first(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)
        seen.extend((one.id, one.arguments, one.rule) for one in run.approvals)

    async def again(run: Run) -> Turn:
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(0.2)
        assert [(one.id, one.arguments, one.rule) for one in run.approvals] == seen
        await asyncio.sleep(0.1)
        assert scene.stage.log == []
        turn = run.open_turn
        assert turn is not None
        assert states(turn) == {"d": State.AWAITING_APPROVAL, "t": State.PENDING}
        await run.approve(named, by="ann")
        done = await finishing
        assert done is not None
        return done

    scene.play(first, tools)
    scene.cut_after(ApprovalAsked)
    turn = scene.play(again, tools)

    assert seen == [("t1.1.a1", {"v": 7}, "tool asks")]
    assert states(turn) == {"d": State.SUCCEEDED, "t": State.SUCCEEDED}
    assert scene.stage.log == ["deploy 7", "told"]
    assert turn.call("d").rule == "approved by ann"


@pytest.mark.parametrize("granted", [True, False])
def test_a_question_can_be_answered_before_the_turn_goes_on(*, granted: bool) -> None:
    """The host asks its human first, and then calls finish()."""
    scene, tools = deploy_scene()

    async def first(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)

    async def again(run: Run) -> Turn | None:
        question = run.approvals[0]
        await (run.approve if granted else run.deny)(question.id)
        assert run.approvals == []
        await asyncio.sleep(10)
        assert scene.stage.log == [], "nothing moves before it is resumed"
        return await run.finish()

    scene.play(first, tools)
    turn = scene.play(again, tools)

    assert set(states(turn).values()) == (
        {State.SUCCEEDED} if granted else {State.DENIED, State.SKIPPED}
    )
    assert scene.stage.log == (["deploy 7", "told"] if granted else [])


def test_a_process_that_only_answers_leaves_the_turn_to_the_next_one() -> None:
    scene, tools = deploy_scene()

    async def first(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)

    async def answer(run: Run) -> None:
        await run.approve("d", by="ann")

    scene.play(first, tools)
    scene.play(answer, tools)
    assert fold(NAME, scene.journal.facts[NAME]).turns[0].calls[0].state is State.QUEUED
    turn = scene.play(finish, tools)

    assert states(turn) == {"d": State.SUCCEEDED, "t": State.SUCCEEDED}
    assert scene.stage.log == ["deploy 7", "told"]


def test_looking_at_a_run_changes_nothing_of_its_calls() -> None:
    scene, tools = deploy_scene()
    scene.play(submitting_and_approving(DEPLOY), tools)
    for kept in range(2, len(scene.facts) + 1):
        other = Scene(stage=scene.stage, journal=MemoryJournal())
        other.journal.facts[NAME] = scene.journal.facts[NAME][:kept]

        async def look(run: Run) -> None:
            run.history()

        other.play(look, tools)
        once = snapshot(other)
        other.play(look, tools)

        assert snapshot(other) == once
        assert kinds(other.facts)[-1] == "RunTaken"


def submitting_and_approving(reply: Mapping[str, Any]) -> Callable[[Run], Awaitable[Turn]]:
    async def main(run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(0.5)
        for one in run.approvals:
            await run.approve(one.id)
        await turn.wait()
        return turn

    return main


def snapshot(scene: Scene) -> dict[str, tuple[State, Any]]:
    view = fold(NAME, scene.journal.facts[NAME])
    return {one.id: (one.state, one.outcome) for one in view.calls.values()}


def test_an_approval_with_references_survives_a_restart_and_binds_what_they_became() -> None:
    scene, tools = deploy_scene()
    reply = plan(
        call("f", "find"),
        call("d", "deploy", arguments={"v": {"$from": "f", "path": "version"}}),
        call("t", "tell", ["d"]),
    )

    async def first(run: Run) -> None:
        await run.submit(reply, wait=False)
        await asyncio.sleep(1)

    async def again(run: Run) -> Turn | None:
        assert run.approvals[0].arguments == {"v": 7}
        await run.approve("d")
        return await run.finish()

    scene.play(first, tools)
    turn = scene.play(again, tools)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert scene.stage.log == ["deploy 7", "told"]


@pytest.mark.parametrize("away_seconds", [10.0, 4000.0])
def test_a_question_expires_by_the_wall_clock_also_while_nobody_runs(
    away_seconds: float,
) -> None:
    scene, tools = deploy_scene()

    async def first(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)

    scene.play(first, tools)
    asked = next(fact for fact in scene.facts if isinstance(fact, ApprovalAsked))

    async def later() -> tuple[Turn, float]:
        clock = scene.stage.make_clock()
        clock.advance_wall(asked.expires_wall - 3600 + away_seconds - clock.wall())
        began = clock.monotonic()
        engine = Engine(tools, journal=scene.fresh(), clock=scene.stage.make_clock)
        async with engine, engine.run(NAME) as run:
            return await finish(run), clock.monotonic() - began

    turn, waited = run_virtual(later)

    assert states(turn) == {"d": State.DENIED, "t": State.SKIPPED}
    assert failure(turn, "d").code is Code.APPROVAL_EXPIRED
    assert waited == pytest.approx(max(3600 - away_seconds, 0))


def test_an_answer_after_the_expiry_does_not_count() -> None:
    scene, tools = deploy_scene()

    async def main(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)
        assert scene.stage.clock is not None
        scene.stage.clock.advance_wall(3601)
        with pytest.raises(UsageError, match=r"approval t1\.1\.a1 is expired"):
            await run.approve("d")

    scene.play(main, tools)

    assert scene.stage.log == []


def test_an_answer_binds_the_tool_as_it_was_shown() -> None:
    """After the restart another version of the tool stands under the name."""
    scene, tools = deploy_scene()
    changed = [
        scene.stage.tool(
            "deploy", Log("changed"), effect=Effect.EXTERNAL, approval=True, version="2"
        ),
        *tools[1:],
    ]

    async def first(run: Run) -> None:
        await run.submit(DEPLOY, wait=False)

    async def answer(run: Run) -> Turn:
        with pytest.raises(UsageError, match=r"approval t1\.1\.a1 is stale"):
            await run.approve("d")
        turn = await run.finish()
        assert turn is not None
        return turn

    scene.play(first, tools)
    turn = scene.play(answer, changed)

    assert states(turn) == {"d": State.DENIED, "t": State.SKIPPED}
    assert failure(turn, "d").code is Code.APPROVAL_EXPIRED
    assert "The tool has changed since a human was asked" in failure(turn, "d").message
    assert scene.stage.log == []


def test_an_answer_that_was_given_does_not_carry_over_to_other_arguments() -> None:
    """Approved, not started; after the restart the tool reads the same arguments otherwise."""
    scene = Scene()
    seen: list[Any] = []

    async def first(v: str) -> None:
        seen.append(v)

    async def other(v: int) -> None:
        seen.append(v)

    def tool(function: Any) -> Any:
        return Tool.of(function, name="deploy", effect=Effect.EXTERNAL, approval=True)

    async def approve(run: Run) -> None:
        await run.submit(plan(call("d", "deploy", arguments={"v": "7"})), wait=False)
        await run.approve("d")

    scene.play(approve, [tool(first)])
    scene.cut_after(CallQueued)
    seen.clear()
    turn = scene.play(finish, [tool(other)])

    assert states(turn) == {"d": State.DENIED}
    assert "it is not what they were asked about" in failure(turn, "d").message
    assert seen == []


def test_one_approval_is_answered_once() -> None:
    scene, tools = deploy_scene()

    async def main(run: Run) -> None:
        turn = await run.submit(DEPLOY, wait=False)
        answers = await asyncio.gather(
            *(run.approve("d") for _ in range(3)),
            run.deny("d"),
            return_exceptions=True,
        )
        assert [type(one) for one in answers] == [type(None)] + [UnknownApprovalError] * 3
        await turn.wait()

    scene.play(main, tools)

    assert scene.stage.log == ["deploy 7", "told"]
    assert kinds(scene.facts).count("ApprovalAnswered") == 1


@pytest.mark.parametrize("kind", [TurnSubmitted, CallStarted])
def test_a_large_turn_is_taken_up_slice_by_slice(
    monkeypatch: pytest.MonkeyPatch, kind: type[Fact]
) -> None:
    """Others have their turn in between; edges lead back and forth over the slices."""
    n = 1600
    scene = Scene()
    tools = [scene.stage.tool("work", Return("ok")), scene.stage.tool("ask", approval=True)]
    reply = plan(
        *(call(f"c{i}", "work", [f"c{(i + 700) % n}"] if i % 3 else []) for i in range(n)),
        call("q", "ask"),
        call("last", "work", ["q"]),
    )

    async def begin(run: Run) -> None:
        await run.submit(reply, wait=False)

    scene.play(begin, tools)
    scene.cut_after(kind)
    completed = 0
    complete = Scheduler.complete

    def counting(scheduler: Scheduler, call: Any) -> Any:
        nonlocal completed
        completed += 1
        return complete(scheduler, call)

    monkeypatch.setattr(Scheduler, "complete", counting)

    async def again(run: Run) -> Turn:
        steps = [0]
        finishing = asyncio.create_task(run.finish())
        while not finishing.done() and not run.approvals:
            await asyncio.sleep(0)
            steps.append(completed)
        assert max(later - sooner for sooner, later in pairwise(steps)) <= 1100
        await run.approve("q")
        turn = await finishing
        assert turn is not None
        return turn

    turn = scene.play(again, tools)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert completed >= n


@pytest.mark.parametrize("at", range(1, 9))
def test_taking_up_a_large_turn_can_be_cancelled_between_its_slices(at: int) -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"), claims=["lane:x"])
    reply = plan(*(call(f"c{i}", "work") for i in range(1600)))
    scene.play(submitting(reply), [tool])
    scene.cut_after(CallQueued)

    async def again(run: Run) -> Turn:
        finishing = asyncio.create_task(run.finish())
        await passes(at)
        finishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        assert await run.finish() is None
        return run.turns[0]

    turn = scene.play(again, [tool])

    assert set(states(turn).values()) <= {State.SUCCEEDED, State.CANCELLED}
    fold(NAME, scene.journal.facts[NAME])


def test_what_a_host_does_between_the_slices_of_taking_up_counts() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("work", Return("ok"), claims=["lane:x"]),
        scene.stage.tool("ask", Log("asked"), approval=True),
    ]
    reply = plan(*(call(f"c{i}", "work") for i in range(1200)), call("q", "ask"), call("r", "ask"))

    async def begin(run: Run) -> None:
        await run.submit(reply, wait=False)

    scene.play(begin, tools)
    scene.cut_after(ApprovalAsked, call="t1.1202")
    scene.stage._log.clear()

    async def again(run: Run) -> Turn:
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(0)
        await run.cancel("c1199", reason="not this one")
        await run.approve("q")
        await run.deny("r")
        turn = await finishing
        assert turn is not None
        return turn

    turn = scene.play(again, tools)

    ended = states(turn)
    assert (ended.pop("c1199"), ended.pop("r")) == (State.CANCELLED, State.DENIED)
    assert set(ended.values()) <= {State.SUCCEEDED, State.UNCERTAIN}
    assert scene.stage.log == ["asked"]


def test_a_run_that_is_left_while_a_large_turn_is_taken_up_loses_nothing() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))
    scene.play(submitting(plan(*(call(f"c{i}", "work") for i in range(1600)))), [tool])
    scene.cut_after(TurnSubmitted)

    async def look(run: Run) -> None:
        finishing = asyncio.create_task(run.finish())
        await asyncio.sleep(0)
        leaving.append(finishing)

    leaving: list[asyncio.Task[Any]] = []
    scene.play(look, [tool])
    assert isinstance(leaving[0].exception(), EngineClosedError)
    turn = scene.play(finish, [tool])

    found = Counter(states(turn).values())
    assert set(found) == {State.SUCCEEDED, State.CANCELLED}
    assert found[State.SUCCEEDED] >= 600, "what had not been queued was left alone"


def test_a_fault_of_the_engine_while_a_turn_is_taken_up_ends_the_run_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))
    scene.play(submitting(plan(call("a", "work"))), [tool])
    scene.cut_after(CallQueued)

    async def again(run: Run) -> None:
        monkeypatch.setattr(Scheduler, "complete", a_fault)
        with pytest.raises(EngineFaultError, match="of the engine itself"):
            await run.finish()
        monkeypatch.undo()

    scene.play(again, [tool])

    assert states(scene.play(finish, [tool])) == {"a": State.SUCCEEDED}


# Taking up: the tools


def test_a_tool_that_is_gone_fails_its_calls_and_nothing_else() -> None:
    scene = Scene()
    other = scene.stage.tool("other", Return("ok"))
    gone = scene.stage.tool("gone", Return("ok"), effect=Effect.WRITE, idempotent=True)
    asks = scene.stage.tool("asks", Return("ok"), approval=True)
    reply = plan(
        call("pending", "gone", ["first"]),
        call("first", "gone"),
        call("asked", "asks"),
        call("other", "other", after=["first"]),
    )

    async def first(run: Run) -> None:
        await run.submit(reply, wait=False)

    for kind in (TurnSubmitted, CallQueued, CallStarted):
        scene.journal = MemoryJournal()
        scene.play(first, [other, gone, asks])
        scene.cut_after(kind)
        turn = scene.play(finish, [other])

        assert states(turn) == {
            "pending": State.SKIPPED,
            "first": State.FAILED,
            "asked": State.FAILED,
            "other": State.SUCCEEDED,
        }
        assert failure(turn, "first").code is Code.UNKNOWN_TOOL
        started = kind is CallStarted
        assert failure(turn, "first").happened is (
            Happened.UNKNOWN if started else Happened.NOTHING
        )
        assert ("It had been started before" in failure(turn, "first").message) == started


def test_a_tool_whose_schema_refuses_the_recorded_arguments_fails_its_calls() -> None:
    scene = Scene()
    before = scene.stage.tool("work", Return("ok"))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    after = scene.stage.tool("work", Return("ok"), schema=schema)
    scene.play(submitting(plan(call("a", "work", arguments={"n": "x"}))), [before])

    for kind in (TurnSubmitted, CallQueued, CallStarted):
        one = Scene(stage=Stage(), journal=MemoryJournal())
        one.journal.facts[NAME] = list(scene.journal.facts[NAME])
        one.cut_after(kind)
        turn = one.play(finish, [after])

        assert states(turn) == {"a": State.FAILED}
        assert failure(turn, "a").code is Code.INVALID_ARGUMENTS


def test_a_tool_that_claims_more_than_before_does_not_break_the_order() -> None:
    scene = Scene()
    before = scene.stage.tool("work", Return("ok"), claims=["read file:a"])
    after = scene.stage.tool("work", Return("ok"), claims=["write file:a"])
    scene.play(submitting(plan(call("a", "work"), call("b", "work"))), [before])
    scene.cut_after(TurnSubmitted)

    turn = scene.play(finish, [after])

    assert set(states(turn).values()) == {State.FAILED}
    assert failure(turn, "a").code is Code.BAD_REFERENCE


@pytest.mark.parametrize("kind", [TurnSubmitted, CallQueued, CallStarted])
def test_a_run_may_be_taken_up_one_call_at_a_time(kind: type[Fact]) -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"), claims=["read file:{path}"])
    reply = plan(*(call(name, "work", arguments={"path": name}) for name in "abc"))
    scene.play(submitting(reply), [tool])
    scene.cut_after(kind)
    scene.stage.executions.clear()

    turn = scene.play(finish, [tool], run={"parallel": False})

    assert set(states(turn).values()) == {State.SUCCEEDED}
    spans = sorted((one.span for one in scene.stage.executions), key=lambda span: span.start)
    assert len(spans) == 3
    assert not any(one.overlaps(two) for one, two in pairwise(spans))


def test_a_run_that_is_taken_up_keeps_its_mode_and_gets_another_if_asked(
    tmp_path: Path,
) -> None:
    scene = Scene()

    async def mode(run: Run) -> str:
        return run.view.mode

    assert scene.play(mode, [], run={"mode": "plan"}) == "plan"
    assert scene.play(mode, []) == "plan"
    assert scene.play(mode, [], run={"mode": "build"}) == "build"
    assert scene.play(mode, []) == "build"
    with pytest.raises(PolicyError):
        scene.play(mode, [], run={"mode": "no such mode"})
    assert scene.journal.leases == {}


def test_what_the_host_must_bind_is_asked_for_before_anything_is_written() -> None:
    scene = Scene()

    async def mine(user: Annotated[str, Bound()]) -> str:
        return user

    async def nothing(_: Run) -> None:
        return None

    with pytest.raises(UsageError, match="needs 'user' from the host"):
        scene.play(nothing, [Tool.of(mine, effect=Effect.READ)])

    assert scene.journal.facts == {}
    assert scene.journal.leases == {}


# Taking up: again, and cut short


def test_taking_up_a_finished_run_changes_nothing() -> None:
    scene = Scene()
    troupe = Troupe(scene.stage)
    scene.play(submitting_and_approving(TROUPE_TURN), troupe.tools())
    before = snapshot(scene), scene.stage.entered.copy()

    async def again(run: Run) -> Any:
        assert run.open_turn is None
        assert await run.finish() is None
        return run.history()

    one, two = (scene.play(again, troupe.tools()) for _ in range(2))

    assert one == two
    assert (snapshot(scene), scene.stage.entered) == before
    assert kinds(scene.facts)[-2:] == ["RunTaken", "RunTaken"]


def test_a_death_after_any_fact_is_taken_up_to_the_same_end() -> None:
    """Also where the death fell within what was one commit: facts alone decide.

    But an answer and what follows from it were one post, and are never kept apart.
    """
    whole = Scene()
    troupe = Troupe(whole.stage)
    whole.play(submitting_and_approving(TROUPE_TURN), troupe.tools())
    rows = whole.journal.facts[NAME]

    for kept in range(1, len(rows) + 1):
        if isinstance(rows[kept - 1].fact, ApprovalAnswered):
            continue
        scene = Scene()
        scene.journal.facts[NAME] = list(rows[:kept])
        tools = Troupe(scene.stage).tools()
        known = outcomes_kept(scene)

        async def again(run: Run) -> dict[str, Any]:
            finishing = asyncio.create_task(run.finish())
            await asyncio.sleep(0.5)
            for one in run.approvals:
                await run.approve(one.id)
            turn = await finishing or (run.turns[0] if run.turns else None)
            return (
                {} if turn is None else {n: (states(turn)[n], o) for n, o in turn.outcomes.items()}
            )

        first = scene.play(again, tools)
        entered = scene.stage.entered.copy()
        second = scene.play(again, tools)

        assert first == second
        assert scene.stage.entered == entered
        for name, outcome in known.items():
            assert first[name][1] == outcome
        assert {state for state, _ in first.values()} <= {
            State.SUCCEEDED,
            State.UNCERTAIN,
            State.SKIPPED,
        }


def test_a_finish_that_is_cancelled_stops_the_turn_and_says_so() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("nap", Sleep(10), Return("ok")),
        scene.stage.tool("next", Return("n"), approval=True),
    ]

    async def first(run: Run) -> None:
        await run.submit(plan(call("a", "nap"), call("b", "next")))

    with pytest.raises(TimeoutError):
        scene.play(lambda run: asyncio.wait_for(first(run), 1), tools)
    scene.journal.facts[NAME] = scene.journal.facts[NAME][:6]

    async def again(run: Run) -> list[dict[str, Any]]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.finish(), 1)
        assert run.open_turn is None
        assert await run.finish() is None
        assert states(run.turns[0]) == dict.fromkeys("ab", State.CANCELLED)
        return run.history()

    history = scene.play(again, tools)

    assert "whoever waited for the turn was cancelled" in str(history)


def test_two_who_finish_one_turn_get_the_same() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))
    scene.play(submitting(plan(call("a", "work"))), [tool])
    scene.cut_after(CallQueued)

    async def again(run: Run) -> Sequence[Turn | None]:
        return await asyncio.gather(run.finish(), run.finish(), run.finish())

    turns = scene.play(again, [tool])

    assert [states(turn) for turn in turns] == [{"a": State.SUCCEEDED}] * 3
    assert scene.stage.entered["work"] == 2


def test_a_run_that_dies_while_it_is_taken_up_is_taken_up_again() -> None:
    """Facts of the taking up itself are kept, and lost, like any others."""
    whole = Scene()

    def cast(stage: Stage) -> list[Any]:
        return [
            stage.tool("pay", Log("pay"), Return("paid"), effect=Effect.EXTERNAL),
            stage.tool("look", Log("look"), Return("seen")),
            stage.tool("next", Log("next"), Return("n")),
        ]

    whole.play(
        submitting(plan(call("a", "pay"), call("b", "look"), call("c", "next", ["b"]))),
        cast(whole.stage),
    )
    whole.cut_after(CallStarted, call="t1.2")
    whole.stage._log.clear()
    begun = list(whole.journal.facts[NAME])
    whole.play(finish, cast(whole.stage))
    rows = list(whole.journal.facts[NAME])
    expected = snapshot(whole)

    for kept in range(len(begun), len(rows) + 1):
        scene = Scene()
        scene.journal.facts[NAME] = rows[:kept]
        scene.play(finish, cast(scene.stage))

        assert snapshot(scene) == expected
        assert "pay" not in scene.stage.log


# The journal and the host


def test_the_history_holds_what_was_said_and_done_in_its_order() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"), approval=True)

    async def main(run: Run) -> list[dict[str, Any]]:
        await run.say("question")
        turn = await run.submit(plan(call("a", "work")), wait=False)
        assert run.history() == [{"role": "user", "content": "question"}], "not the open turn"
        await run.deny("a")
        await turn.wait()
        return await run.say({"role": "user", "content": "go on"})

    told = scene.play(main, [tool])

    assert [message["role"] for message in told] == ["user", "assistant", "tool", "user"]

    async def look(run: Run) -> list[dict[str, Any]]:
        return run.history()

    assert scene.play(look, []) == told


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": object()},
        {"role": "user", "content": float("nan")},
        {"role": "user", 1: 2, "1": 3},
    ],
)
def test_a_message_that_is_no_json_is_refused_and_harms_nobody(message: Any) -> None:
    scene = Scene()

    async def main(run: Run) -> list[dict[str, Any]]:
        with pytest.raises(PayloadError, match=r"^message"):
            await run.say(message)
        return await run.say("h\ud83d\ude00 \udce9")

    assert scene.play(main, []) == [{"role": "user", "content": "h😀 �"}]


def test_texts_of_the_host_are_made_whole(tmp_path: Path) -> None:
    """Half a character from a file name or a terminal must not stop every run of the engine."""
    half = "caf\udce9"
    stage = Stage()
    tools = [
        stage.tool("ask", Return("ok"), approval=True),
        stage.tool("lose", Raise(LOST), effect=Effect.EXTERNAL),
        stage.tool("bad", Raise(FileNotFoundError(half))),
        stage.tool("flaky", Raise(ConnectionError(half)), retries=1),
        stage.tool("stuck", Block(0.4), Return(half), sync=True, timeout=0.1),
    ]

    async def main() -> None:
        engine = Engine(
            tools,
            journal=tmp_path / "runs.db",
            clock=stage.make_clock,
            limits=Limits(back_off_seconds=0.01),
        )
        async with engine, engine.run("r") as run:
            asked = plan(
                *(call(f"{name}{n}", name) for n in range(2) for name in ("ask", "lose")),
                call("bad", "bad"),
                call("flaky", "flaky"),
                call("stuck", "stuck"),
                call("ask2", "ask"),
            )
            turn = await run.submit(asked, wait=False, key=half)
            await asyncio.sleep(1)
            await run.approve("ask0", by=half, reason=half)
            await run.deny("ask1", by=half, reason=half)
            await run.cancel("ask2", reason=half)
            await run.settle("lose0", value={half: half}, by=half)
            await run.settle("lose1", failure=half, by=half)
            await turn.wait()
            assert turn.ready
            assert (await run.submit(asked, key=half)).number == 1
            assert "caf�" in str(turn.messages)
        with pytest.raises(UsageError, match="a name that can be written down"):
            engine.run(half)
        with pytest.raises(UsageError, match="settings= of run 'r' cannot be kept as JSON"):
            engine.run("r", settings={"a": object()})

    run_virtual(main)


def test_an_open_turn_is_ended_before_the_next_one() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))

    async def main(run: Run) -> None:
        turn = await run.submit(plan(call("a", "work"), call("b", "work")), wait=False)
        with pytest.raises(OpenTurnError) as told:
            await run.submit(plan(call("c", "work")))
        assert told.value.open_calls == ("a", "b")
        assert str(told.value) == (
            "run 'case' has an open turn 1 (calls a, b are open); wait for it, or end it with "
            "`await run.finish()`, before the next turn"
        )
        await turn.wait()
        assert (await run.submit(plan(call("c", "work")))).number == 2

    scene.play(main, [tool])


def test_a_turn_left_by_a_crash_is_ended_before_the_next_one() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))
    scene.play(submitting(plan(call("a", "work"))), [tool])
    scene.cut_after(CallQueued)

    async def again(run: Run) -> None:
        assert run.open_turn is not None
        assert repr(run.open_turn) == "<Turn 1 of run 'case', 1 calls, open: a>"
        assert run.history() == []
        with pytest.raises(OpenTurnError, match="run 'case' has an open turn 1"):
            await run.submit(plan(call("b", "work")))
        turn = await run.finish()
        assert turn is not None
        assert run.history() == turn.messages
        await run.submit(plan(call("b", "work")))

    scene.play(again, [tool])


def test_two_submits_at_once_are_one_turn_and_one_refusal() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))
    large = plan(*(call(f"c{n}", "work") for n in range(1200)))

    async def main(run: Run) -> None:
        first = asyncio.create_task(run.submit(large))
        await asyncio.sleep(0)
        with pytest.raises(OpenTurnError):
            await run.submit(plan(call("x", "work")))
        assert len((await first).calls) == 1200

    scene.play(main, [tool])

    assert scene.stage.entered["work"] == 1200


# The same reply twice


def message(id_: str, name: str = "work", argument: str = "1") -> dict[str, Any]:
    return {
        "id": id_,
        "object": "chat.completion",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": name, "arguments": f'{{"n": {argument}}}'},
                        }
                    ],
                },
            }
        ],
    }


def test_a_reply_submitted_twice_is_one_turn() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Log("{n}"), Return("ok"), effect=Effect.EXTERNAL)

    async def main(run: Run) -> list[int]:
        first = await run.submit(message("chatcmpl-1"))
        again = await run.submit(message("chatcmpl-1"))
        assert again.messages == first.messages
        return [first.number, again.number, (await run.submit(message("chatcmpl-2"))).number]

    assert scene.play(main, [tool]) == [1, 1, 2]
    assert scene.stage.log == ["1", "1"]

    async def later(run: Run) -> int:
        return (await run.submit(message("chatcmpl-2"))).number

    assert scene.play(later, [tool]) == 2
    assert scene.stage.log == ["1", "1"]


def test_an_id_that_a_server_gives_to_every_reply_names_none() -> None:
    """Some servers give a provisional id to all their messages; another message is another turn."""
    scene = Scene()
    tool = scene.stage.tool("work", Log("{n}"), Return("ok"))

    async def main(run: Run) -> list[int]:
        return [
            (await run.submit(message("chatcmpl-tmp", argument=argument))).number
            for argument in "121"
        ]

    assert scene.play(main, [tool]) == [1, 2, 3]
    assert scene.stage.log == ["1", "2", "1"]


def test_a_reply_without_an_id_is_a_turn_each_time() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))

    async def main(run: Run) -> list[int]:
        return [(await run.submit(plan(call("a", "work")))).number for _ in range(2)]

    assert scene.play(main, [tool]) == [1, 2]


def test_a_key_names_a_reply_for_ever() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Log("x"), Return("ok"), effect=Effect.EXTERNAL)

    async def main(run: Run) -> list[int]:
        keys = ["one", "two", "one", "two", "three", "one"]
        return [(await run.submit(plan(call("a", "work")), key=key)).number for key in keys]

    assert scene.play(main, [tool], loops=None) == [1, 2, 1, 2, 3, 1]
    assert scene.play(main, [tool], loops=None) == [1, 2, 1, 2, 3, 1]
    assert scene.stage.log == ["x"] * 3


@pytest.mark.parametrize("wait", [True, False])
def test_the_reply_of_an_open_turn_takes_that_turn_up(*, wait: bool) -> None:
    """The host asked the model again after a crash, or kept its answer: it need not know."""
    scene = Scene()
    tool = scene.stage.tool("work", Sleep(1), Return("ok"))
    scene.play(submitting(message("chatcmpl-1")), [tool])
    scene.cut_after(CallQueued)

    async def again(run: Run) -> Turn:
        turn = await run.submit(message("chatcmpl-1"), wait=wait)
        assert turn.ready == wait
        return await finish(run)

    turn = scene.play(again, [tool])

    assert turn.number == 1
    assert states(turn) == {"call_1": State.SUCCEEDED}


# Unknown ends


def lost_scene() -> tuple[Scene, list[Any]]:
    scene = Scene()
    return scene, [
        scene.stage.tool("lose", Raise(LOST), effect=Effect.EXTERNAL),
        scene.stage.tool("next", Log("next {v}"), Return("n")),
        scene.stage.tool("slow", Sleep(5), Log("slow over"), Return("s")),
    ]


def test_a_turn_with_an_unknown_end_waits_for_it_or_is_closed() -> None:
    scene, tools = lost_scene()
    reply = plan(
        call("a", "lose"),
        call("b", "next", ["a"], arguments={"v": 1}),
        call("c", "next", ["b"], arguments={"v": 2}),
        call("d", "next", after=["a"], arguments={"v": 3}),
    )

    async def main(run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        await turn.wait()
        assert not turn.ready
        assert turn.open_calls == ["b", "c"]
        assert states(turn)["d"] is State.SUCCEEDED
        with pytest.raises(TurnNotReadyError, match=r"calls b, c are open; `await turn\.wait"):
            _ = turn.messages
        with pytest.raises(OpenTurnError):
            await run.submit(plan())
        await turn.close()
        await turn.close()
        await turn.wait()
        return turn

    turn = scene.play(main, tools)

    assert turn.ready
    assert states(turn) == {
        "a": State.UNCERTAIN,
        "b": State.SKIPPED,
        "c": State.SKIPPED,
        "d": State.SUCCEEDED,
    }
    assert "a ended UNCERTAIN (OUTCOME_UNKNOWN)" in failure(turn, "b").message
    assert "and before it a" in failure(turn, "c").message
    assert failure(turn, "c").cause == turn.call("a").id
    assert len(turn.messages[1]["results"]) == 4


def test_a_turn_whose_only_open_end_is_unknown_names_it() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> None:
        turn = await run.submit(plan(call("a", "lose")), wait=False)
        await turn.wait()
        assert turn.open_calls == ["a"]
        with pytest.raises(TurnNotReadyError, match="turn 1 is not ready: call a is open"):
            _ = turn.messages

    scene.play(main, tools)


def test_a_found_success_lets_its_dependents_run_with_its_value() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> Turn:
        turn = await run.submit(
            plan(call("a", "lose"), call("b", "next", arguments={"v": "${a.id}"})), wait=False
        )
        await turn.wait()
        await run.settle("t1.1", value={"id": 42}, by="ann")
        await turn.wait()
        return turn

    turn = scene.play(main, tools)

    assert turn.ready
    assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert scene.stage.log == ["next 42"]


def test_a_found_failure_skips_its_dependents() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "lose"), call("b", "next", ["a"])), wait=False)
        await turn.wait()
        await run.settle("a", failure="the bank has no record of it", by="ann")
        return turn

    turn = scene.play(main, tools)

    assert turn.ready
    assert states(turn) == {"a": State.FAILED, "b": State.SKIPPED}
    assert failure(turn, "a").message == (
        "It was found out afterwards that the call failed: the bank has no record of it"
    )


def test_a_settlement_does_not_start_what_waits_for_others_too() -> None:
    """An `after` edge is over when the end is unknown; it must not be counted down twice."""
    scene, tools = lost_scene()
    reply = plan(
        call("a", "lose"),
        call("s", "slow"),
        call("x", "next", after=["a", "s"], arguments={"v": 1}),
        call("y", "next", ["a"], arguments={"v": 2}),
    )

    async def main(run: Run) -> None:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(1)
        await run.settle("a", value=None)
        await turn.wait()

    scene.play(main, tools)

    assert scene.stage.log == ["next 2", "slow over", "next 1"]


def test_only_a_call_whose_effect_is_unknown_can_be_settled_and_only_once() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> None:
        await run.submit(plan(call("a", "lose"), call("s", "slow")), wait=False)
        await asyncio.sleep(1)
        for name in ("s", "nobody", "t9.9"):
            with pytest.raises(UnknownCallError, match=f"'case' has no call '{name}' whose effect"):
                await run.settle(name, value=1)
        await run.settle("a", value=1)
        with pytest.raises(UnknownCallError, match="'a' whose effect is unknown"):
            await run.settle("a", value=2)

    scene.play(main, tools)


def test_a_late_settlement_is_told_in_a_note_and_changes_no_outcome() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> list[dict[str, Any]]:
        turn = await run.submit(plan(call("a", "lose"), call("b", "next", ["a"])))
        before = turn.messages
        await run.settle("a", value={"id": 7}, by="ann")
        assert turn.messages == before
        assert states(turn) == {"a": State.UNCERTAIN, "b": State.SKIPPED}
        assert turn.call("a").settled == Success(value={"id": 7})
        assert run.history()[:-1] == before
        assert "7" in str(run.history()[-1])
        with pytest.raises(UnknownCallError):
            await run.settle("a", value=8)
        return run.history()

    told = scene.play(main, tools)

    async def again(run: Run) -> list[dict[str, Any]]:
        with pytest.raises(UnknownCallError):
            await run.settle("a", value=8)
        return run.history()

    assert scene.play(again, tools) == told
    assert scene.stage.log == []


def test_a_settlement_that_is_no_json_is_a_mistake_of_the_caller() -> None:
    scene, tools = lost_scene()

    async def main(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "lose")), wait=False)
        await turn.wait()
        with pytest.raises(UsageError, match=r"what a came to cannot be kept as JSON: \$ is of"):
            await run.settle("a", value=object())
        await run.settle("a", value="fine")
        return turn

    assert states(scene.play(main, tools)) == {"a": State.SUCCEEDED}


def test_a_settlement_before_the_turn_goes_on_counts() -> None:
    scene, tools = lost_scene()
    reply = plan(call("a", "lose"), call("b", "next", ["a"], arguments={"v": 1}))

    async def first(run: Run) -> None:
        await (await run.submit(reply, wait=False)).wait()

    async def again(run: Run) -> Turn | None:
        await run.settle("a", value=1)
        await asyncio.sleep(5)
        assert scene.stage.log == []
        return await run.finish()

    scene.play(first, tools)
    turn = scene.play(again, tools)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert scene.stage.log == ["next 1"]


def test_a_cancel_before_the_turn_goes_on_counts() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Log("work"), Return("ok"))
    scene.play(submitting(plan(call("a", "work"), call("b", "work", ["a"]))), [tool])
    scene.cut_after(CallQueued)
    scene.stage._log.clear()

    async def again(run: Run) -> Turn | None:
        await run.cancel("a")
        assert run.open_turn is not None
        return await run.finish()

    turn = scene.play(again, [tool])

    assert states(turn) == {"a": State.CANCELLED, "b": State.SKIPPED}
    assert scene.stage.log == []


def test_closing_a_turn_that_a_crash_left_ends_it() -> None:
    scene = Scene()
    tools = [
        scene.stage.tool("pay", Return("ok"), effect=Effect.EXTERNAL),
        scene.stage.tool("next", Return("n")),
        scene.stage.tool("ask", Return("y"), approval=True),
    ]
    reply = plan(call("a", "pay"), call("b", "next", ["a"]), call("c", "ask"))

    async def first(run: Run) -> None:
        await run.submit(reply, wait=False)

    scene.play(first, tools)
    scene.cut_after(ApprovalAsked)

    async def again(run: Run) -> Turn:
        turn = run.open_turn
        assert turn is not None
        await turn.close()
        return turn

    turn = scene.play(again, tools)

    assert turn.ready
    assert states(turn) == {
        "a": State.UNCERTAIN,
        "b": State.SKIPPED,
        "c": State.CANCELLED,
    }


# What is in the journal


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


BOUND = "what-the-host-alone-knows"


def test_what_the_host_binds_is_nowhere_in_the_journal(tmp_path: Path) -> None:
    async def mine(n: int, token: Annotated[str, Bound()], context: ToolContext) -> str:
        assert token == BOUND
        assert "token" not in context.arguments
        await asyncio.sleep(0)
        if n == 1:
            raise ValueError("no")
        return context.idempotency_key

    tools = [
        Tool.of(mine, name="plain", effect=Effect.EXTERNAL),
        Tool.of(mine, name="asks", effect=Effect.WRITE, approval=True),
        Tool.of(mine, name="claims", effect=Effect.WRITE, claims=lambda a: [f"lane:{sorted(a)}"]),
        Tool.of(mine, name="again", effect=Effect.READ, retries=2),
    ]
    path = tmp_path / "runs.db"

    async def main() -> list[Any]:
        engine = Engine(tools, journal=path, bound={"token": BOUND})
        async with engine, engine.run("r") as run:
            turn = await run.submit(
                plan(
                    *(
                        call(f"{tool.spec.name}{n}", tool.spec.name, arguments={"n": n})
                        for tool in tools
                        for n in range(2)
                    ),
                    call("sly", "plain", arguments={"n": 3, "token": "mine"}),
                ),
                wait=False,
            )
            for approval in run.approvals:
                await run.approve(approval.id)
            await turn.wait()
            return [turn.outcomes, contents(tmp_path)]

    outcomes, files = asyncio.run(main())

    assert sum(map(len, files)) > 4000
    assert not any(BOUND.encode() in content for content in files)
    assert BOUND.encode() not in path.read_bytes()
    assert isinstance(outcomes["plain0"], Success)
    assert outcomes["sly"].code is Code.INVALID_ARGUMENTS


def test_the_driver_of_a_run_is_in_its_journal() -> None:
    scene = Scene()

    async def nothing(_: Run) -> None:
        return None

    scene.play(nothing, [], run={"mode": "plan", "resume_with": "m:f", "settings": {"model": "x"}})
    scene.play(nothing, [])

    opened, taken = scene.facts
    assert opened == RunOpened(
        run=NAME,
        driver=this_driver(),
        mode="plan",
        resume_with="m:f",
        settings={"model": "x"},
        setting=Setting(policy=Policy().digest),
    )
    assert taken == RunTaken(driver=this_driver(), mode="plan")


def test_a_journal_with_a_gap_is_refused_and_the_run_is_left() -> None:
    scene = Scene()
    tool = scene.stage.tool("work", Return("ok"))
    scene.play(submitting(plan(call("a", "work"))), [tool])
    del scene.journal.facts[NAME][2]

    with pytest.raises(DamagedJournalError, match="run 'case', fact 4: fact 3 was expected here"):
        scene.play(finish, [tool])

    assert scene.journal.leases == {}


def test_a_late_value_is_kept_and_not_used() -> None:
    scene = Scene()
    tool = scene.stage.tool(
        "stuck", Block(2), Return("too late"), sync=True, effect=Effect.WRITE, timeout=1
    )

    async def main(run: Run) -> Any:
        turn = await run.submit(plan(call("a", "stuck")))
        before = turn.messages
        await asyncio.sleep(5)
        assert turn.messages == before
        return turn.call("a").late

    assert scene.play(main, [tool]) == "too late"
    assert scene.facts[-1] == HolderStopped(call=scene.facts[-1].call, late="too late")  # type: ignore[arg-type, union-attr]
