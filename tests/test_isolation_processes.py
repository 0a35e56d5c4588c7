"""Tools that run in a process of their own: whatever they do to it, the engine goes on."""

import asyncio
import contextvars
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    Limits,
    State,
    Success,
    tool,
)
from laneway.engine.groups import has_ended
from laneway.engine.isolation import carried
from laneway.errors import ToolError
from laneway.journal.fold import CallView
from laneway.testing import troublesome

LIMITS = Limits(grace_seconds=0.4, call_seconds=20)


def _worst(said: dict[str, Any]) -> Any:
    return {"effect": Effect.WRITE, **said}


def isolated(function: Callable[..., Any], **said: Any) -> Any:
    return tool(function, isolation="process", **_worst(said))


def ask(*tools: Any, limits: Limits = LIMITS, **arguments: Any) -> list[CallView]:
    """Call each tool once, all in one turn."""

    async def main() -> list[CallView]:
        async with Engine(tools, limits=limits) as engine, engine.run("r") as run:
            calls = [
                {"id": str(at), "tool": one.spec.name, "arguments": arguments}
                for at, one in enumerate(tools)
            ]
            turn = await run.submit({"calls": calls})
            assert not engine.status().stuck
            for call in turn.calls:
                for process in call.processes:
                    assert has_ended(process.group)
            return list(turn.calls)

    return asyncio.run(main())


def failure(call: CallView) -> Failure:
    assert isinstance(call.outcome, Failure)
    return call.outcome


def value(call: CallView) -> Any:
    assert isinstance(call.outcome, Success), call.outcome
    return call.outcome.value


def test_a_body_runs_in_a_process_that_leads_a_group_which_was_written_down_before() -> None:
    (call,) = ask(isolated(troublesome.tell_process))

    told = value(call)
    assert told["pid"] != os.getpid()
    assert told["pid"] == told["group"] == told["session"]
    assert [process.group for process in call.processes] == [told["pid"]]


def test_values_and_arguments_pass_and_a_coroutine_function_is_awaited_there() -> None:
    echoed, waited = ask(
        isolated(troublesome.echo, effect=Effect.READ), isolated(troublesome.wait, name="wait")
    )

    assert value(echoed) is None
    assert value(waited) == "waited"
    (given,) = ask(isolated(troublesome.echo), value={"a": [1, 2.5, "ü", None]})
    assert value(given) == {"a": [1, 2.5, "ü", None]}


@pytest.mark.parametrize(
    ("function", "said", "told"),
    [
        (troublesome.crash, {}, "was killed by SIGSEGV"),
        (troublesome.leave, {}, "ended with exit code 3 before its body returned"),
        (troublesome.spin, {"cpu_seconds": 1}, "used up its 1 s of processor time"),
        (troublesome.close_everything, {}, "ended with exit code"),
    ],
)
def test_a_process_that_dies_is_a_failure_of_which_the_effect_is_not_known(
    function: Callable[..., Any], said: dict[str, Any], told: str
) -> None:
    (call,) = ask(isolated(function, **said))

    assert call.state is State.FAILED
    assert failure(call).code is Code.TOOL_ERROR
    assert told in failure(call).message
    assert failure(call).happened is Happened.UNKNOWN
    assert not failure(call).retry


def test_a_process_of_a_tool_that_changes_nothing_may_die_and_be_asked_again() -> None:
    (call,) = ask(isolated(troublesome.crash, effect=Effect.READ))

    assert failure(call).happened is Happened.NOTHING
    assert failure(call).retry


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (troublesome.leave_politely, "SystemExit: 3"),
        (troublesome.interrupt, "KeyboardInterrupt"),
        (troublesome.give_up, "CancelledError"),
        (troublesome.fail, "ValueError: boom"),
    ],
)
def test_whatever_a_body_raises_there_is_its_failure(
    function: Callable[..., Any], told: str
) -> None:
    (call,) = ask(isolated(function))

    assert call.state is State.FAILED
    assert failure(call).code is Code.TOOL_ERROR
    assert f"raised {told}" in failure(call).message


def test_what_an_exception_knows_comes_along() -> None:
    refused, partly = ask(isolated(troublesome.be_refused), isolated(troublesome.do_a_part))

    assert failure(refused).happened is Happened.NOTHING
    assert failure(refused).retry
    assert failure(partly).code is Code.PARTIAL_EFFECT
    assert (failure(partly).done, failure(partly).left) == (("a", "b"), ("c",))


def test_what_a_tool_knows_of_its_failure_comes_along() -> None:
    (call,) = ask(isolated(troublesome.know_better))

    told = failure(call)
    assert told.happened is Happened.NOTHING
    assert told.retry
    assert (told.message, told.hint) == ("know_better: the door is locked", "knock")


@pytest.mark.parametrize(
    ("kind", "length", "told"),
    [(99, 5, "said what cannot be read"), (4, 1 << 40, "sent 1048576 MiB at once")],
)
def test_a_process_that_says_what_it_must_not_is_ended(kind: int, length: int, told: str) -> None:
    (call,) = ask(isolated(troublesome.scribble), kind=kind, length=length)

    assert told in failure(call).message
    assert failure(call).happened is Happened.UNKNOWN


def test_the_current_trace_is_that_of_the_process_too() -> None:
    span = trace.NonRecordingSpan(
        trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    )

    with trace.use_span(span):
        (call,) = ask(isolated(troublesome.tell_trace))

    assert value(call) == format(0xABC, "032x")


def test_a_variable_that_cannot_be_pickled_or_found_stays_behind() -> None:
    here = contextvars.ContextVar("here", default=1)

    def main() -> tuple[carried.Carried, dict[str, str]]:
        here.set(2)
        troublesome.carried.set(lambda: None)  # type: ignore[arg-type]
        return carried.pack()

    variables, _ = contextvars.copy_context().run(main)

    assert [one for one in variables if one[1] in ("here", "carried")] == []
    carried.unpack(
        [("no.such.module", "x", b""), ("laneway.testing.troublesome", "carried", b"")], {}
    )
    assert troublesome.carried.get() == "nothing"


def test_a_process_that_cannot_be_started_is_a_failure_that_did_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(multiprocessing.get_context("forkserver").Process, "start", refuse)

    (call,) = ask(isolated(troublesome.echo))

    assert "no process could be started for it: no more processes" in failure(call).message
    assert failure(call).happened is Happened.NOTHING


def test_a_process_that_hears_of_nothing_is_killed_with_its_group_at_the_limit() -> None:
    (call,) = ask(isolated(troublesome.hang, timeout=0.2))

    assert call.state is State.TIMED_OUT
    assert failure(call).happened is Happened.UNKNOWN
    assert not call.stuck


def test_a_body_that_sees_the_stop_says_what_it_had_done() -> None:
    (call,) = ask(isolated(troublesome.obey, timeout=0.3))

    assert call.state is State.TIMED_OUT
    assert failure(call).happened is Happened.PARTLY
    assert failure(call).done == ("half",)


def test_memory_has_a_limit() -> None:
    (call,) = ask(isolated(troublesome.fill_memory, memory_mb=500))

    assert call.state is State.FAILED
    assert "MemoryError" in failure(call).message


def test_output_that_nobody_wants_blocks_nothing_and_is_kept_nowhere() -> None:
    (call,) = ask(isolated(troublesome.flood))

    assert value(call) == "flooded"


def test_a_result_beyond_the_limit_stays_in_its_process() -> None:
    (call,) = ask(
        isolated(troublesome.return_much),
        mebibytes=5,
        limits=Limits(process_result_mb=1),
    )

    assert failure(call).code is Code.RESULT_NOT_SERIALISABLE
    assert "returned 5 MiB, and no more than 1 MiB" in failure(call).message
    assert failure(call).happened is Happened.ALL


def test_what_a_body_leaves_behind_ends_with_it() -> None:
    (call,) = ask(isolated(troublesome.leave_children))

    for pid in value(call):
        assert _is_gone(pid)


def test_progress_is_heard_from_a_process_and_its_silence_ends_it() -> None:
    reported, silent = ask(
        isolated(troublesome.report), isolated(troublesome.fall_silent, idle_timeout=0.3)
    )

    assert value(reported) == 3
    assert silent.state is State.TIMED_OUT
    assert "no progress for 0.3 s" in failure(silent).message
    assert "about to begin" in failure(silent).message


def test_a_context_variable_that_stands_in_a_module_is_seen_there() -> None:
    token = troublesome.carried.set("over there")
    try:
        (call,) = ask(isolated(troublesome.tell_variable))
    finally:
        troublesome.carried.reset(token)

    assert value(call) == "over there"


def test_a_cancelled_call_ends_its_process_and_the_engine_goes_on() -> None:
    async def main() -> tuple[CallView, CallView]:
        tools = [isolated(troublesome.hang), isolated(troublesome.echo)]
        async with Engine(tools, limits=LIMITS) as engine, engine.run("r") as run:
            turn = await run.submit({"calls": [{"id": "h", "tool": "hang"}]}, wait=False)
            while not turn.calls[0].processes:  # noqa: ASYNC110 - no fact wakes a host
                await asyncio.sleep(0.01)
            await run.cancel("h", reason="enough")
            await turn.wait()
            again = await run.submit({"calls": [{"id": "e", "tool": "echo"}]})
            assert has_ended(turn.calls[0].processes[0].group)
            return turn.calls[0], again.calls[0]

    cancelled, echoed = asyncio.run(main())

    assert cancelled.state is State.CANCELLED
    assert echoed.state is State.SUCCEEDED


def test_a_call_cancelled_while_its_process_starts_leaves_none() -> None:
    async def main() -> CallView:
        tools = [isolated(troublesome.hang)]
        async with Engine(tools, limits=LIMITS) as engine, engine.run("r") as run:
            turn = await run.submit({"calls": [{"id": "h", "tool": "hang"}]}, wait=False)
            await asyncio.sleep(0)
            await run.cancel("h")
            await turn.wait()
            return turn.calls[0]

    call = asyncio.run(main())

    assert call.state is State.CANCELLED
    assert all(has_ended(process.group) for process in call.processes)


def test_no_more_processes_run_at_once_than_may(tmp_path: Path) -> None:
    async def main() -> list[CallView]:
        tools = [isolated(troublesome.wait, claims=[])]
        limits = Limits(tool_processes=1)
        async with Engine(tools, limits=limits) as engine, engine.run("r") as run:
            calls = [
                {"id": str(n), "tool": "wait", "arguments": {"seconds": 0.05}} for n in range(3)
            ]
            turn = await run.submit({"calls": calls})
            return list(turn.calls)

    found = asyncio.run(main())

    ended = [call.ended or inf for call in found]
    begun = [call.started or 0.0 for call in found]
    assert begun[1] >= ended[0]
    assert begun[2] >= ended[1]


def test_arguments_that_cannot_be_pickled_are_a_failure_that_did_nothing() -> None:
    async def main() -> CallView:
        tools = [isolated(troublesome.echo, bound=("value",))]
        bound = {"value": lambda: None}
        async with Engine(tools, bound=bound) as engine, engine.run("r") as run:
            turn = await run.submit({"calls": [{"id": "e", "tool": "echo"}]})
            return turn.calls[0]

    call = asyncio.run(main())

    assert "cannot be handed to a process" in failure(call).message
    assert failure(call).happened is Happened.NOTHING


def test_an_exception_that_cannot_be_pickled_keeps_its_name_and_text() -> None:
    (call,) = ask(isolated(troublesome.raise_local))

    assert "Awkward: cannot travel" in failure(call).message


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"isolation": "moon"}, "isolation='moon' is none"),
        ({"memory_mb": 5}, "memory_mb= limits a process"),
        ({"cpu_seconds": 5, "isolation": "thread"}, "cpu_seconds= limits a process"),
        ({"isolation": "process", "memory_mb": 0}, "memory_mb=0 is no size"),
        ({"isolation": "process", "cpu_seconds": -1}, "cpu_seconds=-1 is no time"),
        ({"idle_timeout": 3}, "give it a parameter annotated ToolContext"),
        ({"total_timeout": 0}, "total_timeout=0 is no time"),
    ],
)
def test_what_a_tool_says_of_its_isolation_is_checked(said: dict[str, Any], told: str) -> None:
    with pytest.raises(ToolError, match=told):
        tool(troublesome.echo, **said)


def test_only_what_another_process_can_import_runs_in_one() -> None:
    with pytest.raises(ToolError, match="another process can import"):
        tool(lambda: None, name="inner", isolation="process")
    with pytest.raises(ToolError, match="a coroutine function runs in the event loop"):
        tool(troublesome.wait, isolation="thread")
    with pytest.raises(ToolError, match="idle_timeout=-1 is no time"):
        tool(troublesome.report, idle_timeout=-1)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(OSError):  # A zombie of the fork server's is no process any more.
        return ") Z" in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return True
