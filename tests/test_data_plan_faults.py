"""Plans as models wrote them, faults and all, and plans that are only links: all of them end."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from laneway import Code, Effect, Engine, Failure, Run, State, Tool, Turn
from laneway.engine.providers import read_llmcompiler_plan, read_taskbench_plan
from laneway.errors import PlanError
from laneway.testing.clock import VirtualClock, run_virtual

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"

SAID = {
    "unknown_tool": ": unknown tool ",
    "self_reference": ": self reference <node-",
    "unknown_reference": ": unknown reference <node-",
    "malformed_reference": ": malformed reference <",
    "cycle": ": cycle in ",
    "link_to_unknown_node": ": link to unknown node",
    "link_malformed": ": malformed link",
    "self_link": ": self link",
    "arguments_not_a_list": ": arguments not a list",
}
"""What a fault of each recorded kind says."""

NO_FAULT = "forward_reference"

Record = dict[str, Any]


def records(name: str) -> list[Record]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recorded material ../shared/data/{name} is not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def domains() -> dict[str, list[str]]:
    found = json.loads((DATA / "taskbench_tools.json").read_text(encoding="utf-8"))["domains"]
    return {name: [tool["name"] for tool in domain["tools"]] for name, domain in found.items()}


def domain_of(record: Record) -> str:
    return str(record["set"].split("-")[1])


def kinds(record: Record) -> set[str]:
    return {problem["kind"] for problem in record.get("problems", ())} - {NO_FAULT}


def named(error: PlanError) -> set[str]:
    found = {next(kind for kind, said in SAID.items() if said in fault) for fault in error.faults}
    assert all(str(error).count(fault) for fault in error.faults)
    return found


def is_cyclic(parents: Sequence[Sequence[int]]) -> bool:
    graph: Any = nx.DiGraph(
        (source, at) for at, sources in enumerate(parents) for source in sources
    )
    return not nx.is_directed_acyclic_graph(graph)


def legal(name: str) -> str:
    """A tool's name as it can be registered."""
    return re.sub(r"[^a-zA-Z0-9_.:/-]", "_", name)


async def one_second(**_: Any) -> str:
    await asyncio.sleep(1.0)
    return "done"


def engine_of(names: Sequence[str]) -> Engine:
    """An engine that has a tool under each name, which takes a second."""
    return Engine(
        [
            Tool.from_schema(
                one_second,
                name=legal(name),
                schema={"type": "object"},
                effect=Effect.READ,
                claims=[],
            )
            for name in dict.fromkeys(names)
        ],
        clock=VirtualClock,
    )


def parents(turn: Turn) -> list[list[int]]:
    place = {call.id: at for at, call in enumerate(turn.calls)}
    graph = turn.graph
    return [sorted(place[source] for source in graph.predecessors(call.id)) for call in turn.calls]


def levels(sources: Sequence[Sequence[int]]) -> list[int]:
    """For each call, how many calls the longest chain before it has."""
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(range(len(sources)))
    graph.add_edges_from((source, at) for at, found in enumerate(sources) for source in found)
    level = [0] * len(sources)
    for at in nx.topological_sort(graph):
        level[at] = max((level[source] + 1 for source in sources[at]), default=0)
    return level


async def play(run: Run, record: Record, reply: Any) -> bool:
    """Run an accepted plan; return whether its order is the one that was recorded."""
    began = asyncio.get_running_loop().time()
    turn = await run.submit(reply, strict=True)

    assert {call.state for call in turn.calls} <= {State.SUCCEEDED}, record["id"]
    found = parents(turn)
    assert [call.started - began for call in turn.calls if call.started] == levels(found)
    recorded = [sorted(sources) for sources in record["parents"]]
    if not record.get("ambiguous_links") or record["edge_source"] == "argument references":
        assert found == recorded, record["id"]
        assert asyncio.get_running_loop().time() - began == record["stats"]["depth"]
    elif not is_cyclic(recorded):
        assert all({*of} <= {*mine} for of, mine in zip(recorded, found, strict=True))
    return found == recorded


def test_plans_of_models_are_refused_with_every_fault_named_and_run_if_they_have_none() -> None:
    plans, tools = records("plans_llm.jsonl"), domains()
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()

    async def main() -> None:
        for domain in sorted({domain_of(record) for record in plans}):
            async with engine_of(tools[domain]) as engine:
                for record in plans:
                    if domain_of(record) == domain:
                        await judge(engine, record)

    async def judge(engine: Engine, record: Record) -> None:
        wanted = kinds(record)
        counts["records"] += 1
        try:
            reply = read_taskbench_plan(record, tools=tools[domain_of(record)])
        except PlanError as error:
            found = named(error)
            assert wanted <= found, record["id"]
            assert wanted, record["id"]
            counts["refused"] += 1
            counts["refused for more than was recorded"] += found != wanted
            faults.update(found)
        else:
            assert not wanted, record["id"]
            counts["accepted"] += 1
            async with engine.run(record["id"]) as run:
                counts["in the recorded order"] += await play(run, record, reply)
            counts["calls run"] += len(reply.calls)

    run_virtual(main)

    print(f"\nplans_llm: {dict(counts)}\nnamed: {dict(faults)}")
    assert counts["records"] == 985
    assert counts["accepted"] == 526
    assert counts["refused"] == 459
    # A cycle between links that each fit one pair, in a plan in which others fit several.
    assert counts["refused for more than was recorded"] == 1
    # The others are ordered by links that fit several nodes.
    assert counts["in the recorded order"] == 522


def test_plans_of_links_run_in_the_order_of_their_links() -> None:
    plans = records("plans_links.jsonl")
    counts: Counter[str] = Counter()

    async def main() -> None:
        names = [call["name"] for record in plans for call in record["calls"]]
        async with engine_of(names) as engine:
            for record in plans:
                reply = read_taskbench_plan(record, tools=names)
                async with engine.run(record["id"]) as run:
                    counts["in the recorded order"] += await play(run, record, reply)
                counts["records"] += 1
                counts["with links that fit several nodes"] += bool(record.get("ambiguous_links"))
                counts["recorded order is cyclic"] += is_cyclic(record["parents"])

    run_virtual(main)

    print(f"\nplans_links: {dict(counts)}")
    assert counts["records"] == 383
    assert counts["with links that fit several nodes"] == 21
    assert counts["in the recorded order"] == 362, "the recorded order of the others is a guess"
    assert counts["recorded order is cyclic"] == 1


# The same plans, without the reader's help


def untranslated(record: Record) -> Record:
    """A plan in Laneway's own form, with all its faults: what a careless host would submit."""
    first: dict[str, str] = {}
    for at, call in enumerate(record["calls"]):
        first.setdefault(call["name"], f"node-{at}")
    calls: list[Record] = []
    for at, call in enumerate(record["calls"]):
        text = json.dumps({"given": call["arguments"]})
        own = f"node-{at}"
        needs = [
            first.get(source) if isinstance(source, str) else None
            for source, target in record["links"]
            if target == call["name"] and first[target] == own
        ]
        calls.append(
            {
                "id": own,
                "tool": legal(call["name"]),
                "arguments": json.loads(re.sub(r"<(node-\d+)>", r"${\1}", text)),
                "needs": [] if record["refs"] else [name or "nobody" for name in needs],
            }
        )
    return {"calls": calls}


def expected(plan: Record, tools: Sequence[str]) -> dict[str, set[State]]:
    """What becomes of each call of a turn: faulty ones fail, those that need them are skipped."""
    graph: Any = nx.DiGraph()
    faulty: set[str] = set()
    calls: Mapping[str, Record] = {call["id"]: call for call in plan["calls"]}
    for name, call in calls.items():
        graph.add_node(name)
        sources = {*call["needs"], *re.findall(r"\$\{(.*?)\}", json.dumps(call["arguments"]))}
        graph.add_edges_from((source, name) for source in sources & calls.keys())
        if not sources <= calls.keys() or call["tool"] not in {legal(tool) for tool in tools}:
            faulty.add(name)
    for component in nx.strongly_connected_components(graph):
        if len(component) > 1 or any(graph.has_edge(name, name) for name in component):
            faulty |= component
    skipped = {after for name in faulty for after in nx.descendants(graph, name)}
    return {
        name: {State.FAILED, State.SKIPPED}
        if name in faulty & skipped
        else {State.FAILED}
        if name in faulty
        else {State.SKIPPED if name in skipped else State.SUCCEEDED}
        for name in calls
    }


def test_the_engine_itself_ends_every_faulty_plan_and_runs_what_no_fault_touches() -> None:
    plans, tools = records("plans_llm.jsonl"), domains()
    counts: Counter[str] = Counter()
    codes: Counter[str] = Counter()

    async def main() -> None:
        for domain in sorted({domain_of(record) for record in plans}):
            async with engine_of(tools[domain]) as engine:
                for record in plans:
                    if domain_of(record) == domain:
                        await judge(engine, record)

    async def judge(engine: Engine, record: Record) -> None:
        plan = untranslated(record)
        wanted = expected(plan, tools[domain_of(record)])
        sound = wanted == {name: {State.SUCCEEDED} for name in wanted}
        async with engine.run(record["id"]) as run:
            if not sound:
                with pytest.raises(PlanError) as refused:
                    await run.submit(plan, strict=True)
                faults = {fault.split(" ", 1)[0] for fault in refused.value.faults}
                assert {name for name, state in wanted.items() if state == {State.FAILED}} <= faults
                assert run.turns == []
            turn = await run.submit(plan, strict=sound)
        found = {call.record.provider_id: call.state for call in turn.calls}
        assert all(found[name] in states for name, states in wanted.items()), record["id"]
        counts["refused whole" if not sound else "accepted"] += 1
        counts.update(state.value for state in found.values())
        codes.update(o.code.value for o in turn.outcomes.values() if isinstance(o, Failure))

    run_virtual(main)

    print(f"\nplans_llm, in our own form: {dict(counts)}, {dict(codes)}")
    assert counts["accepted"] + counts["refused whole"] == 985
    assert codes.keys() == {
        Code.UNKNOWN_TOOL,
        Code.BAD_REFERENCE,
        Code.DEPENDENCY_CYCLE,
        Code.DEPENDENCY_FAILED,
    }


# Questions, as LLMCompiler plans them


def planned(question: Record) -> str:
    """Independent searches, as many as the question branches into, and one call that joins them."""
    branch = question["branch"]
    searches = [
        f"{n}. search({json.dumps(f'part {n} of: ' + question['question'])})"
        for n in range(1, branch + 1)
    ]
    found = ", ".join(f'"${n}"' if n % 2 else f"${{{n}}}" for n in range(1, branch + 1))
    return "\n".join(
        [
            *searches,
            "Thought: the rest needs all of them",
            f"{branch + 1}. solve({json.dumps(question['question'])}, [{found}])",
            f"{branch + 2}. join()<END_OF_PLAN>",
        ]
    )


def test_the_searches_of_a_question_run_at_once_and_its_solution_gets_what_they_found() -> None:
    questions = records("questions.jsonl")
    parameters = {"search": ["query"], "solve": ["question", "context"]}
    counts: Counter[str] = Counter()

    async def search(query: str) -> Record:
        await asyncio.sleep(1.0)
        return {"found": query}

    async def solve(question: str, context: list[Record]) -> int:
        assert [item["found"] for item in context] == [
            f"part {n} of: {question}" for n in range(1, len(context) + 1)
        ]
        await asyncio.sleep(1.0)
        return len(context)

    async def main() -> None:
        tools = [Tool.of(body, effect=Effect.READ, claims=[]) for body in (search, solve)]
        async with Engine(tools, clock=VirtualClock) as engine:
            for question in questions:
                branch = question["branch"]
                began = asyncio.get_running_loop().time()
                async with engine.run(question["id"]) as run:
                    reply = read_llmcompiler_plan(planned(question), parameters=parameters)
                    turn = await run.submit(reply, strict=True)
                assert asyncio.get_running_loop().time() - began == 2.0
                assert parents(turn) == [[] for _ in range(branch)] + [list(range(branch))]
                solution = turn.call(str(branch + 1)).outcome
                assert solution is not None
                assert not isinstance(solution, Failure)
                assert solution.value == branch
                counts["plans"] += 1
                counts["searches"] += branch

    run_virtual(main)

    print(f"\nquestions: {dict(counts)}")
    assert counts == {"plans": 107, "searches": 599}
