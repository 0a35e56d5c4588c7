"""Secrets: found nowhere in the bytes of any file, nor in anything that a provider is given."""

# Turns, messages and rows are JSON here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportPrivateUsage=false
# ruff: noqa: S105, S106 - what is kept secret here is made up

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel, Field, SecretBytes, SecretStr

from laneway import (
    Bound,
    Effect,
    Engine,
    Policy,
    Tool,
    ToolContext,
    ToolFailed,
    plan_tool,
    tool,
)
from laneway.engine.run import Run
from laneway.engine.secrets.forms import forms
from laneway.engine.secrets.marks import MARK, Secret
from laneway.engine.turn import Turn
from laneway.errors import UsageError
from laneway.facts import ApprovalAsked, AttemptEnded, CallQueued, HolderStopped
from laneway.outcomes import Code, Happened, Success
from laneway.states import State
from laneway.testing.scripted import Block, Do, Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, failure, plan, states, values

TOKEN = 'sk-live/"9f+é\\Zq7'
"""A secret that looks different in JSON, in Python, in a URL and in base64."""
PASSWORD = "hunter2 ünd 'more"


def call(name: str, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": name, "tool": tool_name, "arguments": arguments}


def reveals(text: str | bytes, secret: str) -> list[str]:
    """The forms in which a secret stands in a text."""
    raw = text.encode() if isinstance(text, str) else text
    return [form for form in forms(secret) if form.encode() in raw]


def files(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


async def until(met: Callable[[], bool]) -> None:
    """Let virtual time pass until something is so."""
    while not met():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)


class Kept:
    """A journal on disk, and all that its files held whenever somebody looked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "runs.db"
        self.seen: list[bytes] = []

    def look(self) -> None:
        self.seen += files(self.folder).values()

    def reveals(self, *secrets: str) -> list[str]:
        self.look()
        assert sum(map(len, self.seen)) > 4000
        return [form for raw in self.seen for one in secrets for form in reveals(raw, one)]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def drive(kept: Kept, tools: list[Any], *replies: Any, **options: Any) -> list[Turn]:
    """Submit replies one after the other, on a real file; answers every question with yes."""

    async def main() -> list[Turn]:
        turns: list[Turn] = []
        engine = Engine(tools, journal=kept.path, **options)
        async with engine, engine.run("r") as run:
            for reply in replies:
                turn = await run.submit(reply, wait=False)
                waiting = asyncio.create_task(turn.wait())
                while not waiting.done():
                    for question in run.approvals:
                        assert not reveals(json.dumps(question.arguments), TOKEN)
                        await run.approve(question.id, by="ann")
                    kept.look()
                    assert not reveals(repr(run.explain()) + repr(engine.status()), TOKEN)
                    await asyncio.wait([waiting], timeout=0.01)
                await turn.close()
                turns.append(turn)
            given = json.dumps([run.history(), engine.definitions("openai-chat")])
            given += json.dumps(run.history(), ensure_ascii=False)
            for one in (TOKEN, PASSWORD):
                assert not reveals(given, one), "a provider is given a secret"
            assert not reveals(repr([turn.outcomes for turn in turns]), TOKEN)
            kept.look()
        return turns

    return asyncio.run(main())


# What the host binds


@tool(effect=Effect.READ, claims=[], retries=1)
async def leak(how: str, token: Annotated[str, Bound()], context: ToolContext) -> Any:
    """Say the token in one way or another."""
    assert TOKEN not in repr(context)
    match how:
        case "value":
            return f"the token is {token}."
        case "json":
            return {"headers": json.dumps({"authorization": token}), token: [token, 1]}
        case "url":
            return f"https://x.org/?t={quote(token, safe='')}&u={quote(token).lower()}"
        case "base64":
            basic = base64.b64encode(f"user:{token}".encode()).decode()
            return [basic, base64.urlsafe_b64encode(token.encode()).decode(), token.encode().hex()]
        case "python":
            return repr({"token": token, "raw": token.encode()})
        case "raised":
            raise RuntimeError(f"401 for token {token}")
        case "failed":
            raise ToolFailed(f"no: {token}", hint=f"not with {token}", happened=Happened.NOTHING)
        case "group":
            raise ExceptionGroup("all", [ValueError(token), TimeoutError(repr(token))])
        case "transient":
            raise ConnectionResetError(f"reset while {token} was sent")
        case _:
            raise ValueError("x" * 3990 + token + "y" * 100)


WAYS = ("value", "json", "url", "base64", "python", "raised", "failed", "group", "transient", "cut")


def test_what_the_host_binds_is_found_nowhere_however_a_tool_says_it(kept: Kept) -> None:
    reply = plan(*(call(how, "leak", how=how) for how in WAYS))

    (turn,) = drive(kept, [leak], reply, bound={"token": TOKEN})

    assert kept.reveals(TOKEN) == []
    assert values(turn)["value"] == f"the token is {MARK}."
    assert values(turn)["json"][MARK] == [MARK, 1]
    assert failure(turn, "raised").message == f"leak raised RuntimeError: 401 for token {MARK}"
    assert failure(turn, "failed").hint == f"not with {MARK}"
    assert failure(turn, "cut").message.endswith(f"{'x' * 20}{MARK}… (107 more characters)")
    assert states(turn)["transient"] is State.FAILED


def test_a_secret_that_was_cut_off_is_not_told_in_part() -> None:
    long = "abcdefgh" * 10

    async def fail(token: Annotated[str, Bound()]) -> None:
        raise ValueError("x" * 3950 + token)

    theatre = Theatre(Stage(), tool(fail, effect=Effect.READ), bound={"token": long})
    turn = theatre.play(plan(call("a", "fail")))

    assert "abcd" not in failure(turn, "a").message
    assert MARK in failure(turn, "a").message


def test_the_late_value_of_a_tool_is_kept_without_what_the_host_binds() -> None:
    stage = Stage()
    late = stage.tool(
        "late",
        Block(5),
        Do(lambda given: f"too late: {given['token']}"),
        schema={"properties": {"token": {}}},
        bound=["token"],
        sync=True,
        timeout=1,
    )
    theatre = Theatre(stage, late, bound={"token": TOKEN})

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "late")))
        await asyncio.sleep(10)

    theatre.enter(host)

    (stopped,) = theatre.kept(HolderStopped)
    assert stopped.late == f"too late: {MARK}"


def test_the_cause_of_a_retry_is_kept_without_what_the_host_binds() -> None:
    stage = Stage()
    theatre = Theatre(stage, leak, bound={"token": TOKEN})
    theatre.play(plan(call("a", "leak", how="transient")))

    (ended,) = theatre.kept(AttemptEnded)
    assert ended.cause == f"ConnectionResetError: reset while {MARK} was sent"


def test_values_in_whatever_the_host_binds_are_found_nowhere() -> None:
    class Settings(BaseModel):
        key: SecretStr
        hosts: list[str]

    given = {
        "settings": Settings(key=SecretStr("key-of-the-model"), hosts=["host-one"]),
        "raw": b"\xff\xfe-raw-bytes",
        "text": b"text-of-bytes",
        "more": {"deep": [("in-a-tuple",), None, 5]},
    }

    async def show(settings: Any, raw: Any, text: Any, more: Any) -> Any:
        return [
            settings.key.get_secret_value(),
            *settings.hosts,
            raw.hex(),
            text.decode(),
            more["deep"][0][0],
            "kept",
        ]

    one = tool(show, effect=Effect.READ, bound=("settings", "raw", "text", "more"))
    turn = Theatre(Stage(), one, bound=given).play(plan(call("a", "show")))

    assert values(turn)["a"] == [MARK] * 5 + ["kept"]


def test_what_a_tool_may_speak_of_is_bound_but_no_secret() -> None:
    async def where(folder: Annotated[str, Bound(secret=False)]) -> str:
        return f"{folder}/a.py"

    theatre = Theatre(Stage(), tool(where, effect=Effect.READ), bound={"folder": "/srv/files"})
    turn = theatre.play(plan(call("a", "where")), run={"settings": {"folder": "/srv/files"}})

    assert values(turn) == {"a": "/srv/files/a.py"}
    assert turn.call("a").record.arguments == {}


def test_settings_that_hold_what_the_host_binds_are_refused_before_anything_is_written() -> None:
    theatre = Theatre(Stage(), leak, bound={"token": TOKEN})

    async def host(run: Run) -> None:
        raise AssertionError("the run cannot be entered")

    told = (
        r"settings= of run 'r' holds what is bound to 'token', and would be written down; leave "
        r"it out, or declare it as no secret: token: Annotated\[…, Bound\(secret=False\)\]"
    )
    with pytest.raises(UsageError, match=told) as refused:
        theatre.enter(host, run={"settings": {"key": f"x{TOKEN}"}})

    assert TOKEN not in str(refused.value)
    assert theatre.facts == []


def test_what_the_host_says_later_is_kept_without_secrets() -> None:
    stage = Stage()
    lost = stage.tool("lost", Raise(ConnectionResetError()), effect=Effect.EXTERNAL)
    theatre = Theatre(stage, leak, lost, bound={"token": TOKEN})

    async def host(run: Run) -> list[Any]:
        await run.say(f"I use {TOKEN}")
        await run.say({"role": "user", "content": [{"type": "text", "text": TOKEN}]})
        await run.submit(plan(call("a", "lost")), wait=False)
        await run.finish()
        await run.settle("a", value=f"receipt for {TOKEN}")
        return run.history()

    told = theatre.enter(host)

    assert not reveals(repr(theatre.facts), TOKEN)
    assert not reveals(json.dumps(told), TOKEN)
    assert told[0]["content"] == f"I use {MARK}"
    assert theatre.enter(lambda run: asyncio.sleep(0, run.view.calls)) is not None


def test_a_body_passes_what_it_was_bound_to_on_and_nothing_of_it_is_kept(kept: Kept) -> None:
    got: list[Any] = []

    @tool(effect=Effect.READ, claims=[])
    async def inner(header: str, n: int) -> dict[str, Any]:
        got.append((header, n))
        return {"echo": header}

    @tool(effect=Effect.READ, claims=[])
    async def outer(token: Annotated[str, Bound()], context: ToolContext) -> str:
        given = await context.invoke("inner", header=f"Bearer {token}", n=1)
        got.append(given)
        return "done"

    (turn,) = drive(kept, [inner, outer], plan(call("a", "outer")), bound={"token": TOKEN})

    assert values(turn) == {"a": "done"}
    assert got == [(f"Bearer {TOKEN}", 1), {"echo": f"Bearer {TOKEN}"}]
    assert kept.reveals(TOKEN) == []


# Arguments


class Login(BaseModel):
    user: str
    password: SecretStr
    pin: Annotated[int, Secret] = 0


@tool(effect=Effect.WRITE, claims=["write account:{login}", "lane:logins"])
async def log_in(login: Login, note: str = "") -> str:
    """Log in."""
    assert login.password.get_secret_value() == PASSWORD
    return f"{login.user} is in with {login.password.get_secret_value()} ({note})"


LOGIN = {"user": "ann", "password": PASSWORD, "pin": 80443}
SHOWN = {"user": "ann", "password": MARK, "pin": MARK}


def anthropic(arguments: Any, *, text: str = "") -> dict[str, Any]:
    blocks: list[Any] = [
        {"type": "thinking", "thinking": f"I take {text}", "signature": "sig"},
        {"type": "text", "text": f"I log in {text}"},
        {"type": "tool_use", "id": "a", "name": "log_in", "input": arguments},
    ]
    return {"type": "message", "role": "assistant", "id": "msg_1", "content": blocks}


def openai(*calls: tuple[str, str, str], key: str = "") -> dict[str, Any]:
    entries = [
        {"id": name, "type": "function", "function": {"name": of, "arguments": written}}
        for name, of, written in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": entries}
    return {"id": key or "cmpl", "choices": [{"message": message, "finish_reason": "tool_calls"}]}


def older(written: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "function_call": {"name": "log_in", "arguments": written},
    }


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(anthropic({"login": LOGIN}, text=PASSWORD), id="anthropic"),
        pytest.param(anthropic({"login": json.dumps(LOGIN)}), id="doubly encoded"),
        pytest.param(openai(("a", "log_in", json.dumps({"login": LOGIN}))), id="openai"),
        pytest.param(older(json.dumps({"login": LOGIN})), id="function call"),
        pytest.param(plan(call("a", "log_in", login=LOGIN)), id="plan"),
        pytest.param(
            plan(call("a", "log_in", login=LOGIN, note=f"with {PASSWORD}")), id="said twice"
        ),
        pytest.param(
            plan(call("a", "log_in", login={**LOGIN, "pin": "80443"})), id="coerced beside a secret"
        ),
    ],
)
def test_what_the_model_gives_for_a_secret_is_found_nowhere(kept: Kept, reply: Any) -> None:
    (turn,) = drive(kept, [log_in], reply)

    assert kept.reveals(PASSWORD) == []
    assert not any(b"80443" in raw for raw in kept.seen)
    (view,) = turn.calls
    assert view.state is State.SUCCEEDED
    assert view.record.arguments["login"] == SHOWN
    assert isinstance(view.outcome, Success)
    assert view.outcome.value.startswith(f"ann is in with {MARK}")
    assert "80443" not in json.dumps(turn.messages)


def test_the_model_meets_marks_in_its_own_calls(kept: Kept) -> None:
    (turn,) = drive(kept, [log_in], anthropic({"login": LOGIN}, text=PASSWORD))

    text, use = turn.messages[0]["content"]
    assert text == {"type": "text", "text": f"I log in {MARK}"}
    assert use["input"] == {"login": SHOWN}


def test_a_claim_of_a_secret_is_as_wide_as_it_may_become() -> None:
    theatre = Theatre(Stage(), log_in)
    turn = theatre.play(plan(call("a", "log_in", login=LOGIN)))

    claims = {claim.resource for claim in turn.call("a").record.claims}
    assert claims == {"run:r", "account:", "lane:logins"}


def test_policies_and_humans_see_marks_and_say_them() -> None:
    class Talkative(Policy):
        def decide(self, question: Any) -> Any:
            return super().decide(question)

    asked: list[Any] = []

    @tool(effect=Effect.EXTERNAL, approval=True)
    async def send(to: str, password: Annotated[str, Secret]) -> str:
        asked.append(password)
        return "sent"

    theatre = Theatre(Stage(), send, policy=Talkative())

    async def host(run: Run) -> Turn:
        turn = await run.submit(plan(call("a", "send", to="x", password=PASSWORD)), wait=False)
        (question,) = run.approvals
        assert question.arguments == {"to": "x", "password": MARK}
        await run.approve("a", by="ann", reason=f"I know {PASSWORD}")
        await turn.wait()
        return turn

    turn = theatre.enter(host)

    assert values(turn) == {"a": "sent"}
    assert asked == [PASSWORD]
    assert not reveals(repr(theatre.facts), PASSWORD)
    (one,) = theatre.kept(ApprovalAsked)
    assert one.arguments == {"to": "x", "password": MARK}


@pytest.mark.parametrize(
    ("password", "told"),
    [
        (8044, f"password: should be a valid string, met {MARK}"),
        ("abc", "at least 8 characters"),
        ([["ab", 7]], f"met {MARK}"),
        (PASSWORD * 20, "at most 100 characters"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_arguments_that_do_not_fit_are_refused_without_showing_them(
    password: Any, told: str, strict: bool
) -> None:
    async def enter(password: Annotated[str, Secret, Field(min_length=8, max_length=100)]) -> str:
        return password

    theatre = Theatre(Stage(), tool(enter, effect=Effect.READ, strict=strict))
    turn = theatre.play(plan(call("a", "enter", password=password)))

    message = failure(turn, "a").message
    assert codes(turn) == {"a": Code.INVALID_ARGUMENTS}
    for secret in ("8044", '"abc', "ab", PASSWORD[:7]) if password != "abc" else ('"abc',):
        assert secret not in message.replace("enter was not run", "").replace("be a valid", "")
    assert told.replace(MARK, "") in message.replace(MARK, "")
    assert turn.call("a").record.arguments == {"password": MARK}
    assert turn.messages[0]["calls"][0]["arguments"] == {"password": MARK}


def test_a_schema_says_what_is_secret_in_its_own_words(kept: Kept) -> None:
    schema = {
        "properties": {
            "accounts": {"type": "array", "items": {"$ref": "#/$defs/account"}},
            "key": {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
            "extra": {"additionalProperties": {"writeOnly": True, "minLength": 3}},
            "plain": {"type": "string"},
        },
        "$defs": {
            "account": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "secret": {"writeOnly": True},
                    "below": {"$ref": "#/$defs/account"},
                },
            }
        },
    }
    seen: list[Mapping[str, Any]] = []

    async def store(**given: Any) -> str:
        seen.append(given)
        return f"stored {given}"

    given = {
        "accounts": [{"name": "a", "secret": [PASSWORD, 80443]}, {"name": "b"}],
        "key": TOKEN,
        "extra": {"one": PASSWORD, "two": 80443},
        "plain": "plain",
    }
    one = Tool.from_schema(store, name="store", schema=schema, effect=Effect.WRITE)
    broken = {**given, "extra": {"one": "ab"}, "accounts": [{"secret": PASSWORD}]}
    good, bad = drive(
        kept, [one], plan(call("a", "store", **given)), plan(call("b", "store", **broken))
    )

    assert seen == [given]
    assert kept.reveals(PASSWORD, TOKEN) == []
    assert good.call("a").record.arguments == {
        "accounts": [{"name": "a", "secret": MARK}, {"name": "b"}],
        "key": MARK,
        "extra": {"one": MARK, "two": MARK},
        "plain": "plain",
    }
    message = failure(bad, "b").message
    assert "accounts[0].name is missing" in message
    assert '"ab"' not in message


def test_arguments_that_cannot_be_read_are_not_kept_where_they_may_hold_a_secret(
    kept: Kept,
) -> None:
    broken = json.dumps({"login": LOGIN})[:-1]
    cut = openai(("a", "log_in", broken), key="second")
    cut["choices"][0]["finish_reason"] = "length"
    ended = {**anthropic({"login": LOGIN}), "id": "third"}
    ended["stop_reason"] = "max_tokens"
    first, second, third = drive(kept, [log_in], openai(("a", "log_in", broken)), cut, ended)

    assert kept.reveals(PASSWORD) == []
    assert first.call("a").record.text == MARK
    assert failure(first, "a").message == (
        "The arguments are not one strict JSON object; it was not run. They are not shown, since "
        "log_in takes secrets."
    )
    assert codes(second) == codes(third) == {"a": Code.TRUNCATED_CALL}


def test_a_tool_that_there_is_not_hides_what_any_tool_hides(kept: Kept) -> None:
    (turn,) = drive(kept, [log_in], plan(call("a", "log_inn", login=LOGIN)))

    assert codes(turn) == {"a": Code.UNKNOWN_TOOL}
    assert kept.reveals(PASSWORD) == []
    assert turn.call("a").record.arguments == {"login": SHOWN}


def test_a_mark_that_a_model_copies_is_refused_with_the_way_out() -> None:
    theatre = Theatre(Stage(), log_in)
    turn = theatre.play(plan(call("a", "log_in", login={**LOGIN, "password": MARK})))

    assert codes(turn) == {"a": Code.INVALID_ARGUMENTS}
    assert failure(turn, "a").message == (
        "log_in was not run: what was given for login holds the mark that stands for a secret, not "
        "the secret."
    )
    assert "refer to it there: ${call.field}" in failure(turn, "a").hint


def test_a_secret_default_is_not_shown_to_the_model() -> None:
    async def enter(password: Annotated[str, Secret] = PASSWORD, n: int = 3) -> str:
        return password

    properties = tool(enter).spec.schema["properties"]

    assert "default" not in properties["password"]
    assert properties["n"]["default"] == 3


def test_two_calls_with_secrets_are_never_taken_for_the_same() -> None:
    stage = Stage()
    entered: list[str] = []

    @tool(effect=Effect.PURE)
    async def derive(password: Annotated[str, Secret]) -> int:
        entered.append(password)
        await asyncio.sleep(1)
        return len(password)

    theatre = Theatre(stage, derive)
    turn = theatre.play(
        plan(call("a", "derive", password="one-one"), call("b", "derive", password="two-two-two"))
    )

    assert values(turn) == {"a": 7, "b": 11}
    assert entered == ["one-one", "two-two-two"]


# Results


class Session(BaseModel):
    token: SecretStr
    expires: int
    pin: Annotated[int, Secret]


@tool(effect=Effect.READ, claims=[])
async def open_session(n: int = 0) -> Session:
    """Open a session."""
    return Session(token=SecretStr(TOKEN), expires=60, pin=80443)


@tool(effect=Effect.WRITE, claims=["write file:{path}"])
async def use(
    header: str, pin: int = 0, path: str = "x", context: ToolContext | None = None
) -> str:
    """Use a session."""
    assert context is not None
    used.append((header, pin, path))
    assert TOKEN not in json.dumps(context.arguments)
    return f"used {header}"


used: list[tuple[str, int, str]] = []


@pytest.fixture(autouse=True)
def nothing_used() -> None:
    used.clear()


SESSION = {"token": MARK, "expires": 60, "pin": MARK}


def test_a_secret_result_flows_to_dependents_and_is_found_nowhere(kept: Kept) -> None:
    reply = plan(
        call("one", "open_session"),
        call(
            "two",
            "use",
            header="Bearer ${one.token}!",
            pin={"$from": "one", "path": "pin"},
            path="${one.token}",
        ),
    )
    later = plan(
        call("three", "use", header="again ${one.token}", pin={"$from": "one", "path": "pin"})
    )

    first, second = drive(kept, [open_session, use], reply, later)

    assert used == [(f"Bearer {TOKEN}!", 80443, TOKEN), (f"again {TOKEN}", 80443, "x")]
    assert values(first) == {"one": SESSION, "two": f"used Bearer {MARK}!"}
    assert values(second) == {"three": f"used again {MARK}"}
    assert kept.reveals(TOKEN) == []
    assert not any(b"80443" in raw for raw in kept.seen)


def test_an_argument_that_a_secret_flowed_into_is_shown_with_the_mark_where_it_stands() -> None:
    ask = Tool.of(use.function, name="use", effect=Effect.WRITE, claims=[], approval=True)
    theatre = Theatre(Stage(), open_session, ask)
    reply = plan(
        call("one", "open_session"),
        call("two", "use", header="Bearer ${one.token}!", pin={"$from": "one", "path": "pin"}),
    )

    async def host(run: Run) -> Turn:
        turn = await run.submit(reply, wait=False)
        waiting = asyncio.create_task(turn.wait())
        await until(lambda: bool(run.approvals))
        await run.approve("two")
        await waiting
        return turn

    turn = theatre.enter(host)

    (asked,) = theatre.kept(ApprovalAsked)
    assert asked.arguments == {"header": f"Bearer {MARK}!", "pin": MARK}
    assert states(turn)["two"] is State.SUCCEEDED


def test_final_claims_of_a_secret_that_flowed_in_stay_wide() -> None:
    theatre = Theatre(Stage(), open_session, use)
    theatre.play(
        plan(call("one", "open_session"), call("two", "use", header="h", path="d/${one.token}"))
    )

    queued = [fact for fact in theatre.kept(CallQueued) if fact.call == "t1.2"]
    assert len(queued) == 1
    assert not reveals(repr(theatre.facts), TOKEN)
    assert used == [("h", 0, f"d/{TOKEN}")]


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("return", TOKEN, MARK),
        ("return.token", {"token": TOKEN, "n": 1}, {"token": MARK, "n": 1}),
        ("return.items.token", {"items": [{"token": TOKEN}]}, {"items": [{"token": MARK}]}),
        ("return.*", {"a": 1, "b": None}, {"a": MARK, "b": None}),
        ("return.raw", {"raw": SecretBytes(b"raw-bytes")}, {"raw": MARK}),
    ],
)
def test_a_path_names_what_is_secret_in_a_plain_result(path: str, value: Any, shown: Any) -> None:
    async def give() -> Any:
        return value

    theatre = Theatre(Stage(), tool(give, effect=Effect.READ, secret=[path]))

    assert values(theatre.play(plan(call("a", "give")))) == {"a": shown}


def test_what_a_secret_result_returns_too_late_is_not_told() -> None:
    stage = Stage()
    late = stage.tool(
        "late", Block(5), Return("a-new-token"), sync=True, timeout=1, secret=["return"]
    )
    theatre = Theatre(stage, late)

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "late")))
        await asyncio.sleep(10)

    theatre.enter(host)

    assert [one.late for one in theatre.kept(HolderStopped)] == ["returned a secret"]


class Raising(BaseModel):
    token: SecretStr

    def model_dump(self, **_: Any) -> dict[str, Any]:
        raise ValueError(self.token.get_secret_value())


def test_a_result_whose_own_code_raises_fails_without_a_word_of_it() -> None:
    async def give() -> Raising:
        return Raising(token=SecretStr(TOKEN))

    theatre = Theatre(Stage(), tool(give, effect=Effect.READ))
    turn = theatre.play(plan(call("a", "give")))

    assert codes(turn) == {"a": Code.RESULT_NOT_SERIALISABLE}
    assert not reveals(repr(theatre.facts), TOKEN)


def test_a_result_that_has_no_secret_this_time_is_told_as_it_is() -> None:
    async def give() -> dict[str, Any]:
        return {"token": None, "n": 1}

    theatre = Theatre(Stage(), tool(give, effect=Effect.READ, secret=["return.token"]))

    assert values(theatre.play(plan(call("a", "give")))) == {"a": {"token": None, "n": 1}}


def test_resolved_arguments_that_do_not_fit_are_refused_without_the_secret() -> None:
    theatre = Theatre(Stage(), open_session, use)
    turn = theatre.play(
        plan(
            call("one", "open_session"),
            call("two", "use", header="h", pin={"$from": "one", "path": "token"}),
        )
    )

    assert codes(turn) == {"two": Code.INVALID_ARGUMENTS}
    assert not reveals(repr(theatre.facts), TOKEN)


def test_a_result_with_secrets_that_json_cannot_tell_fails_as_any_other() -> None:
    async def give() -> Any:
        return {"token": TOKEN, "x": object()}

    theatre = Theatre(Stage(), tool(give, effect=Effect.READ, secret=["return.token"]))
    turn = theatre.play(plan(call("a", "give")))

    assert codes(turn) == {"a": Code.RESULT_NOT_SERIALISABLE}
    assert not reveals(repr(theatre.facts), TOKEN)


# Plans and calls within calls


def test_secrets_in_a_submitted_plan_are_found_nowhere(kept: Kept) -> None:
    calls = [
        call("in", "log_in", login=LOGIN),
        call("one", "open_session"),
        {
            **call("two", "use", header="${one.token}", pin={"$from": "one", "path": "pin"}),
            "after": ["in"],
        },
    ]
    reply = openai(("p", "plan", json.dumps({"calls": calls})))
    later = plan(
        call(
            "three",
            "use",
            header="${p.results.one.value.token}",
            pin={"$from": "p", "path": "results.one.value.pin"},
        )
    )

    first, second = drive(kept, [log_in, open_session, use, plan_tool()], reply, later)

    assert values(first)["p"]["results"]["one"] == {"value": SESSION}
    assert values(second) == {"three": f"used {MARK}"}
    assert used == [(TOKEN, 80443, "x")] * 2
    assert kept.reveals(PASSWORD, TOKEN) == []
    assert not any(b"80443" in raw for raw in kept.seen)


@pytest.mark.parametrize(
    "calls",
    [
        [call("a", "log_in", login={**LOGIN, "pin": "x"})],
        [call("a", "nothing"), call("b", "log_in", login=LOGIN)],
        [
            {"id": "a", "tool": "log_in", "arguments": json.dumps({"login": LOGIN})[:-1]},
            call("b", "no"),
        ],
        [f"log in with {PASSWORD}"],
        json.dumps([call("a", "log_in", login=LOGIN)])[:-1],
    ],
)
def test_a_plan_that_is_refused_shows_no_secret(kept: Kept, calls: Any) -> None:
    (turn,) = drive(
        kept, [log_in, plan_tool()], openai(("p", "plan", json.dumps({"calls": calls})))
    )

    assert states(turn)["p"] is State.FAILED
    assert kept.reveals(PASSWORD) == []


def test_a_body_gets_the_secrets_of_what_it_calls_and_none_are_kept(kept: Kept) -> None:
    got: list[Any] = []

    @tool(effect=Effect.WRITE, claims=[])
    async def work(context: ToolContext) -> str:
        got.append(await context.invoke("log_in", login=LOGIN))
        session = await context.invoke("open_session")
        got.append(session)
        got.append(await context.invoke("use", header=session["token"], path="y"))
        return f"worked with {session['token']}"

    (turn,) = drive(kept, [log_in, open_session, use, work], plan(call("a", "work")))

    assert values(turn) == {"a": f"worked with {MARK}"}
    assert got[1] == {"token": TOKEN, "expires": 60, "pin": 80443}
    assert used == [(TOKEN, 0, "y")]
    assert kept.reveals(TOKEN, PASSWORD) == []


# After a crash


def crashed(theatre: Theatre, stage: Stage, reply: Any, state: State, name: str = "a") -> None:
    """Let the process die when a call has come into a state."""

    async def host(run: Run) -> None:
        await run.submit(reply, wait=False)
        await until(lambda: run.turns[-1].call(name).state is state)
        theatre.crash()

    journal = theatre.journal
    theatre.enter(host)
    assert theatre.journal is not journal


def secret_tool(stage: Stage, *steps: Any, **declared: Any) -> Tool:
    schema = {"properties": {"to": {}, "password": {"writeOnly": True}}}
    return stage.tool("send", *(steps or (Sleep(5), Return("ok"))), schema=schema, **declared)


@pytest.mark.parametrize(
    ("died", "effect", "declared", "state", "code", "happened"),
    [
        (
            State.AWAITING_APPROVAL,
            Effect.WRITE,
            {"approval": True},
            State.FAILED,
            Code.INVALID_ARGUMENTS,
            Happened.NOTHING,
        ),
        (State.RUNNING, Effect.READ, {}, State.FAILED, Code.INVALID_ARGUMENTS, Happened.NOTHING),
        (
            State.RUNNING,
            Effect.WRITE,
            {"idempotent": True},
            State.FAILED,
            Code.INVALID_ARGUMENTS,
            Happened.UNKNOWN,
        ),
        (State.RUNNING, Effect.WRITE, {}, State.UNCERTAIN, Code.OUTCOME_UNKNOWN, Happened.UNKNOWN),
    ],
)
def test_a_call_whose_secret_was_lost_is_not_run_again(
    died: State,
    effect: Effect,
    declared: dict[str, Any],
    state: State,
    code: Code,
    happened: Happened,
) -> None:
    stage = Stage()
    theatre = Theatre(stage, secret_tool(stage, effect=effect, **declared))
    crashed(theatre, stage, plan(call("a", "send", to="x", password=PASSWORD)), died)
    entered = stage.entered["send"]

    turn = theatre.finish()

    assert stage.entered["send"] == entered
    assert states(turn) == {"a": state}
    found = failure(turn, "a")
    assert (found.code, found.happened) == (code, happened)
    if code is Code.INVALID_ARGUMENTS:
        assert found.message.startswith(
            "send was not run: what was given for password is secret and kept in memory only, and "
            "the process that had it has ended."
        )
        assert found.hint == "Call it again with the value itself, or ask the user for it."


def test_a_call_that_had_succeeded_keeps_its_success() -> None:
    stage = Stage()
    quick = secret_tool(stage, Return("ok"), effect=Effect.READ)
    slow = stage.tool("slow", Sleep(20), Return("late"))
    theatre = Theatre(stage, quick, slow)
    reply = plan(call("a", "send", password=PASSWORD), call("b", "slow"))
    crashed(theatre, stage, reply, State.SUCCEEDED)

    turn = theatre.finish()

    assert values(turn) == {"a": "ok", "b": "late"}
    assert stage.entered["send"] == 1


def test_a_reference_to_a_secret_that_was_lost_leads_nowhere_and_says_so() -> None:
    stage = Stage()
    slow = stage.tool("slow", Sleep(20), Return("late"))
    theatre = Theatre(stage, open_session, use, slow)
    reply = plan(
        call("a", "open_session"),
        call("wait", "slow"),
        {**call("b", "use", header="Bearer ${a.token}"), "after": ["wait"]},
        {**call("c", "use", header="${a.expires} s"), "after": ["wait"]},
        {**call("d", "use", header="${a.token.below}"), "after": ["wait"]},
        {**call("e", "use", header="${a}"), "after": ["wait"]},
    )
    crashed(theatre, stage, reply, State.SUCCEEDED)

    turn = theatre.finish()

    assert values(turn)["c"] == "used 60 s"
    assert {name: codes(turn)[name] for name in "bde"} == dict.fromkeys("bde", Code.BAD_REFERENCE)
    assert failure(turn, "b").message == (
        "${a.token} leads to a secret, which was kept in memory only, and the process that had it "
        "has ended."
    )
    assert failure(turn, "b").hint == "Call that tool again, and refer to its new result."


def test_a_secret_that_is_a_reference_is_resolved_again_after_a_crash() -> None:
    stage = Stage()
    source = stage.tool("source", Return("from elsewhere"))
    slow = stage.tool("slow", Sleep(20))
    got: list[Any] = []

    def note(given: Mapping[str, Any]) -> str:
        got.append(given["password"])
        return "ok"

    take = secret_tool(stage, Do(note))
    theatre = Theatre(stage, source, slow, take)
    reply = plan(
        call("a", "source"),
        call("wait", "slow"),
        {**call("b", "send", password="${a}"), "after": ["wait"]},
        {**call("c", "send", password={"$from": "a"}), "after": ["wait"]},
    )
    crashed(theatre, stage, reply, State.SUCCEEDED)

    turn = theatre.finish()

    assert states(turn)["b"] is states(turn)["c"] is State.SUCCEEDED
    assert got == ["from elsewhere"] * 2
    assert turn.call("b").record.arguments == {"password": "${a}"}


@pytest.mark.parametrize("key", ["", "mine"])
def test_the_same_reply_submitted_after_a_crash_is_the_recorded_turn(key: str) -> None:
    stage = Stage()
    theatre = Theatre(stage, log_in)
    reply = anthropic({"login": LOGIN}, text=PASSWORD)
    first = theatre.enter(lambda run: run.submit(reply, key=key))

    async def host(run: Run) -> tuple[int, Turn]:
        turn = await run.submit(reply, key=key)
        return len(run.turns), turn

    turns, second = theatre.enter(host)

    assert turns == 1
    assert values(first) == values(second)


@pytest.mark.parametrize(
    ("effect", "entered", "code"), [(Effect.READ, 2, None), (Effect.WRITE, 1, Code.BAD_REFERENCE)]
)
def test_a_body_that_is_entered_again_asks_for_a_lost_secret_again_only_where_that_is_safe(
    effect: Effect, entered: int, code: Code | None
) -> None:
    stage = Stage()
    got: list[Any] = []
    mint = stage.tool("mint", Return("a-fresh-token"), effect=effect, secret=["return"])

    @tool(effect=Effect.WRITE, idempotent=True, claims=[])
    async def work(context: ToolContext) -> str:
        try:
            got.append(await context.invoke("mint"))
        except ToolFailed as failed:
            got.append(failed.code)
        await asyncio.sleep(5)
        return "done"

    theatre = Theatre(stage, mint, work)

    async def host(run: Run) -> None:
        await run.submit(plan(call("a", "work")), wait=False)
        await until(lambda: bool(got))
        theatre.crash()

    theatre.enter(host)
    turn = theatre.finish()

    assert states(turn) == {"a": State.SUCCEEDED}
    assert stage.entered["mint"] == entered
    assert got[0] == "a-fresh-token"
    assert got[1] == ("a-fresh-token" if code is None else code)


def test_a_dry_run_shows_marks() -> None:
    theatre = Theatre(Stage(), log_in)

    async def host(run: Run) -> Any:
        return await run._engine.plan(plan(call("a", "log_in", login=LOGIN)))

    preview = theatre.enter(host)

    assert preview.calls[0].arguments == {"login": SHOWN}
    assert not reveals(repr(preview), PASSWORD)


def test_a_large_result_that_is_spilled_holds_no_secret(kept: Kept) -> None:
    @tool(effect=Effect.READ, claims=[])
    async def read(token: Annotated[str, Bound()]) -> dict[str, str]:
        return {"text": f"{'x' * 1_500_000}{token}{'y' * 1_500_000}"}

    (turn,) = drive(kept, [read], plan(call("a", "read")), bound={"token": TOKEN})

    assert kept.reveals(TOKEN) == []
    assert MARK in values(turn)["a"]["text"]


def test_a_run_without_secrets_knows_of_none() -> None:
    stage = Stage()
    theatre = Theatre(stage, stage.tool("free", Return(1)), leak)

    async def host(run: Run) -> Any:
        return run._entered.secrets

    assert theatre.enter(host, bound={"token": "abc"}) is None
