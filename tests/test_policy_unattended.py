"""Hosts where nobody answers: a question becomes a no, or what the host declared beforehand."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from laneway import Code, Decision, Effect, Engine, Failure, Policy, Rule, State, Unattended, tool
from laneway.errors import UsageError
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.policies.questions import Question, Verdict

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
ASKED = Verdict(ASK, "p.toml:1 (x)", "a human decides")


def settled(unattended: Unattended, verdict: Verdict = ASKED, **more: Any) -> Verdict:
    arguments = more.pop("arguments", {})
    return unattended.settle(verdict, Question(tool="t", arguments=arguments, **more))


def test_a_question_becomes_a_no_that_says_so() -> None:
    assert settled(Unattended(), effect=Effect.READ) == Verdict(
        DENY, "p.toml:1 (x), unattended", "a human decides, and nobody is there to be asked"
    )


@pytest.mark.parametrize("decision", [ALLOW, DENY])
def test_no_other_verdict_changes(decision: Decision) -> None:
    verdict = Verdict(decision, "r", "why")

    assert settled(Unattended(frozenset({Effect.WRITE})), verdict, effect=Effect.WRITE) is verdict


def test_effects_that_were_named_beforehand_run_without_the_question() -> None:
    unattended = Unattended(frozenset({Effect.READ, Effect.WRITE}))

    verdict = settled(unattended, effect=Effect.WRITE)

    assert verdict.decision is ALLOW
    assert verdict.rule == "p.toml:1 (x), unattended"
    assert verdict.reason == "a human decides; nobody is there to ask, and write calls may run"
    assert settled(unattended, effect=Effect.EXTERNAL).decision is DENY
    assert settled(unattended, effect=Effect.PURE).decision is DENY


@pytest.mark.parametrize(
    "more",
    [
        {"asks": True},
        {"declared": False},
        {"command_lines": ("c",), "arguments": {"c": "cat $X"}},
        {"command_lines": ("c",), "arguments": {"c": "eval $X"}},
        {"command_lines": ("c",), "arguments": None},
    ],
)
def test_what_was_never_meant_is_not_let_through(more: dict[str, Any]) -> None:
    unattended = Unattended(frozenset({Effect.READ}))

    assert settled(unattended, effect=Effect.READ, **more).decision is DENY


def test_a_command_line_of_which_all_is_known_may_run() -> None:
    unattended = Unattended(frozenset({Effect.READ}))

    verdict = settled(
        unattended, effect=Effect.READ, command_lines=("c",), arguments={"c": "cat a"}
    )

    assert verdict.decision is ALLOW


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ({Effect.EXTERNAL}, "Unattended: what is external may leave the system, so no question"),
        ({"raed"}, "Unattended: unknown effect 'raed'; did you mean 'read'?"),
    ],
)
def test_effects_that_cannot_be_meant_are_refused(effects: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Unattended(frozenset(effects))


log: list[str] = []


@tool(effect=Effect.WRITE, claims=[])
def save() -> str:
    log.append("save")
    return "saved"


@tool(effect=Effect.READ, claims=[], approval=True)
def look() -> str:
    return "seen"


def call(name: str) -> dict[str, Any]:
    return {"calls": [{"id": "c", "tool": name, "arguments": {}}]}


ASKING = Policy([Rule(ASK, tools=["save"], name="ask")])


def outcome(unattended: bool | Unattended, name: str = "save") -> Any:
    async def main() -> Any:
        async with (
            Engine([save, look], policy=ASKING, unattended=unattended) as engine,
            engine.run("r") as run,
        ):
            return (await run.submit(call(name))).outcomes["c"]

    return asyncio.run(main())


def test_an_unattended_engine_denies_what_would_be_asked() -> None:
    log.clear()

    denied = outcome(unattended=True)

    assert isinstance(denied, Failure)
    assert denied.code is Code.POLICY_DENIED
    assert denied.message.endswith("and nobody is there to be asked (rule 1 (ask), unattended)")
    assert log == []
    assert isinstance(outcome(Unattended(frozenset({Effect.READ})), "look"), Failure)


def test_an_unattended_engine_runs_what_was_declared() -> None:
    log.clear()

    assert not isinstance(outcome(Unattended(frozenset({Effect.WRITE}))), Failure)
    assert log == ["save"]


def test_a_tool_that_would_always_be_asked_about_is_not_shown() -> None:
    def shown(unattended: bool | Unattended) -> list[str]:
        engine = Engine([save, look], policy=ASKING, unattended=unattended)
        return [one["name"] for one in engine.definitions("anthropic-messages")]

    assert shown(unattended=False) == ["save", "look"]
    assert shown(unattended=True) == []
    assert shown(Unattended(frozenset({Effect.READ, Effect.WRITE}))) == ["save"]


async def until(so: Callable[[], bool]) -> None:
    while not so():  # noqa: ASYNC110 - there is no event for it; the loop is that of the engine
        await asyncio.sleep(0)


def test_what_a_human_has_granted_runs_on_a_host_where_nobody_is() -> None:
    store = MemoryJournal()
    log.clear()

    async def main() -> State:
        async with (
            Engine([save], policy=ASKING, journal=MemoryStore(store)) as engine,
            engine.run("r") as run,
        ):
            await run.submit(call("save"), wait=False)
            await until(lambda: bool(run.approvals))
        async with (
            Engine([save], policy=ASKING, journal=MemoryStore(store), unattended=True) as engine,
            engine.run("r") as run,
        ):
            (asked,) = run.approvals
            await run.approve(asked.id)
            turn = await run.finish()
            assert turn is not None
            return turn.calls[0].state

    assert asyncio.run(main()) is State.SUCCEEDED
    assert log == ["save"]
