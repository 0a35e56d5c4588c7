"""What has changed since a run's last driver: named in its journal, and for whoever takes it up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from laneway import Effect, Engine, State, tool
from laneway.engine.cli.app import app
from laneway.engine.run import Run
from laneway.engine.setting import changes_since
from laneway.engine.turn import Turn
from laneway.errors import ChangedReplyError, UsageError
from laneway.facts import LossAccepted, Row, RunOpened, RunTaken, Setting
from laneway.journal.fold import RunView
from laneway.lanes.lane import Lane
from laneway.outcomes import Code, Failure, Happened
from laneway.policies.modes import Mode
from laneway.policies.questions import Question, Verdict
from laneway.policies.rules import Decision, Policy, Rule
from laneway.testing import Log, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, codes, failure, plan, states


def call(id_: str, tool_: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": id_, "tool": tool_, "arguments": arguments or {}, **more}


async def changes_of(run: Run) -> tuple[str, ...]:
    return run.changes


async def nothing(_: Run) -> None:
    pass


def mail(**declared: Any) -> Any:
    async def send(to: str) -> str:
        return to

    return tool(send, name="mail", effect=Effect.EXTERNAL, claims=["lane:mail"], **declared)


def mail_with_text() -> Any:
    async def send(to: str, text: str = "") -> str:
        return to + text

    return tool(send, name="mail", effect=Effect.EXTERNAL, claims=["lane:mail"])


def test_tools_policy_and_lanes_that_have_changed_are_named_once() -> None:
    stage = Stage()
    theatre = Theatre(stage, mail(), stage.tool("gone"), stage.tool("unused"), lanes={"mail": 1})
    theatre.play(plan(call("m", "mail", {"to": "ann"}), call("g", "gone")))
    theatre.tools = (mail_with_text(), stage.tool("new"))

    then: dict[str, Any] = {
        "lanes": {"mail": 2, "other": 3},
        "policy": Policy([Rule(Decision.DENY, tools=["rm"])]),
    }
    found = theatre.enter(changes_of, **then)
    again = theatre.enter(changes_of, **then)

    assert found == (
        "tool gone is gone",
        "tool mail has another version: the arguments' schema differs",
        "the policy is another one",
        "lane:mail takes 2 calls at once, was 1",
    )
    assert again == ()
    first, second = theatre.kept(RunTaken)
    assert first.changes == found
    assert first.setting is not None
    assert set(first.setting.tools) == {"mail", "new"}
    assert second == RunTaken(driver=second.driver), "the setting is written where it differs only"


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"mail": 3}, {}, "lane:mail takes 1 call at once, was 3"),
        ({}, {"mail": 3}, "lane:mail takes 3 calls at once, was 1"),
        (
            {"mail": Lane(max_concurrent=None)},
            {"mail": 2},
            "lane:mail takes 2 calls at once, was 1",
        ),
        ({"db:shop": 2}, {}, "db:shop takes any number of calls at once, was 2"),
        ({}, {"db:shop": 2}, "db:shop takes 2 calls at once, was any number"),
        ({"other": 2}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_limits_of_lanes_are_told_where_a_call_takes_them(before: Any, now: Any, told: str) -> None:
    stage = Stage()
    theatre = Theatre(
        stage, mail(), stage.tool("look", claims=["read db:shop/orders"]), lanes=before
    )
    theatre.play(plan(call("m", "mail", {"to": "ann"}), call("l", "look")))

    assert theatre.enter(changes_of, lanes=now) == ((told,) if told else ())


def test_what_a_tool_declares_is_told_apart_from_its_schema() -> None:
    stage = Stage()
    theatre = Theatre(stage, mail())
    theatre.play(plan(call("m", "mail", {"to": "ann"})))
    theatre.tools = (mail(version="2"),)

    assert theatre.enter(changes_of) == ("tool mail has another version: what it declares differs",)


def test_a_tool_that_was_not_there_is_named_when_it_is() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("other"))
    theatre.play(plan(call("m", "mail", {"to": "ann"}), call("o", "other")))
    theatre.tools = (mail(), stage.tool("other"))

    assert theatre.enter(changes_of) == ("tool mail is there now",)


def test_nothing_is_said_of_a_driver_who_wrote_nothing_down_or_of_a_run_without_calls() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("one"))
    theatre.enter(nothing)

    assert theatre.enter(changes_of, policy=Policy([Rule(Decision.DENY, tools=["x"])])) == ()
    assert changes_since(RunView(RUN), Setting(policy="x")) == ()
    assert theatre.kept(RunOpened)[0].setting is not None


def test_the_changes_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stage = Stage()
    theatre = Theatre(stage, mail(), journal="laneway.db")
    theatre.play(plan(call("m", "mail", {"to": "ann"})))
    theatre.tools = ()
    theatre.enter(nothing)

    shown = CliRunner().invoke(app, ["show", "r"])

    assert "changed since the driver before: tool mail is gone" in shown.output.splitlines()


# The digest of a policy


class Own(Policy):
    def decide(self, question: Question, /) -> Verdict:
        return super().decide(question)


class Named(Policy):
    pass


RULE = Rule(Decision.DENY, tools=["rm*"], arguments={"path": "/etc/**"}, source="a.toml:1")


def test_a_policy_is_known_by_what_it_decides_not_by_where_it_is_written() -> None:
    moved = Rule(Decision.DENY, tools=["rm*"], arguments={"path": "/etc/**"}, source="b.toml:9")

    same = {
        Policy([RULE]).digest,
        Policy([moved]).digest,
        Named([RULE]).digest,
        Policy(iter([RULE])).digest,
    }
    others = {
        Policy().digest,
        Policy([RULE], otherwise=Decision.ASK).digest,
        Policy([RULE], modes=[Mode("mine", frozenset({Effect.READ}))]).digest,
        Policy([Rule(Decision.DENY, tools=["rm*"])]).digest,
        Policy([Rule(Decision.ASK, tools=["rm*"], arguments={"path": "/etc/**"})]).digest,
    }

    assert len(same) == 1
    assert len(others | same) == 6
    assert all(len(one) == 16 for one in others | same)


def test_of_a_policy_of_the_hosts_own_making_nothing_is_known() -> None:
    assert Own([RULE]).digest == ""


def test_a_policy_read_from_a_file_has_the_digest_of_its_rules() -> None:
    text = '[[rule]]\ndecision = "deny"\ntools = ["rm"]\n'

    assert Policy.from_toml(text).digest == Policy.from_toml("\n\n" + text, name="other").digest
    assert Policy.from_toml(text).digest == Policy([Rule(Decision.DENY, tools=["rm"])]).digest


# Another reply under the same key


def submitted_twice(first: Any, second: Any, *tools: Any) -> Turn:
    theatre = Theatre(Stage(), *tools)

    async def host(run: Run) -> Turn:
        await run.submit(first, key="mine")
        return await run.submit(second, key="mine")

    return theatre.enter(host)


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        (
            [call("a", "look", {"n": 1}), call("b", "look", {"n": 3})],
            "call 2, of 'look', has other",
        ),
        ([call("a", "look", {"n": 1}), call("b", "gaze", {"n": 2})], "call 2 is one of 'gaze' and"),
        ([call("a", "look", {"n": 1})], "it has 1 call and had 2"),
        ([*[call(n, "look", {"n": ord(n) - 96}) for n in "abc"]], "it has 3 calls and had 2"),
        (
            [call("a", "look", {"n": 1}), call("b", "look", {"n": 2}, needs=["a"])],
            r"call 2 waits for call 1 \(needs\) and did not",
        ),
    ],
)
def test_another_reply_under_the_key_of_a_recorded_one_is_refused(
    second: list[Any], difference: str
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    stage = Stage()
    tools = (stage.tool("look", schema=schema), stage.tool("gaze", schema=schema))
    first = plan(call("a", "look", {"n": 1}), call("b", "look", {"n": 2}))

    with pytest.raises(ChangedReplyError, match=difference) as met:
        submitted_twice(first, plan(*second), *tools)

    assert isinstance(met.value, UsageError)
    assert str(met.value).startswith("key 'mine' names turn 1 of run 'r', and this reply is ")
    assert met.value.turn == 1


def test_an_edge_that_is_gone_is_a_difference() -> None:
    stage = Stage()
    first = plan(call("a", "look"), call("b", "look", after=["a"]))

    with pytest.raises(ChangedReplyError, match=r"call 2 does not wait for call 1 \(after\) and"):
        submitted_twice(first, plan(call("a", "look"), call("b", "look")), stage.tool("look"))


def test_other_ids_other_words_and_other_spellings_are_the_same_reply() -> None:
    """Whoever asks a model again for the same gets new ids and another text."""

    async def look(n: int) -> int:
        return n

    first = plan(call("a", "look", {"n": 1}), call("b", "look", {"n": 2}, needs=["a"]))
    second = plan(call("x", "look", {"n": "1"}), call("y", "look", {"n": 2}, needs=["x"]))

    turn = submitted_twice(first, second, tool(look, effect=Effect.READ, claims=[]))

    assert turn.number == 1


def test_arguments_are_not_compared_over_versions_of_a_tool() -> None:
    """Another version may make other canonical arguments of the same ones."""
    stage = Stage()
    theatre = Theatre(stage, mail())

    async def host(run: Run) -> int:
        asked = plan(call("m", "mail", {"to": "ann"}), call("x", "nobody"))
        return (await run.submit(asked, key="mine")).number

    async def later(run: Run) -> int:
        asked = plan(call("n", "mail", {"to": "ann"}), call("y", "nobody"))
        return (await run.submit(asked, key="mine")).number

    theatre.enter(host)
    theatre.tools = (mail_with_text(),)

    assert theatre.enter(later) == 1


# A journal of which a part is lost


def lossy(theatre: Theatre, seq: int) -> None:
    """Cut the journal behind a fact, as `--accept-loss` would."""
    theatre.crash()
    rows = theatre.journal.facts[RUN][:seq]
    rows.append(Row(RUN, seq + 1, 0.0, 0.0, LossAccepted(lost=3, by="ann")))
    theatre.journal.facts[RUN] = rows


def test_behind_a_loss_nothing_begins_that_may_have_run_and_must_not_run_twice() -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("pay", Log("pay"), Sleep(5), effect=Effect.EXTERNAL),
        stage.tool("deploy", Log("deploy"), effect=Effect.EXTERNAL, approval=True),
        stage.tool("put", Log("put"), effect=Effect.WRITE, idempotent=True),
        stage.tool("look", Log("look"), Return("seen")),
    )

    async def host(run: Run) -> None:
        await run.submit(
            plan(
                call("p", "pay"),
                call("q", "pay", after=["p"]),
                call("d", "deploy"),
                call("l", "look"),
                call("m", "look", needs=["q"]),
                call("n", "look", needs=["m"]),
                call("o", "put", after=["q"]),
            ),
            wait=False,
        )
        await asyncio.sleep(1)
        theatre.crash()

    theatre.enter(host)
    lossy(theatre, len(theatre.facts))
    stage._log.clear()

    turn = theatre.finish()

    assert states(turn) == {
        "p": State.UNCERTAIN,
        "q": State.FAILED,
        "d": State.FAILED,
        "l": State.SUCCEEDED,
        "m": State.SKIPPED,
        "n": State.SKIPPED,
        "o": State.SUCCEEDED,
    }
    assert stage.log == ["put"]
    assert codes(turn)["q"] is codes(turn)["d"] is Code.OUTCOME_UNKNOWN
    assert failure(turn, "q").happened is Happened.UNKNOWN
    assert "A part of the journal is lost, so nobody knows whether pay was run" in str(
        failure(turn, "q").message
    )
    assert "q ended FAILED (OUTCOME_UNKNOWN)" in failure(turn, "m").message
    later = theatre.enter(lambda run: run.submit(plan(call("z", "pay"))))
    assert states(later) == {"z": State.SUCCEEDED}, "the loss concerns what was open"


def test_a_loss_in_a_run_without_an_open_turn_changes_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("pay", Log("pay"), effect=Effect.EXTERNAL))
    theatre.play(plan(call("p", "pay")))
    lossy(theatre, len(theatre.facts))

    async def host(run: Run) -> list[Any]:
        return [turn.outcomes for turn in run.turns]

    (outcomes,) = theatre.enter(host)

    assert not isinstance(outcomes["p"], Failure)


def test_an_engine_describes_itself_once_for_all_its_runs() -> None:
    async def main() -> bool:
        async with Engine([mail()], lanes={"mail": 2}) as engine:
            setting = engine.services.setting
            assert setting.lanes == {"lane:mail": 2}
            assert setting.policy == Policy().digest
            assert list(setting.tools) == ["mail"]
            async with engine.run("a") as one, engine.run("b") as two:
                return one.view.setting is two.view.setting is setting

    assert asyncio.run(main())


def test_the_very_same_reply_is_not_looked_at_twice() -> None:
    first = plan(call("a", "look"))

    assert submitted_twice(first, first, Stage().tool("look")).number == 1
