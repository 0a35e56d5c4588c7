"""Secrets against values and classes that were made to get them out."""

# ruff: noqa: S105 - what is kept secret here is made up

import asyncio
import json
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from typer.testing import CliRunner

from laneway import Effect, Engine, tool
from laneway.engine.cli.app import app
from laneway.engine.secrets.hints import of_hint
from laneway.engine.secrets.marks import MARK, Secret
from laneway.engine.secrets.shapes import hidden, keep_nothing
from laneway.engine.secrets.vault import Vault
from laneway.engine.serialise import normalise
from laneway.ids import CallId
from laneway.outcomes import Code, Failure
from laneway.states import State

if TYPE_CHECKING:
    from nowhere import Other  # type: ignore[import-not-found]

TOKEN = "tok-9f3Zq7LmPw82KxYvB4nR6sTd1uGh5cEa0JiOoQ-zzzzEND"

X = TypeVar("X")


@dataclass
class Login:
    user: str
    token: "Annotated[str, Secret]"
    hidden: "SecretStr | Other | None" = None
    also: "Other | None" = None


class Struct(msgspec.Struct):
    token: "Annotated[str, Secret]"
    also: "Other | None" = None


class Box(msgspec.Struct, Generic[X]):
    item: X


@dataclass
class Pair(Generic[X]):
    one: list[X]
    other: int


@dataclass
class Named(Pair[Annotated[str, Secret]]):
    name: str


def told(hint: Any, value: Any) -> Any:
    shape = of_hint(hint)
    assert shape is not None, "no secret was found"
    return hidden(value, shape, keep_nothing)


@pytest.mark.parametrize(
    ("hint", "value", "shown"),
    [
        (
            Login,
            {"user": "u", "token": "t", "hidden": "t", "also": 1},
            {"user": "u", "token": MARK, "hidden": MARK, "also": 1},
        ),
        (Struct, {"token": "t", "also": 1}, {"token": MARK, "also": 1}),
        (Box[Annotated[str, Secret]], {"item": "t"}, {"item": MARK}),
        (Box[Box[SecretStr]], {"item": {"item": "t"}}, {"item": {"item": MARK}}),
        (
            Pair[Annotated[str, Secret]],
            {"one": ["t"], "other": 1},
            {"one": MARK, "other": 1},
        ),
        (
            Named,
            {"one": ["t"], "other": 1, "name": "n"},
            {"one": MARK, "other": 1, "name": "n"},
        ),
        (dict[Annotated[str, Secret], int], {"t": 1}, MARK),
    ],
)
def test_a_secret_is_found_beside_what_cannot_be_resolved_and_in_generic_classes(
    hint: Any, value: Any, shown: Any
) -> None:
    assert told(hint, value) == shown


def test_a_generic_class_that_names_itself_with_ever_other_arguments_comes_to_an_end() -> None:
    class Endless(msgspec.Struct, Generic[X]):
        item: X
        more: "list[Endless[list[X]]] | None" = None

    Endless.__annotations__["more"] = Endless[list[X]] | None  # type: ignore[valid-type]

    assert told(Endless[Annotated[str, Secret]], {"item": "t"}) == {"item": MARK}
    assert of_hint(Endless[int]) is None


def test_a_struct_with_an_annotation_that_cannot_be_resolved_is_a_result_as_any_other() -> None:
    found = normalise(Struct("t"), tool="login")

    assert not isinstance(found, Failure)
    assert found.value == {"token": "t", "also": None}


def by_pydantic(token: str) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python(token)
    return str(caught.value)


@pytest.mark.parametrize(
    "text", [by_pydantic(TOKEN), reprlib.repr(TOKEN), f"no: {TOKEN[:20]}...", f"...{TOKEN[30:]}."]
)
def test_what_three_dots_leave_of_a_secret_is_replaced_too(text: str) -> None:
    vault = Vault()
    vault.learn([TOKEN])

    shown = vault.scrub(text)

    assert MARK in shown
    assert not [TOKEN[at : at + 4] for at in range(len(TOKEN) - 4) if TOKEN[at : at + 4] in shown]


def test_dots_that_cut_nothing_off_stay_and_cost_little() -> None:
    vault = Vault()
    vault.learn([TOKEN])

    for text in ("wait... and … see", "." * 1_000_000, "... …...."):
        assert vault.scrub(text) is text


def files(folder: Path) -> list[bytes]:
    return [one.read_bytes() for one in folder.rglob("*") if one.is_file()]


def test_what_a_human_settles_a_call_with_is_kept_without_its_secrets(tmp_path: Path) -> None:
    plan = {
        "calls": [
            {"id": "a", "tool": "login", "arguments": {}},
            {"id": "b", "tool": "use", "arguments": {"token": "${a.token}"}},
        ]
    }

    @tool(effect=Effect.EXTERNAL, claims=[], secret=["return.token"])
    async def login() -> dict[str, str]:
        raise ConnectionResetError("the reply was lost")

    @tool(effect=Effect.READ, claims=[])
    async def use(token: str) -> str:
        return f"{len(token)} characters"

    async def main() -> Any:
        engine = Engine([login, use], journal=tmp_path / "runs.db")
        async with engine, engine.run("r") as run:
            turn = await run.submit(plan, wait=False)
            while run.view.calls[CallId("t1.1")].state is not State.UNCERTAIN:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
            await run.settle("a", value={"user": "ann", "token": TOKEN})
            await turn.wait()
            assert not [raw for raw in files(tmp_path) if TOKEN.encode() in raw]
            await turn.close()
            return turn.outcomes

    outcomes = asyncio.run(main())

    assert outcomes["a"].value == {"user": "ann", "token": MARK}
    assert outcomes["b"].value == f"{len(TOKEN)} characters"
    assert not [raw for raw in files(tmp_path) if TOKEN.encode() in raw]


def test_a_number_that_pydantic_tells_as_null_is_no_null() -> None:
    class Model(BaseModel):
        some: Any
        other: int | None = None

    class Hiding(Model):
        token: SecretStr

    for model in (
        Model(some=float("nan")),
        Model(some=[{"x": (1, float("inf"))}]),
        Hiding(some=float("nan"), token=SecretStr("t")),
    ):
        found = normalise(model, tool="measure")
        assert isinstance(found, Failure)
        assert found.code is Code.RESULT_NOT_SERIALISABLE
        assert "which JSON cannot say" in found.message
    whole = normalise(Model(some=[None, {"x": (None, 1.5)}]), tool="measure")
    assert not isinstance(whole, Failure)
    assert whole.value == {"some": [None, {"x": [None, 1.5]}], "other": None}


def test_a_secret_in_the_file_of_a_plan_reaches_no_byte_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vaulted.py").write_text(
        "from typing import Annotated\n"
        "from laneway import Effect, Secret, tool\n"
        "@tool(effect=Effect.EXTERNAL)\n"
        "async def ship(target: str, token: Annotated[str, Secret]) -> str:\n"
        "    assert token == 'hunter2-s3cr3t'\n"
        "    return target\n"
    )
    call = {"id": "d", "tool": "ship", "arguments": {"target": "x", "token": "hunter2-s3cr3t"}}
    (tmp_path / "plan.json").write_text(json.dumps({"calls": [call]}))

    done = CliRunner().invoke(
        app, ["run", "plan.json", "--tools", "vaulted", "--run", "p", "--journal", "runs.db"]
    )

    assert done.exit_code == 0, done.output
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("runs.db*"))
    assert b"target" in kept
    assert b"hunter2" not in kept
    assert "hunter2" not in done.output
