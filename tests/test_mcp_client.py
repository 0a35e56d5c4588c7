"""MCP servers as tools: what is believed of them, and what becomes of calls when they fail.

The server is a scripted process (servers/scripted.py) that dies, falls silent, lies or answers
late to order; real ones are met in test_mcp_real.py.
"""

import asyncio
import math
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    LanewayError,
    Limits,
    MCPLimits,
    MCPServer,
    Policy,
    Rule,
    Run,
    State,
    Success,
    Turn,
    tool,
)
from laneway.engine.groups import has_ended
from laneway.engine.mcp.hints import names, overridden
from laneway.facts import HolderStopped
from laneway.journal.memory import MemoryStore

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

T = TypeVar("T")
SCRIPT = str(Path(__file__).resolve().parent / "servers" / "scripted.py")
QUICK = MCPLimits(idle_seconds=0.3, ping_seconds=0.5, linger_seconds=0.4, pause_seconds=0.1)


def scripted(log: Path | None = None, **options: Any) -> MCPServer:
    options.setdefault("trusted", True)
    options.setdefault("protocol", "legacy")
    arguments = [SCRIPT, *([str(log)] if log else [])]
    return MCPServer.stdio("s", sys.executable, arguments, **options)


def reply(number: int, *asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"c{number}_{place}", "name": name, "input": given}
        for place, (name, given) in enumerate(asked)
    ]
    return {"id": f"m{number}", "role": "assistant", "stop_reason": "tool_use", "content": blocks}


def driven(
    server: MCPServer, host: Callable[[Engine, Run], Awaitable[T]], *tools: Any, **options: Any
) -> T:
    async def main() -> T:
        engine = Engine([server, *tools], **options)
        async with engine, engine.run("r") as run:
            return await host(engine, run)

    return asyncio.run(asyncio.wait_for(main(), 50))


def asked(server: MCPServer, *calls: tuple[str, dict[str, Any]], **options: Any) -> Turn:
    return driven(server, lambda _, run: run.submit(reply(1, *calls)), **options)


def failure(turn: Turn, place: int = 0) -> Failure:
    outcome = turn.calls[place].outcome
    assert isinstance(outcome, Failure)
    return outcome


def gone(pid: int) -> bool:
    """Whether a server has been reaped, and nobody of its group lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return has_ended(pid)
    return False


# A dead server


def test_h_mcp_1_a_server_that_dies_in_a_call_fails_it_at_once_and_is_started_again(
    tmp_path: Path,
) -> None:
    server = scripted(tmp_path / "log", tools={"die": {"effect": Effect.EXTERNAL}})

    @tool
    async def local() -> str:
        return "l"

    async def host(engine: Engine, run: Run) -> tuple[Turn, Turn, list[int]]:
        pids = [server.status().pid or 0]
        # No limit of the engine could end the call: what ends it is the server's death.
        first = await run.submit(reply(1, ("s__die", {}), ("local", {})))
        second = await run.submit(reply(2, ("s__echo", {"text": "e"})))
        return first, second, [*pids, server.status().pid or 0]

    first, second, pids = driven(
        server, host, local, limits=Limits(call_seconds=math.inf, turn_seconds=math.inf)
    )

    d, local_call = first.calls
    assert (d.state, local_call.state) == (State.UNCERTAIN, State.SUCCEEDED)
    assert failure(first).code is Code.TRANSPORT_CLOSED
    assert failure(first).happened is Happened.UNKNOWN
    assert failure(first).message == (
        "s__die: the server 's' is gone (it exited with code 3); no answer can come. "
        "It may have had its effect, or part of it."
    )
    assert [call.outcome for call in second.calls] == [Success(value="e")]
    assert (tmp_path / "log").read_text().split() == ["die", "echo"]
    assert pids[0] != pids[1]
    assert all(map(gone, pids))


def test_every_call_that_is_open_on_a_server_hears_of_its_death(tmp_path: Path) -> None:
    turn = asked(
        scripted(tools={"slow": {"claims": []}, "die": {"claims": []}}),
        ("s__slow", {}),
        ("s__read_slow", {"text": "x"}),
        ("s__die", {}),
    )

    states = [call.state for call in turn.calls]
    assert states == [State.UNCERTAIN, State.FAILED, State.UNCERTAIN]
    assert {failure(turn, place).code for place in range(3)} == {Code.TRANSPORT_CLOSED}
    assert failure(turn, 1).happened is Happened.NOTHING
    assert failure(turn, 1).retry


def test_a_read_is_tried_again_on_the_next_server_if_it_may_be(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = scripted(log, tools={"read_die": {"retries": 1}})

    turn = asked(server, ("s__read_die", {}), limits=Limits(back_off_seconds=0.01))

    assert log.read_text().split() == ["read_die"] * 2
    assert failure(turn).code is Code.TRANSPORT_CLOSED


def test_the_exit_of_a_server_counts_though_its_child_holds_the_output_open() -> None:
    server = scripted()

    async def host(engine: Engine, run: Run) -> tuple[Turn, int]:
        pid = server.status().pid or 0
        return await run.submit(reply(1, ("s__exit_with_child", {}))), pid

    turn, pid = driven(server, host)

    assert failure(turn).code is Code.TRANSPORT_CLOSED
    assert gone(pid)


def test_a_server_killed_between_calls_is_back_for_the_next_one() -> None:
    server = scripted()

    async def host(engine: Engine, run: Run) -> Turn:
        os.kill(server.status().pid or 0, signal.SIGKILL)
        while server.status().starts < 2:
            await asyncio.sleep(0.01)
        return await run.submit(reply(1, ("s__echo", {"text": "back"})))

    turn = driven(server, host)

    assert turn.calls[0].outcome == Success(value="back")


def test_a_server_that_is_down_and_stays_so_says_so_at_once_and_nothing_has_happened(
    tmp_path: Path,
) -> None:
    script = tmp_path / "server.py"
    script.write_text(Path(SCRIPT).read_text())
    server = MCPServer.stdio("s", sys.executable, [str(script)], protocol="legacy")

    async def host(engine: Engine, run: Run) -> tuple[Turn, str]:
        script.unlink()
        await run.submit(reply(1, ("s__die", {})))
        while not server.status().why.startswith("ConnectionError"):
            await asyncio.sleep(0.01)
        turn = await run.submit(reply(2, ("s__echo", {})))
        return turn, failure(turn).message

    turn, told = driven(server, host)

    assert turn.calls[0].state is State.FAILED
    assert failure(turn).code is Code.TRANSPORT_CLOSED
    assert failure(turn).happened is Happened.NOTHING
    assert "s__echo: the server 's' cannot be reached (it is down: " in told


# Slow, deaf, cancelled


def test_a_server_that_answers_a_ping_is_slow_and_only_its_call_times_out() -> None:
    server = scripted(limits=QUICK)

    async def host(engine: Engine, run: Run) -> tuple[Turn, Turn, int]:
        first = await run.submit(reply(1, ("s__slow", {}), ("s__read_slow", {})))
        second = await run.submit(reply(2, ("s__echo", {"text": "here"})))
        return first, second, server.status().starts

    first, second, starts = driven(server, host)

    assert [call.state for call in first.calls] == [State.TIMED_OUT] * 2
    assert failure(first).happened is Happened.UNKNOWN
    assert failure(first, 1).happened is Happened.NOTHING
    assert "it answers a ping, so it is slow, not dead" in failure(first).message
    assert second.calls[0].outcome == Success(value="here")
    assert starts == 1


def test_a_server_that_does_not_answer_a_ping_is_dead_and_started_again() -> None:
    server = scripted(limits=QUICK)

    async def host(engine: Engine, run: Run) -> tuple[Turn, Turn, int]:
        first = await run.submit(reply(1, ("s__deaf", {})))
        second = await run.submit(reply(2, ("s__echo", {"text": "anew"})))
        return first, second, server.status().starts

    first, second, starts = driven(server, host)

    assert first.calls[0].state is State.UNCERTAIN
    assert failure(first).code is Code.TRANSPORT_CLOSED
    assert "did not answer a ping within 0.5 s" in failure(first).message
    assert second.calls[0].outcome == Success(value="anew")
    assert starts == 2


def test_progress_extends_the_patience_with_a_server() -> None:
    turn = asked(scripted(limits=QUICK), ("s__progress", {}))

    assert turn.calls[0].outcome == Success(value="at last")


def cancelled_call(name: str) -> tuple[Turn, Turn, list[Any]]:
    """Cancel a call that changes something, while another waits behind it for its lane."""
    server, store = scripted(limits=QUICK), MemoryStore()

    async def host(engine: Engine, run: Run) -> tuple[Turn, Turn, list[Any]]:
        first = await run.submit(reply(1, (f"s__{name}", {})), wait=False)
        while first.calls[0].state is not State.RUNNING:
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)  # It has been sent.
        await run.cancel(first.calls[0].id)
        await first.close()
        second = await run.submit(reply(2, ("s__grow", {})))
        return first, second, [row.fact for row in await store.read(run.id)]

    return driven(server, host, journal=store, limits=Limits(grace_seconds=0.05))


def test_a_cancelled_call_keeps_its_lane_until_its_late_answer_and_that_is_only_noted() -> None:
    first, second, facts = cancelled_call("late")

    assert first.calls[0].state is State.CANCELLED
    assert failure(first).happened is Happened.UNKNOWN
    assert second.calls[0].outcome == Success(value="grown")
    assert [fact.late for fact in facts if isinstance(fact, HolderStopped)] == ["it was done"]


def test_a_cancelled_call_that_is_never_answered_frees_its_lane_after_a_while() -> None:
    first, second, facts = cancelled_call("never")

    assert first.calls[0].state is State.CANCELLED
    assert "The tool has not stopped" in failure(first).message
    assert second.calls[0].outcome == Success(value="grown")
    assert len([fact for fact in facts if isinstance(fact, HolderStopped)]) == 1


# What it says


@pytest.mark.parametrize(
    ("number", "code", "happened"),
    [
        (-32602, Code.INVALID_ARGUMENTS, Happened.NOTHING),
        (-32601, Code.UNAVAILABLE, Happened.NOTHING),
        (-32603, Code.TOOL_ERROR, Happened.UNKNOWN),
        (-32000, Code.TOOL_ERROR, Happened.UNKNOWN),
    ],
)
def test_a_json_rpc_error_says_whether_anything_can_have_happened(
    number: int, code: Code, happened: Happened
) -> None:
    turn = asked(scripted(), ("s__error", {"text": str(number)}))

    assert (failure(turn).code, failure(turn).happened) == (code, happened)
    assert f"the server answered with an error ({number}): no" in failure(turn).message


def test_an_error_of_the_tool_is_told_in_its_own_words() -> None:
    turn = asked(scripted(), ("s__fails", {}))

    assert failure(turn).message == "s__fails: the disk is full"
    assert failure(turn).code is Code.TOOL_ERROR


def test_a_result_that_breaks_its_own_schema_is_a_failure_that_may_have_had_its_effect() -> None:
    turn = asked(scripted(), ("s__lies", {}))

    assert "the server's answer cannot be used" in failure(turn).message
    assert failure(turn).happened is Happened.UNKNOWN


def test_a_server_that_prints_is_not_lost_for_it() -> None:
    assert asked(scripted(), ("s__noise", {})).calls[0].outcome == Success(value="heard")


def test_a_request_of_the_server_is_refused_unless_the_host_answers_it(tmp_path: Path) -> None:
    refused = asked(scripted(), ("s__ask", {})).calls[0].outcome
    answered = asked(scripted(roots=[tmp_path]), ("s__ask", {})).calls[0].outcome

    assert refused == Success(value='"List roots not supported"')
    assert isinstance(answered, Success)
    assert tmp_path.as_uri() in answered.value


def test_tools_that_come_later_are_there_when_the_server_says_so() -> None:
    server = scripted()

    async def host(engine: Engine, run: Run) -> tuple[bool, Turn]:
        before = "s__grown" in engine.tools
        await run.submit(reply(1, ("s__grow", {})))
        while "s__grown" not in engine.tools:
            await asyncio.sleep(0.01)
        return before, await run.submit(reply(2, ("s__grown", {"text": "new"})))

    before, turn = driven(server, host)

    assert not before
    assert turn.calls[0].outcome == Success(value="new")


# What is believed


def test_hints_of_a_trusted_server_become_effects_and_claims() -> None:
    server = scripted()
    driven(server, _nothing)
    specs = {one.spec.name: one.spec for one in server.offered}

    assert (specs["s__echo"].effect, specs["s__echo"].claims) == (Effect.READ, ("read mcp:s",))
    assert (specs["s__slow"].effect, specs["s__slow"].claims) == (Effect.WRITE, ("write mcp:s",))
    assert specs["s__die"].effect is Effect.EXTERNAL
    assert specs["s__wipe"].risk == "destructive"
    assert {spec.server for spec in specs.values()} == {"s"}


def test_of_a_server_that_is_not_trusted_only_what_makes_a_call_more_careful_is_believed() -> None:
    server = scripted(trusted=False, tools={"echo": {"effect": "read", "claims": []}})
    driven(server, _nothing)
    specs = {one.spec.name: one.spec for one in server.offered}

    assert (specs["s__ask"].effect, specs["s__ask"].declared) == (Effect.EXTERNAL, False)
    assert specs["s__wipe"].risk == "destructive"
    assert (specs["s__echo"].effect, specs["s__echo"].claims) == (Effect.READ, ())


def test_an_effect_for_a_whole_server_goes_before_its_hints() -> None:
    server = scripted(effect=Effect.READ, only=["slow", "echo"])
    driven(server, _nothing)

    assert {one.spec.name: one.spec.claims for one in server.offered} == {
        "s__echo": ("read mcp:s",),
        "s__slow": ("read mcp:s",),
    }


def test_rules_over_servers_hold_for_their_tools() -> None:
    policy = Policy([Rule(decision="deny", servers=["s"], name="no s")])  # type: ignore[arg-type]

    turn = asked(scripted(), ("s__echo", {"text": "x"}), policy=policy)

    assert failure(turn).code is Code.POLICY_DENIED


def test_names_that_no_provider_takes_are_made_into_ones_that_each_does() -> None:
    found = names("s__", ["a.b", "a/b", "x" * 80, "plain"])

    assert found["plain"] == "s__plain"
    assert len(set(found.values())) == 4
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in found.values())


def test_a_host_that_names_an_effect_takes_back_what_hints_say_of_repeats() -> None:
    said = overridden(
        {"effect": Effect.READ, "claims": ["read mcp:s"], "idempotent": True},
        {"effect": Effect.WRITE},
    )

    assert said == {"effect": Effect.WRITE, "claims": ["write mcp:s"]}


async def _nothing(engine: Engine, run: Run) -> None:
    pass


# Its life


def test_one_server_serves_one_event_loop_after_another() -> None:
    server = scripted()

    values = [asked(server, ("s__echo", {"text": word})).calls[0].outcome for word in ("a", "b")]

    assert values == [Success(value="a"), Success(value="b")]
    assert not server.status().up


def test_a_host_may_enter_a_server_by_itself_and_the_engine_uses_the_same() -> None:
    server = scripted()

    async def main() -> tuple[int, int]:
        async with server:
            assert "s__echo" in [one.spec.name for one in server.offered]
            async with Engine([server]):
                starts = server.status().starts
            return starts, server.status().starts

    assert asyncio.run(main()) == (1, 1)
    assert not server.status().up


def test_a_server_that_cannot_be_started_is_named_with_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys; sys.exit('no licence')")
    server = MCPServer.stdio("s", sys.executable, [str(script)])

    with pytest.raises(LanewayError) as met:
        driven(server, _nothing)

    told = str(met.value)
    assert told.startswith("MCP server 's' cannot be connected: ")
    assert "see that it runs by itself" in told
    assert "no licence" in told


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(LanewayError, match="no such program in PATH"):
        driven(MCPServer.stdio("s", "surely-not-there"), _nothing)


def test_an_engine_begins_without_a_server_that_is_not_required() -> None:
    server = MCPServer.stdio("s", "surely-not-there", required=False)

    async def host(engine: Engine, run: Run) -> str:
        return server.status().why

    assert "no such program" in driven(server, host)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: MCPServer.stdio("a b", "x"), "'a b' is no name for an MCP server"),
        (lambda: MCPServer.stdio("s", "x", "-y"), "args='-y' is a text; give a list"),
        (lambda: MCPServer.http("s", "host/mcp"), "'host/mcp' is no address"),
        (lambda: scripted(only="echo"), "only='echo' is a text; name its tools in a list"),
        (lambda: scripted(onyl=["x"]), "onyl is no option"),
        (lambda: scripted(roots=["w"]), "roots= names 'w'; give absolute folders"),
        (lambda: scripted(only=["a"], tools={"b": {}}), "tools= speaks of 'b', which only="),
        (lambda: MCPLimits(idle_seconds=0), "MCPLimits.idle_seconds is 0; give seconds"),
        (lambda: driven(scripted(protocol="1"), _nothing), "protocol='1' is not known"),
        (lambda: driven(scripted(tools={"echo": {"effect": "big"}}), _nothing), "effect='big'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(made: Callable[[], Any], told: str) -> None:
    with pytest.raises(LanewayError) as met:
        made()

    assert told in str(met.value)
