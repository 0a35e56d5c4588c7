"""Resources in turns of the engine: what is one thing takes turns, what is not overlaps."""

from pathlib import Path
from typing import Any

import pytest

from laneway import Code, Effect, Engine, State, Tool, tool
from laneway.errors import UsageError
from laneway.testing.scripted import Return, Sleep, Stage
from laneway.testing.theatre import Theatre, failure, plan, states


def second_long(stage: Stage, *claims: str, name: str = "put") -> Tool[..., Any]:
    """A tool that holds its claims for a second, and knows its call by `n`."""
    return stage.tool(name, Sleep(1.0), Return("ok"), effect=Effect.WRITE, claims=claims)


def began(stage: Stage) -> dict[str, float]:
    """When each body began, in seconds from the first."""
    first = min(one.start for one in stage.executions)
    return {one.arguments["n"]: one.start - first for one in stage.executions}


def puts(parameter: str, *values: Any, name: str = "put") -> dict[str, Any]:
    """A plan of calls `0`, `1`, … that differ in one argument."""
    return plan(
        *(
            {"id": f"{n}", "tool": name, "arguments": {parameter: value, "n": f"{n}"}}
            for n, value in enumerate(values)
        )
    )


def table_name(path: str) -> str:
    """`Shop.Orders`, `orders` and `"ORDERS"` are one table of the schema `shop`."""
    schema, _, table = path.strip('"').casefold().rpartition(".")
    if not table.isidentifier():
        raise ValueError("a table's name has letters, digits and '_'")
    return f"{schema or 'shop'}/{table}"


def test_two_spellings_of_one_table_exclude_each_other(tmp_path: Path) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        second_long(stage, "write db:{table}"),
        workspace=tmp_path,
        canonicalisers={"db": table_name},
    )

    turn = theatre.play(
        puts("table", "Shop.Orders", "orders", '"ORDERS"', "shop.items", "x.orders")
    )

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert began(stage) == {"0": 0, "1": 1, "2": 2, "3": 0, "4": 0}


def test_what_a_canonicaliser_refuses_is_told_to_the_model_with_its_argument(
    tmp_path: Path,
) -> None:
    stage = Stage()
    put = second_long(stage, "write db:{table}")
    theatre = Theatre(stage, put, workspace=tmp_path, canonicalisers={"db": table_name})

    turn = theatre.play(puts("table", "or ders", "orders"))

    assert states(turn) == {"0": State.FAILED, "1": State.SUCCEEDED}
    refused = failure(turn, "0")
    assert refused.code is Code.INVALID_ARGUMENTS
    assert refused.message == (
        "The call names a resource that cannot be used: resource 'db:or ders', from {table}: "
        "a table's name has letters, digits and '_'"
    )
    assert stage.entered["put"] == 1


def test_a_canonicaliser_of_files_takes_the_place_of_the_rules(tmp_path: Path) -> None:
    stage = Stage()
    put = second_long(stage, "write file:{path}")
    theatre = Theatre(stage, put, workspace=tmp_path, canonicalisers={"file": str.lower})

    theatre.play(puts("path", "A.txt", "a.TXT", "b.txt"))

    assert began(stage) == {"0": 0, "1": 1, "2": 0}


def test_a_lane_of_a_scheme_is_named_by_any_of_its_spellings(tmp_path: Path) -> None:
    stage = Stage()
    theatre = Theatre(
        stage,
        stage.tool("look", Sleep(1.0), claims=["read db:{table}"]),
        workspace=tmp_path,
        canonicalisers={"db": table_name},
        lanes={"db:SHOP.ORDERS": 2},
    )

    theatre.play(puts("table", "orders", "Orders", "shop.orders", name="look"))

    assert began(stage) == {"0": 0, "1": 0, "2": 1}


def test_an_engine_refuses_a_canonicaliser_of_what_is_no_scheme() -> None:
    with pytest.raises(UsageError, match="no canonicaliser can be registered for 'lane'"):
        Engine(canonicalisers={"lane": str})


@pytest.mark.parametrize(
    ("claim", "values", "starts"),
    [
        # A folder covers its files, whatever is written behind it.
        ("write file:{path}/**", ["src", "src/", "lib"], [0, 1, 0]),
        ("write file:{path}", ["src", "src/a.py", "lib/a.py"], [0, 1, 0]),
        ("write file:{path}", ["src/new/a.py", "src/new", "src/new/b.py"], [0, 1, 2]),
        # What a model's glob may find
        ("write file:{path:glob}", ["src/*.py", "src/a.py", "lib/**"], [0, 1, 0]),
        ("write file:{path:glob}", ["**/*.py", "src/a.py", "/elsewhere/*"], [0, 1, 0]),
        ("write file:{path:glob}", ["src/*/../../x", "lib/a", "lib/b"], [0, 1, 1]),
        # A name of the model's is no glob.
        ("write file:{path}", ["[ab].py", "a.py", "[ab].py"], [0, 0, 1]),
        # Symbolic links, and files that are not there yet
        ("write file:{path}", ["linked/a.py", "src/a.py", "linked/new"], [0, 1, 0]),
        ("write file:{path}", ["dangling", "src/none.py", "dangling"], [0, 1, 2]),
        ("write file:{path}", ["up/w/x", "x", "up/x"], [0, 1, 0]),
        ("write file:{path}", ["loop/x", "loop//x", "loop/y"], [0, 1, 0]),
        ("write file:{path}", ["ä", "a\u0308", "./ä/"], [0, 0, 1]),
        ("write file:{path}", ["~/x", "./~/x", "/home/x"], [0, 1, 0]),
        # Hard links: one file, whatever its name; its folder by the name that was used.
        ("write file:{path}", ["one.txt", "src/two.txt", "one.txt"], [0, 1, 2]),
        ("write file:{path}", ["one.txt", "dangling/../two.txt", "two.txt"], [0, 1, 0]),
        ("write file:{path}", ["src/two.txt", "src", "one.txt"], [0, 1, 1]),
        # Other schemes: levels, and nothing else.
        ("write db:{path}", ["shop", "shop", "Shop"], [0, 1, 0]),
        ("write db:shop/{path}/*", ["a", "a", "b"], [0, 1, 0]),
    ],
)
def test_what_overlaps_takes_turns_in_request_order(
    tmp_path: Path, claim: str, values: list[str], starts: list[int]
) -> None:
    workspace = tmp_path / "w"
    (workspace / "src").mkdir(parents=True)
    (workspace / "one.txt").touch()
    (workspace / "src" / "two.txt").hardlink_to(workspace / "one.txt")
    for name, target in {
        "linked": "src",
        "dangling": "src/none.py",
        "up": "..",
        "loop": "loop",
    }.items():
        (workspace / name).symlink_to(target)
    (tmp_path / "to").symlink_to("w")
    stage = Stage()
    theatre = Theatre(stage, second_long(stage, claim), workspace=tmp_path / "to")

    turn = theatre.play(puts("path", *values))

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert began(stage) == {f"{n}": start for n, start in enumerate(starts)}


def test_readers_of_one_file_by_two_names_overlap(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    stage = Stage()
    look = stage.tool("look", Sleep(1.0), claims=["read file:{path}"])
    theatre = Theatre(stage, look, workspace=tmp_path)

    theatre.play(puts("path", "a", "b", name="look"))

    assert began(stage) == {"0": 0, "1": 0}


def test_a_link_made_while_a_call_waits_is_not_seen_by_it(tmp_path: Path) -> None:
    """Names are looked up when a call is taken in; docs/resources.md says so."""
    (tmp_path / "a").touch()
    stage = Stage()

    @tool(effect=Effect.WRITE, claims=["write file:b"])
    async def make(n: str) -> None:
        (tmp_path / "b").hardlink_to(tmp_path / "a")

    put = second_long(stage, "write file:{path}")
    reply = puts("path", "b", "a")
    reply["calls"].insert(0, {"id": "link", "tool": "make", "arguments": {"n": "x"}})

    Theatre(stage, make, put, workspace=tmp_path).play(reply)
    assert began(stage) == {"0": 0, "1": 0}

    stage.executions.clear()
    Theatre(stage, make, put, workspace=tmp_path).play(puts("path", "b", "a"))
    assert began(stage) == {"0": 0, "1": 1}
