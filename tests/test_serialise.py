# Values of every kind are handed over.
# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

import asyncio
import enum
import json
import math
import re
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, overload
from unittest.mock import MagicMock
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from laneway.effects import Effect
from laneway.engine.plain import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES, NotPlainError, plain
from laneway.engine.serialise import canonical, digest, normalise
from laneway.engine.telling import named, place_of
from laneway.outcomes import Code, Failure, Happened, Success

TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)


class Point(BaseModel):
    x: int
    y: Any = None


@dataclass
class Pair:
    left: Any
    right: Any


class Row(msgspec.Struct, rename="camel"):
    row_id: int
    cells: Any = None


class Event(msgspec.Struct, tag="event", tag_field="kind"):
    at: int
    by: str | msgspec.UnsetType = msgspec.UNSET


class Cell(msgspec.Struct, array_like=True):
    x: int
    y: Any = 0


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    HIGH = 7


class Word(str):
    __slots__ = ()


class Number(int):
    pass


class Fraction(float):
    pass


Named = namedtuple("Named", "a b")  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]


def value_of(value: object) -> Any:
    outcome = normalise(value, tool="odd")
    assert isinstance(outcome, Success), outcome
    return outcome.value


def fault_of(value: object, effect: Effect = Effect.EXTERNAL) -> Failure:
    outcome = normalise(value, tool="odd", effect=effect)
    assert isinstance(outcome, Failure)
    assert outcome.code is Code.RESULT_NOT_SERIALISABLE
    assert not outcome.retry
    assert "odd did run" in outcome.message
    assert not re.search(r"0x[0-9a-fA-F]{6}", outcome.message)
    return outcome


@given(VALUES)
def test_what_is_json_comes_back_equal(value: Any) -> None:
    found = value_of(value)

    assert found == value
    assert value_of(found) == found
    assert json.loads(canonical(found)) == found


@given(VALUES)
def test_a_result_is_the_same_after_a_restart(value: Any) -> None:
    outcome = normalise(value, tool="odd")

    raw = msgspec.json.encode(outcome)

    assert msgspec.json.decode(raw, type=Success | Failure) == outcome


@given(st.text(st.characters()))
def test_h_ser_2_every_text_becomes_strict_utf_8_and_keeps_what_is_whole(text: str) -> None:
    found = value_of(text)

    assert found.encode().decode() == found
    assert value_of([text]) == [found]
    assert value_of({text: 1}) == {found: 1}
    if max(text, default="") < "\ud800":
        assert found == text


def test_h_ser_2_half_a_character_is_replaced_always_the_same_way() -> None:
    assert value_of("bold: " + chr(0xDBFF) + " end") == "bold: \ufffd end"
    assert value_of(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\ufffd"
    assert value_of("\ud83d\ude00") == "\U0001f600"
    assert value_of(["\ud800\ud800a"]) == ["\ufffd\ufffda"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("text", "text"),
        ("é", "é"),
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        ((1, "a"), [1, "a"]),
        ({1: "a", "b": 2}, {"1": "a", "b": 2}),
        ({Colour.RED: 1, Level.HIGH: 2, Word("w"): 3}, {"red": 1, "7": 2, "w": 3}),
        ({UUID(int=5): date(2020, 1, 2)}, {str(UUID(int=5)): "2020-01-02"}),
        ({date(2020, 1, 2): 1}, {"2020-01-02": 1}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, "a", (2, 3)}, ["a", 1, [2, 3]]),
        ([frozenset({1})], [[1]]),
        (range(3), [0, 1, 2]),
        (deque(["a"]), ["a"]),
        ({"a": 1, "b": 2}.keys(), ["a", "b"]),
        (Named(1, 2), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (types.MappingProxyType({"a": {"b": 1}}), {"a": {"b": 1}}),
        (Point(x=1, y=Point(x=2)), {"x": 1, "y": {"x": 2, "y": None}}),
        (RootModel[list[int]]([1, 2]), [1, 2]),
        (Pair(1, {2, 1}), {"left": 1, "right": [1, 2]}),
        (Row(1, [Point(x=1)]), {"rowId": 1, "cells": [{"x": 1, "y": None}]}),
        (Event(at=1), {"kind": "event", "at": 1}),
        (Event(at=1, by="me"), {"kind": "event", "at": 1, "by": "me"}),
        (Cell(1, Cell(2)), [1, [2, 0]]),
        (Row(1, b"hi"), {"rowId": 1, "cells": "hi"}),
        (Point(x=1, y=Row(1)), {"x": 1, "y": {"rowId": 1, "cells": None}}),
        (Colour.RED, "red"),
        (Colour.ONE, 1),
        (Level.HIGH, 7),
        (Word("é"), "é"),
        (Number(3), 3),
        (Fraction(0.5), 0.5),
        (date(2020, 1, 2), "2020-01-02"),
        (datetime(2020, 1, 2, 3, 4, tzinfo=UTC), "2020-01-02T03:04:00Z"),
        (time(1, 2), "01:02:00"),
        (timedelta(hours=1), "PT3600S"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (PurePosixPath("/a/b"), "/a/b"),
        (Path("caf\udce9"), "caf\ufffd"),
        (b"caf\xc3\xa9", "café"),
        (bytearray(b"x"), "x"),
        (memoryview(b"x"), "x"),
    ],
)
def test_what_python_code_returns_becomes_plain_json(value: object, found: Any) -> None:
    assert value_of(value) == found
    assert type(value_of(value)) in {dict, list, str, int, float, bool, type(None)}


def test_a_result_shares_nothing_with_what_the_tool_returned() -> None:
    inner: list[Any] = [1]
    returned = {"a": inner}

    found = value_of(returned)
    inner.append(2)

    assert found == {"a": [1]}


def test_h_ser_1_what_cannot_be_stored_is_named_with_place_and_type(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as file:
        bad: list[Any] = [int, threading.Lock(), file]
        first = fault_of(bad)
        second = fault_of([1, {"x": threading.Lock()}])
        third = fault_of({"out put": file})

    assert "$[0] is the class int" in first.message
    assert "$[1].x is of type _thread.lock" in second.message
    assert '$["out put"] is of type _io.TextIOWrapper' in third.message


def test_h_ser_1_a_list_that_contains_itself_is_named() -> None:
    selfish: list[Any] = []
    selfish.append(selfish)
    ring: dict[str, Any] = {"a": {}}
    ring["a"]["b"] = [1, ring]

    assert "$[0] contains itself" in fault_of(selfish).message
    assert "$.a.b[1] contains itself" in fault_of(ring).message


def test_h_ser_1_the_failure_says_what_has_happened() -> None:
    changed = fault_of(object(), Effect.WRITE)
    looked = fault_of(object(), Effect.READ)

    assert changed.happened is Happened.ALL
    assert "do not call it again" in changed.hint
    assert looked.happened is Happened.NOTHING
    assert "would end the same way" in looked.hint


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "$ is nan, which JSON cannot say"),
        ([1, math.inf], "$[1] is inf"),
        ({"a": Fraction("-inf")}, "$.a is -inf"),
        ({1: "a", "1": "b"}, "two keys that become the same text"),
        ({None: 1}, "a key that is of type NoneType"),
        ({True: 1}, "a key that is of type bool"),
        ({(1, 2): 1}, "a key that is of type tuple"),
        (b"\xff", "bytes that are no UTF-8 text"),
        (Point(x=1, y=b"\xff"), "$.y holds bytes"),
        (Point(x=1, y=threading.Lock()), "$.y is of type _thread.lock"),
        (Row(1, [threading.Lock()]), "$.cells[0] is of type _thread.lock"),
        (1j, "is of type complex"),
        (len, "the function len"),
        (threading, "the module threading"),
        (Point, "the class Point"),
        (ValueError("x"), "is of type ValueError"),
        ({"a": 1}.values(), "is of type dict_values"),
        (MagicMock(), "is of type unittest.mock.MagicMock"),
        ((number for number in [1]), "a generator (return a list of what it yields)"),
        (range(10**12), f"goes over {MAX_VALUES:,} values"),
    ],
)
def test_what_json_cannot_say_is_refused(value: object, told: str) -> None:
    assert told in fault_of(value).message


def test_integers_have_a_limit() -> None:
    assert value_of(10**4000) == 10**4000
    assert "$[0] is an integer of more than 4,000 digits" in fault_of([10**5000]).message
    assert "has a key that is of type float" in fault_of({0.5: 1}).message


def test_text_has_a_limit_in_all() -> None:
    quarter = "x" * (MAX_CHARACTERS // 4)
    told = f"goes over {MAX_CHARACTERS:,} characters of text"

    assert f"$ {told}" in fault_of("x" * (MAX_CHARACTERS + 1)).message
    assert f"$[4] {told}" in fault_of([quarter] * 5).message
    assert f"$[4] {told}" in fault_of([{"a": quarter}] * 5).message
    assert value_of([quarter] * 4) == [quarter] * 4


def test_nesting_has_a_limit() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]

    assert value_of(deep) == deep
    assert f"nested deeper than {MAX_DEPTH} levels" in fault_of([deep]).message
    assert f"nested deeper than {MAX_DEPTH} levels" in fault_of([{1: deep}]).message


def test_lists_that_share_lists_cannot_grow_without_end() -> None:
    bomb: Any = "x"
    for _ in range(60):
        bomb = [bomb, bomb]

    assert f"goes over {MAX_VALUES:,} values" in fault_of(bomb).message
    assert f"goes over {MAX_VALUES:,} values" in fault_of(Row(1, bomb)).message
    assert f"goes over {MAX_VALUES:,} values" in fault_of(Pair(1, bomb)).message


class Endless(Sequence[int]):
    def __len__(self) -> int:
        return 3

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: Any) -> Any:
        return index


class Unreadable(Mapping[str, int]):
    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        raise SystemExit(3)

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)


class Liar:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Broken(BaseModel):
    def model_dump(self, **_: Any) -> Any:
        raise ZeroDivisionError


class Circle(enum.Enum):
    ROUND = "round"

    @property
    def value(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Endless, "goes over"),
        (lambda: [Unreadable()], "$[0] could not be read: its own code raised SystemExit"),
        (Liar, "its own code raised RuntimeError"),
        (lambda: {"m": Broken()}, "$.m could not be read: its own code raised ZeroDivisionError"),
        (lambda: Circle.ROUND, "its own code raised RecursionError"),
    ],
)
def test_values_whose_own_code_misbehaves_do_not_get_out(
    make: Callable[[], object], told: str
) -> None:
    assert told in fault_of(make()).message


def test_a_key_press_in_the_middle_is_not_swallowed() -> None:
    class Interrupting(Broken):
        def model_dump(self, **_: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        normalise(Interrupting(), tool="odd")


def test_a_coroutine_that_nobody_awaited_is_closed_so_that_nothing_warns_later() -> None:
    async def wait() -> None: ...

    coroutine: Any = wait()

    assert "a coroutine that nobody awaited" in fault_of(coroutine).message
    assert coroutine.cr_frame is None


def test_a_coroutine_under_way_is_left_alone() -> None:
    async def look() -> str:
        async def outer() -> str:
            return named(task.get_coro())

        task = asyncio.create_task(outer())
        return await task

    assert asyncio.run(look()) == "a coroutine that nobody awaited"


def test_a_model_is_known_only_where_pydantic_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Point(x=1)
    monkeypatch.delitem(sys.modules, "pydantic")

    with pytest.raises(NotPlainError, match=r"\$ is of type .*Point"):
        plain(model)


def test_equal_values_have_equal_bytes_whatever_the_order_of_keys() -> None:
    one = {"b": 1, "a": {"d": [1.0, "é"], "c": None}}
    other = {"a": {"c": None, "d": [1.0, "é"]}, "b": 1}

    assert canonical(one) == canonical(other) == '{"a":{"c":null,"d":[1.0,"é"]},"b":1}'.encode()
    assert digest(one) == digest(other)
    assert re.fullmatch("[0-9a-f]{64}", digest(one))
    assert digest(one) != digest({**one, "b": "1"})


def test_the_digest_is_the_published_sha_256_of_the_canonical_text() -> None:
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_half_characters_have_no_canonical_form() -> None:
    with pytest.raises(UnicodeEncodeError):
        canonical("\ud800")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ([], "$"),
        (["steps", 0, "title"], "$.steps[0].title"),
        (["two words"], '$["two words"]'),
        (["x" * 50], '$["' + "x" * 39 + '…"]'),
        (["a"] * 20, "$" + ".a" * 8 + " … " + ".a" * 3),
    ],
)
def test_places_are_written_short(path: list[str | int], place: str) -> None:
    assert place_of(path) == place
