import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.effects import Effect
from laneway.engine.tools import Tool, Toolset, load_tools, tool
from laneway.errors import ToolError, UsageError
from laneway.outcomes import Code, Happened


@tool(effect=Effect.READ)
def lookup(key: str) -> str:
    """Look it up."""
    return f"v:{key}"


def plain(key: str) -> str:
    return key


def numbered(count: int) -> Toolset:
    return Toolset(tool(plain, name=f"tool_{number}") for number in range(count))


def test_tools_are_found_by_name_and_plain_functions_become_tools() -> None:
    toolset = Toolset([lookup, plain])

    found = toolset.get("plain")

    assert toolset.get("lookup") is lookup
    assert found is not None
    assert not found.spec.declared
    assert toolset.get("other") is None
    assert "lookup" in toolset
    assert "other" not in toolset
    assert toolset.names == ("lookup", "plain")
    assert list(toolset) == [lookup, found]
    assert len(toolset) == 2


def test_two_tools_of_one_name_are_refused() -> None:
    def local(key: str) -> str:
        return key

    with pytest.raises(ToolError) as raised:
        Toolset([lookup, tool(local, name="lookup")])

    assert str(raised.value) == (
        f"tool 'lookup': two tools have this name ({__name__}:lookup and a local function); "
        "rename one with name="
    )


def test_the_same_tool_twice_is_one() -> None:
    assert len(Toolset([lookup, lookup])) == 1


def test_h_name_1_an_unknown_tool_is_answered_with_the_names_that_exist() -> None:
    failure = Toolset([lookup]).unknown("fetch_magic")

    assert failure.code is Code.UNKNOWN_TOOL
    assert failure.message == (
        'There is no tool named "fetch_magic"; nothing was run. Tools: lookup.'
    )
    assert failure.happened is Happened.NOTHING
    assert not failure.retry


def test_at_most_twenty_names_are_listed_the_closest_first() -> None:
    message = numbered(57).unknown("tool_41").message

    assert "Tools: tool_41" in message
    assert message.count("tool_") == 21
    assert message.endswith(", and 37 more.")


def test_a_toolset_without_tools_says_so() -> None:
    failure = Toolset().unknown("x" * 500)

    assert failure.message.endswith("nothing was run. There are no tools.")
    assert len(failure.message) < 150
    assert not failure.hint


def test_definitions_of_all_tools_are_written_for_a_provider() -> None:
    toolset = Toolset([lookup, plain])

    names = [one["name"] for one in toolset.definitions("anthropic-messages")]

    assert names == ["lookup", "plain"]
    with pytest.raises(UsageError):
        toolset.definitions("other")


def test_what_the_host_must_set_is_required_before_anything_is_submitted() -> None:
    def mine(user: str, tenant: str, other: str = "") -> None: ...

    toolset = Toolset([lookup, tool(mine, bound=("user", "tenant", "other"))])

    toolset.require_bound({"user": 1, "tenant": 2})
    with pytest.raises(UsageError) as raised:
        toolset.require_bound({"other": 3})
    assert str(raised.value) == (
        "tool 'mine' needs 'tenant', 'user' from the host: pass it in bound={…} to the Engine or "
        "to engine.run"
    )


# Tools by reference


MODULE = """
from laneway.engine.tools import Tool, Toolset, tool

@tool
def first(a: str) -> str:
    return a

@tool(name="second")
def other(a: str) -> str:
    return a

def plain(a: str) -> str:
    return a

tools = [first, plain]
chosen = Toolset([other])
number = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "some_tools.py").write_text(MODULE)
    (tmp_path / "no_tools.py").write_text("x = 1")
    (tmp_path / "broken_tools.py").write_text("raise RuntimeError('no key')")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    yield "some_tools"
    for name in ("some_tools", "no_tools", "broken_tools"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        ("", ("first", "second")),
        (":first", ("first",)),
        (":plain", ("plain",)),
        (":tools", ("first", "plain")),
        (":chosen", ("second",)),
    ],
)
def test_tools_are_loaded_from_a_module(
    module: str, attribute: str, names: tuple[str, ...]
) -> None:
    assert load_tools(module + attribute).names == names


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("missing_tools", "module 'missing_tools' cannot be imported (ModuleNotFoundError: "),
        ("broken_tools", "module 'broken_tools' cannot be imported (RuntimeError: no key)"),
        ("no_tools", "module 'no_tools' holds no tools; decorate its functions with @tool"),
        ("", "module '' cannot be imported (ValueError: "),
        ("some_tools:nothing", "module 'some_tools' has no 'nothing'"),
        ("some_tools:number", "it is of type int; name a tool or a list of tools"),
    ],
)
@pytest.mark.usefixtures("module")
def test_what_cannot_be_loaded_is_refused_with_the_way_out(reference: str, told: str) -> None:
    with pytest.raises(ToolError) as raised:
        load_tools(reference)

    assert str(raised.value).startswith(f"tool {reference!r}: ")
    assert told in str(raised.value)


def test_a_partial_can_be_a_tool() -> None:
    assert Toolset([functools.partial(plain, key="x")]).names == ("plain",)
    assert isinstance(Toolset([plain]).get("plain"), Tool)


def test_one_tool_is_no_list_of_tools() -> None:
    def add(a: int) -> int:
        return a

    for one in (add, Tool.of(add)):
        with pytest.raises(UsageError, match=r"tools are given as a list: \[add\]"):
            Toolset(one)  # type: ignore[arg-type]
