"""The public face: what it names, says, draws and does not import."""

import asyncio
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import laneway
from laneway import errors, states
from laneway.errors import LanewayError
from laneway.states import ARROWS, ENDED, State

ROOT = Path(__file__).resolve().parent.parent


# Names and docstrings


def test_everything_that_is_exported_exists_once_in_order() -> None:
    names = laneway.__all__

    assert len(set(names)) == len(names)
    assert names == sorted(names)
    for name in names:
        assert hasattr(laneway, name)


def test_every_public_name_has_a_docstring_and_so_has_all_that_one_can_call_of_it() -> None:
    undocumented = [
        where
        for name in laneway.__all__
        if name not in ("__version__", "Outcome")  # a text, and a union of two that are exported
        for where, thing in face(name, getattr(laneway, name))
        if not (inspect.getdoc(thing) or "").strip()
    ]

    assert undocumented == []


def face(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """A public thing, and its own public methods and properties."""
    yield name, thing
    if inspect.isclass(thing):
        for inner, member in vars(thing).items():
            if not inner.startswith("_") and (callable(member) or isinstance(member, property)):
                yield f"{name}.{inner}", member


def test_nothing_that_is_exported_is_a_module_or_private() -> None:
    for name in laneway.__all__:
        assert not inspect.ismodule(getattr(laneway, name))
        assert name == "__version__" or not name.startswith("_")


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(laneway.__path__, "laneway."):
        if not found.name.endswith("__main__"):
            yield found.name


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name for name in modules() if not (importlib.import_module(name).__doc__ or "").strip()
    ]

    assert silent == []


# The tree of errors


def test_the_tree_of_errors_that_is_drawn_is_the_one_there_is() -> None:
    for name in modules():
        importlib.import_module(name)

    assert drawn(errors.__doc__ or "") == tree(LanewayError)


def drawn(text: str) -> dict[str, str]:
    """Each class of the drawing, with the one it hangs on."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in text.splitlines():
        branch = re.match(r"^((?:│   |    )*)(?:├── |└── )?(\w+Error)\b", line)
        if branch is None:
            continue
        depth = len(branch[1]) // 4 + ("── " in line)
        path[depth:] = [branch[2]]
        if depth:
            parents[branch[2]] = path[depth - 1]
    return parents


def tree(above: type[LanewayError]) -> dict[str, str]:
    found: dict[str, str] = {}
    for below in above.__subclasses__():
        if below.__module__.startswith("laneway."):
            found[below.__name__] = above.__name__
            found |= tree(below)
    return found


def test_an_error_that_lives_elsewhere_is_drawn_with_its_module() -> None:
    for name in drawn(errors.__doc__ or ""):
        if not hasattr(errors, name):
            (line,) = [one for one in (errors.__doc__ or "").splitlines() if name in one]
            place = re.search(r"\(in (laneway\.[\w.]+)\)", line)
            assert place is not None
            assert issubclass(getattr(importlib.import_module(place[1]), name), LanewayError)


def test_every_error_is_described_where_it_is_drawn_and_where_it_is_made() -> None:
    for name, thing in vars(errors).items():
        if inspect.isclass(thing) and issubclass(thing, LanewayError):
            assert (thing.__doc__ or "").strip().endswith("."), name
    for line in (errors.__doc__ or "").splitlines():
        if "── " in line:
            assert re.search(r"Error +\S", line), line


# The states

DESIGNED = {
    "PENDING": "AWAITING_APPROVAL QUEUED FAILED SKIPPED CANCELLED DENIED",
    "AWAITING_APPROVAL": "PENDING QUEUED FAILED CANCELLED DENIED",
    "QUEUED": "PENDING RUNNING AWAITING_APPROVAL SUCCEEDED FAILED CANCELLED DENIED",
    "RUNNING": "BACKING_OFF SUCCEEDED FAILED TIMED_OUT CANCELLED UNCERTAIN",
    "BACKING_OFF": "QUEUED CANCELLED FAILED TIMED_OUT DENIED",
    "UNCERTAIN": "BACKING_OFF SUCCEEDED FAILED",
}
"""The arrows as the design has them: PENDING is left for FAILED or SKIPPED before anything runs; a
follower of a single flight succeeds without having run; a queued call is asked about when the mode
of its run is changed to one in which it asks; only an uncertain end may be settled,
and what turns out to have done nothing may be run again. A call goes back to PENDING where a human
changes the arguments of one that asks, and the two now conflict: the order of the request holds."""


def test_the_arrows_are_those_of_the_design() -> None:
    there = {str(state): {str(to) for to in ARROWS[state]} for state in State if ARROWS[state]}

    assert there == {state: set(to.split()) for state, to in DESIGNED.items()}


def test_every_state_can_be_reached_and_every_call_can_end() -> None:
    reached = {State.PENDING}
    while more := {to for state in reached for to in ARROWS[state]} - reached:
        reached |= more

    assert reached == set(State) == set(ARROWS)
    assert all(ENDED & ends_of(state) for state in State)


def ends_of(state: State) -> set[State]:
    found = {state}
    while more := {to for one in found for to in ARROWS[one]} - found:
        found |= more
    return found


@pytest.mark.parametrize("state", State)
def test_a_state_is_left_by_its_arrows_alone(state: State) -> None:
    for target in State:
        if target in ARROWS[state]:
            assert states.move(state, target) is target
        else:
            with pytest.raises(errors.IllegalTransitionError) as refused:
                states.move(state, target)
            assert str(refused.value) == (
                f"no arrow leads from {state} to {target}; this is a bug in Laneway"
            )


# What an import costs


def test_importing_laneway_imports_nothing_heavy() -> None:
    heavy = ["networkx", "opentelemetry", "tenacity", "typer", "rich", "aiosqlite", "pydantic"]
    script = f"import sys, laneway; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = answer.stdout.strip()

    assert not {"networkx", "opentelemetry", "tenacity", "typer", "rich"} & set(
        re.findall(r"\w+", loaded)
    )


# The README


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


class Messages:
    """Stands where the SDK's client has its messages, and gives recorded answers."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = iter(answers)
        self.requests: list[dict[str, Any]] = []

    async def create(self, **request: Any) -> dict[str, Any]:
        self.requests.append({**request, "messages": list(request["messages"])})
        return {"role": "assistant", "content": next(self.answers)}


class Client:
    def __init__(self, messages: Messages) -> None:
        self.messages = messages


def test_the_readme_has_python_and_all_of_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for block in blocks(ROOT / "README.md"):
        exec(compile(block, "README.md", "exec"), scope)  # noqa: S102 - it is our own
    (tmp_path / "a.txt").write_text("old")
    use: dict[str, Any] = {"type": "tool_use"}
    messages = Messages(
        [
            use | {"id": "u1", "name": "read_file", "input": {"path": "a.txt"}},
            use | {"id": "u2", "name": "write_file", "input": {"path": "a.txt", "text": "new"}},
            use | {"id": "u3", "name": "read_file", "input": {"path": "./a.txt"}},
        ],
        [{"type": "text", "text": "Done."}],
    )

    history = asyncio.run(scope["work"](Client(messages), "Renew a.txt."))

    assert (tmp_path / "a.txt").read_text() == "new"
    assert [message["role"] for message in history] == ["user", "assistant", "user", "assistant"]
    results = [block["content"] for block in history[2]["content"]]
    assert results == ["old", "3 characters written", "new"]
    names = [one["name"] for one in messages.requests[0]["tools"]]
    assert names == ["read_file", "write_file"]
    assert (tmp_path / "runs.db").exists()


def test_the_readmes_way_to_ask_a_human_asks_for_new_turns_and_for_those_left_open() -> None:
    scope: dict[str, Any] = {}
    for block in blocks(ROOT / "README.md"):
        exec(compile(block, "README.md", "exec"), scope)  # noqa: S102 - it is our own
    asked: list[Any] = []

    @laneway.tool(effect=laneway.Effect.WRITE, claims=[], approval=True)
    async def pay(cents: int) -> str:
        return f"paid {cents}"

    @laneway.tool(effect=laneway.Effect.WRITE, claims=[])
    async def shop(context: laneway.ToolContext) -> Any:
        return await context.invoke("pay", cents=3)

    async def ask(arguments: Any, reason: str) -> bool:
        asked.append((arguments["cents"], reason))
        return bool(arguments["cents"] != 2)

    plan = {
        "calls": [
            {"id": "a", "tool": "pay", "arguments": {"cents": 1}},
            {"id": "b", "tool": "pay", "arguments": {"cents": 2}},
            {"id": "c", "tool": "shop", "arguments": {}},
        ]
    }

    async def main() -> Any:
        async with laneway.Engine([pay, shop]) as engine:
            async with engine.run("r") as run:
                await run.submit({"calls": plan["calls"][:2]}, wait=False)
            async with engine.run("r") as run:
                left = await scope["with_approvals"](run, run.open_turn, ask)
                turn = await run.submit({"calls": plan["calls"][2:]}, wait=False)
                return left, await scope["with_approvals"](run, turn, ask)

    left, now = asyncio.run(main())

    assert [cents for cents, _ in asked] == [1, 2, 3]
    assert "paid 1" in str(left)
    assert "not today" in str(left)
    assert "paid 3" in str(now)
