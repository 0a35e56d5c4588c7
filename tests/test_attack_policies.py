"""What gets past policies: hidden commands, budgets that leak, grants that are forgotten."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from laneway import Budgets, Decision, Effect, Policy, Rule, Run, State, ToolContext, tool
from laneway.engine.reexecution.rerun import reexecute
from laneway.errors import UsageError
from laneway.lanes.shell import shell_effect
from laneway.policies.modes import Mode
from laneway.policies.rules import Question
from laneway.testing.scripted import Log, Return, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan, states

ASKING = Policy(modes=[Mode("careful", frozenset({Effect.PURE, Effect.READ}), Decision.ASK)])
ALSO_ALL = Policy(modes=[Mode("other", frozenset(Effect))])
NO_TOUCH = Policy([Rule(Decision.DENY, commands=["touch *"])])


async def soon() -> None:
    await asyncio.sleep(1)


def edit(stage: Stage, **declared: Any) -> Any:
    """A writer, one at a time over all files."""
    schema = {"type": "object", "properties": {"n": {}}}
    return stage.tool(
        "edit",
        Sleep(10),
        Log("edit {n}"),
        Return("done"),
        effect=Effect.WRITE,
        claims=["lane:w"],
        schema=schema,
        **declared,
    )


def edits(*names: str) -> dict[str, Any]:
    return plan(*({"id": n, "tool": "edit", "arguments": {"n": n}} for n in names))


def reproduced(theatre: Theatre) -> str:
    """What a re-execution finds to be otherwise than it is recorded; nothing if all is alike."""
    found = asyncio.run(reexecute(theatre.journal.facts[RUN]))
    return "" if found.same else str(found)


def made(line: str, folder: Path) -> bool:
    """Whether bash makes a file of the name MARK when it runs a line."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    (folder / "f").write_text("a\n")
    subprocess.run(
        [bash, "-c", line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return (folder / "MARK").exists()


@pytest.mark.parametrize(
    "line",
    [
        "[[ a -eq 'b[$(touch MARK)]' ]]",
        "[[ 'b[$(touch MARK)]' -gt 3 ]]",
        "[[ 1 -lt 'b[`touch MARK`]' ]]",
        "n='a[$(touch MARK)]'; [[ n -eq 1 ]]",
        "n='a[$(touch MARK)]'; [[ x == y || 1 -ne $n ]]",
        "set -- 'a[$(touch MARK)]'; [[ $1 -eq 1 ]]",
        "for n in 'a[$(touch MARK)]'; do [[ $n -le 1 ]]; done",
        "[[ $(printf %s 'a[$(touch MARK)]') -ge 1 ]]",
        "RANDOM='a[$(touch MARK)]'",
        "OPTIND='a[$(touch MARK)]'",
        "readonly RANDOM='a[$(touch MARK)]'",
        "printf -v RANDOM %s 'a[$(touch MARK)]'",
        "declare -a 'x=($(touch MARK))'",
        "declare -A 'x=([$(touch MARK)]=1)'",
        "sort --o=MARK f",
    ],
)
def test_a_line_that_changes_something_does_not_count_as_one_that_reads(
    line: str, tmp_path: Path
) -> None:
    assert made(line, tmp_path), "it changes nothing in the first place"

    assert not shell_effect("cmd")({"cmd": line}).changes_nothing


@pytest.mark.parametrize(
    "line",
    [
        "[[ $x -eq 1 ]]",
        "[[ $# -gt 0 ]]",
        "ls; [[ $? -ne 0 ]]",
        "n=1; [[ $n -eq 1 ]]",
        "x=text; [[ $? -eq 0 ]]",
    ],
)
def test_a_comparison_of_numbers_reads(line: str) -> None:
    assert shell_effect("cmd")({"cmd": line}) is Effect.READ


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("env - touch MARK", Decision.DENY),
        ("env - A=b touch MARK", Decision.DENY),
        ("bash -oc posix 'touch MARK'", Decision.DENY),
        ("bash -co posix 'touch MARK'", Decision.DENY),
        ("taskset -c 0 touch MARK", Decision.DENY),
        ("flock --timeout 1 f touch MARK", Decision.DENY),
        ("find . -maxdepth 0 $(echo -exec) touch MARK \\;", Decision.ASK),
        ("hash -p /usr/bin/touch ls; ls MARK", Decision.ASK),
        ("mapfile -C 'touch MARK' -c 1 a < f", Decision.ASK),
        ("compgen -W '$(touch MARK)'", Decision.ASK),
        ("let 'a[$(touch MARK)]=1'", Decision.ASK),
        ("declare -i n='a[$(touch MARK)]'", Decision.ASK),
        ("test -v 'a[$(touch MARK)]'", Decision.ASK),
        ("[[ a -eq 'b[$(touch MARK)]' ]]", Decision.ASK),
    ],
)
def test_no_builtin_and_no_wrapper_hides_a_command_from_a_rule(
    line: str, decision: Decision
) -> None:
    asked = Question(tool="sh", arguments={"cmd": line}, command_lines=("cmd",))

    assert NO_TOUCH.decide(asked).decision is decision


def test_a_call_that_is_asked_about_from_its_queue_has_nothing_set_aside() -> None:
    stage = Stage()
    theatre = Theatre(stage, edit(stage), policy=ASKING, budgets=Budgets(tool_calls=2))

    async def host(run: Run) -> Any:
        turn = await run.submit(edits("a", "b"), wait=False)
        await soon()
        await run.set_mode("careful")
        assert states(turn) == {"a": State.RUNNING, "b": State.AWAITING_APPROVAL}
        return run.budgets["tool_calls"]

    assert theatre.enter(host).reserved == 0


def test_a_wait_for_a_human_that_began_in_a_queue_is_no_time_at_work_after_a_crash() -> None:
    stage = Stage()
    theatre = Theatre(stage, edit(stage), policy=ASKING)

    async def host(run: Run) -> float:
        await run.submit(edits("a", "b"), wait=False)
        await soon()
        await run.set_mode("careful")
        await asyncio.sleep(600)
        await run.note("still waiting")
        theatre.crash()
        return run.budgets["seconds"].settled

    async def look(run: Run) -> float:
        return run.budgets["seconds"].settled

    assert theatre.enter(host) == 10
    assert theatre.enter(look) == 10


def test_what_was_granted_for_the_run_is_not_asked_again_in_another_mode_that_allows_it() -> None:
    stage = Stage()
    theatre = Theatre(stage, edit(stage, approval=True), policy=ALSO_ALL)

    async def host(run: Run) -> Any:
        first = await run.submit(edits("a"), wait=False)
        await run.approve((await run.asked())[0].id, for_="run")
        await first.wait()
        turn = await run.submit(edits("b", "c"), wait=False)
        await soon()
        await run.set_mode("other")
        assert states(turn) == {"b": State.RUNNING, "c": State.QUEUED}
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert turn.call("c").rule == "granted for this run (t1.1.a1)"


@pytest.mark.xfail(
    strict=True, reason="the rows of a run do not tell that what runs within a call only waited"
)
def test_a_wait_for_a_human_within_a_call_is_no_time_at_work_after_a_crash() -> None:
    stage = Stage()

    @tool(effect=Effect.READ, claims=[])
    async def outer(context: ToolContext) -> str:
        await context.invoke("edit", n=1)
        return "done"

    theatre = Theatre(stage, edit(stage, approval=True), outer)

    async def host(run: Run) -> float:
        await run.submit(plan({"id": "o", "tool": "outer"}), wait=False)
        await asyncio.sleep(600)
        await run.note("still waiting")
        theatre.crash()
        return run.budgets["seconds"].settled

    async def look(run: Run) -> float:
        return run.budgets["seconds"].settled

    assert theatre.enter(host) == 0
    assert theatre.enter(look) == 0


def test_a_request_that_is_made_a_second_time_is_refused_and_damages_nothing() -> None:
    stage = Stage()
    theatre = Theatre(stage, edit(stage))

    async def host(run: Run) -> None:
        request = run.request(model="m", messages=["…"], max_output_tokens=10)
        async with request:
            with pytest.raises(UsageError, match="made once"):
                await request.__aenter__()
        with pytest.raises(UsageError, match="made once"):
            await request.__aenter__()

    async def look(run: Run) -> Any:
        return run.budgets["tokens"]

    theatre.enter(host)
    tokens = theatre.enter(look)

    assert (tokens.settled, tokens.reserved) == (3, 0)


def test_a_run_that_a_loop_has_stopped_in_the_middle_of_an_answer_is_reproduced() -> None:
    stage = Stage()
    schema = {"type": "object", "properties": {"n": {}}}
    theatre = Theatre(
        stage,
        stage.tool("look", Return("same"), schema=schema),
        stage.tool("other", Return("{n}"), schema=schema),
    )

    async def host(run: Run) -> Any:
        turns = [
            await run.submit(
                plan(
                    {"id": f"a{n}", "tool": "look", "arguments": {"n": 0}},
                    {"id": f"b{n}", "tool": "other", "arguments": {"n": n}},
                )
            )
            for n in range(5)
        ]
        await run.say("Go on.")
        await run.submit(plan({"id": "z", "tool": "look", "arguments": {"n": 0}}))
        return turns[-1]

    assert states(theatre.enter(host)) == {"a4": State.DENIED, "b4": State.CANCELLED}
    assert not reproduced(theatre)


def test_what_a_stop_of_the_host_has_ended_does_not_count_as_denied_by_the_policy() -> None:
    stage = Stage()
    theatre = Theatre(stage, edit(stage))

    async def host(run: Run) -> Any:
        turn = await run.submit(edits("a", "b"), wait=False)
        await soon()
        await run.stop("NEEDS_USER_INPUT", "Which one?", by="ann")
        await turn.wait()
        return turn

    assert states(theatre.enter(host)) == {"a": State.SUCCEEDED, "b": State.CANCELLED}
    assert not reproduced(theatre)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"arguments": []}, r"arguments=\[\] are none; give all of them by name"),
        ({"by": 5}, "by=5 is no text"),
        ({"reason": None}, "reason=None is no text"),
    ],
)
def test_an_answer_that_cannot_be_meant_is_refused_and_the_question_stays_open(
    said: dict[str, Any], fault: str
) -> None:
    stage = Stage()
    pay = stage.tool("pay", schema={"type": "object"}, approval=True)
    theatre = Theatre(stage, pay)

    async def host(run: Run) -> int:
        await run.submit(plan({"id": "p", "tool": "pay"}), wait=False)
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match=fault):
            await run.approve("p", **said)
        return len(run.approvals)

    assert theatre.enter(host) == 1
