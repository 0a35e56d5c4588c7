"""Reads plans in TaskBench's form: nodes whose arguments hold `<node-0>`, and links by tool name.

    {"task_nodes": [{"task": "Translation", "arguments": ["example.txt"]},
                    {"task": "Summarization", "arguments": ["<node-0>"]}],
     "task_links": [{"source": "Translation", "target": "Summarization"}]}

Translates them into Laneway's own form, each node under the id `node-0`, `node-1` …; feeds the
engine like any plan. TaskBench's tools have names that no provider takes: `Image Editing` becomes
`Image_Editing`. Where arguments refer to nodes, the references are the dependencies and the
links only repeat them; where none does, the links are. Models write such plans with many faults, so
all that can be known is named here at once. Source of the notation: Shen et al., "TaskBench:
Benchmarking Large Language Models for Task Automation", 2023.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.notation import Notation, Referred, rewritten
from laneway.engine.providers.payload import arguments_of, described, opened
from laneway.engine.providers.plan import PlanForm
from laneway.engine.providers.reply import Reply
from laneway.engine.telling import excerpt
from laneway.errors import PlanError

NODES = ("task_nodes", "nodes", "calls")
LINKS = ("task_links", "links")
TOOL = ("task", "tool", "name")
"""What nodes, links and a node's tool may be called; the first is TaskBench's own word."""
MAX_PAIRS = 100_000
"""Of nodes that the links of one plan may fit: a short list of links by name can fit very many."""

_SPEAKS_OF_A_NODE = re.compile(r"<(?:node|output|result|generated)[^<>]*>")
_NODE = re.compile(r"<node-([0-9]+)>")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_.:/-]")
_SHOWN = 8

Link = tuple[str, str]


def read_taskbench_plan(
    record: Mapping[str, Any],
    *,
    tools: Collection[str] | Mapping[str, Sequence[str]] | None = None,
) -> Reply:
    """Read a plan of nodes and links.

    Arguments in a list become an object: `{"name": …, "value": …}` under its name, others under the
    tool's parameter names, and where those are not known the list is one argument, `arguments`.

    A link by tool name may fit several nodes, when a tool occurs more than once. Then it orders all
    pairs in which the source is listed before the target, so that the pair that was meant is among
    them.

    Args:
        record: nodes under `task_nodes` (or `nodes`, `calls`), each with `task` (or `tool`, `name`)
            and `arguments`; links under `task_links` (or `links`), as `{"source", "target"}` or
            pairs. Whatever else it holds is not looked at.
        tools: the names of the tools there are, as TaskBench writes them or as they are registered;
            as a mapping, with their parameters in order.

    Raises:
        PlanError: names every fault: self reference, unknown reference, malformed reference, cycle,
            link to unknown node, self link, malformed link, arguments that are not a list, and
            unknown tool, where `tools` is given.
    """
    nodes = _listed(record, NODES)
    reader = _Nodes(nodes, tools)
    calls = [reader.call(at, opened(node)) for at, node in enumerate(nodes)]
    links = _Links(_listed(record, LINKS, needed=False), reader.names)
    linked = links.parents()
    by_reference = any(reader.referred)
    faults = [*reader.faults, *links.faults, *_cycles(reader.referred, "references")]
    if not (by_reference and links.ambiguous):
        faults += _cycles(linked, "links")
    if faults:
        raise PlanError(faults)
    if not by_reference:
        for call, sources in zip(calls, linked, strict=True):
            if is_object(call) and sources:
                call["needs"] = [_name(source) for source in sorted(sources)]
    return PlanForm().parse({"calls": calls})


def _name(at: int) -> str:
    return f"node-{at}"


def _legal(tool: str) -> str:
    return _ILLEGAL.sub("_", tool)


def _listed(record: Mapping[str, Any], words: Sequence[str], *, needed: bool = True) -> list[Any]:
    word = next((word for word in words if word in record), words[0])
    given = opened(record.get(word))
    if is_list(given):
        return given
    if given is None and not needed:
        return []
    raise PlanError([f"{word}: expected a list, not {described(given)}"])


class _Nodes:
    """One pass over the nodes: makes each a call, and gathers references and faults."""

    def __init__(
        self, nodes: Sequence[Any], tools: Collection[str] | Mapping[str, Sequence[str]] | None
    ) -> None:
        self.faults: list[str] = []
        self.names: list[str] = []
        """The tool of each node."""
        self.referred: list[set[int]] = [set() for _ in nodes]
        """For each node, the nodes that its arguments refer to; never itself."""
        self._tools = None if tools is None else {_legal(name) for name in tools}
        self._parameters: dict[str, Sequence[str]] = {}
        if isinstance(tools, Mapping):
            self._parameters = {_legal(name): parameters for name, parameters in tools.items()}
        self._place = {str(at): at for at in range(len(nodes))}
        self._at = 0
        self._notation = Notation(pattern=_SPEAKS_OF_A_NODE, read=self._read)

    def call(self, at: int, node: object) -> object:
        self._at = at
        if not is_object(node):
            self.names.append("")
            return node  # the plan's own form names the fault
        tool = next((node[word] for word in TOOL if word in node), None)
        if not isinstance(tool, str):
            self.names.append("")
            return {"tool": tool}  # as above
        self.names.append(tool)
        call: dict[str, Any] = {"id": _name(at), "tool": _legal(tool)}
        if self._tools is not None and call["tool"] not in self._tools:
            self._blame(f"unknown tool {excerpt(tool)}")
        given = arguments_of(node.get("arguments"))
        if given is None:
            return call
        if not is_list(given):
            self._blame(f"arguments not a list, but {described(given)}")
            return call
        ours = rewritten(given, self._where(), self._notation, self.faults)
        call["arguments"] = _named(ours, self._parameters.get(call["tool"], ()))
        return call

    def _read(self, mention: re.Match[str], where: str) -> Referred | None:
        node = _NODE.fullmatch(mention[0])
        if node is None:
            self._blame(f"malformed reference {mention[0]}; write <node-0>", where)
            return None
        source = self._place.get(node[1].lstrip("0") or "0")
        if source is None:
            last = f"the last is <node-{len(self._place) - 1}>"
            self._blame(f"unknown reference {mention[0]}; nodes count from 0, {last}", where)
            return None
        if source == self._at:
            self._blame(f"self reference {mention[0]}; nodes count from 0", where)
            return None
        self.referred[self._at].add(source)
        return Referred(_name(source))

    def _where(self) -> str:
        return f"{_name(self._at)} ({self.names[self._at]})"

    def _blame(self, fault: str, where: str = "") -> None:
        self.faults.append(f"{where or self._where()}: {fault}")


def _named(given: list[Any], parameters: Sequence[str]) -> dict[str, Any]:
    """Give a list of arguments the names they have, or those of the tool's parameters."""
    pairs = [(one["name"], one["value"]) for one in given if _is_named(one)]
    named = dict(pairs)
    if given and len(named) == len(given):
        return named
    if not pairs and len(given) <= len(parameters):
        return dict(zip(parameters, given, strict=False))
    return {"arguments": given} if given else {}


def _is_named(one: object) -> bool:
    return (
        is_object(one)
        and one.keys() == {"name", "value"}
        and isinstance(one["name"], str)
        and bool(one["name"])
    )


class _Links:
    """The links between nodes, by the names of their tools."""

    def __init__(self, given: Iterable[Any], names: Sequence[str]) -> None:
        self.faults: list[str] = []
        self._nodes: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            self._nodes.setdefault(name, []).append(at)
        self._links = list(dict.fromkeys(self._sound(given)))
        self._count = len(names)
        self.ambiguous = any(len(self._nodes[end]) > 1 for link in self._links for end in link)
        """Whether a link fits several pairs of nodes."""

    def parents(self) -> list[set[int]]:
        """For each node, the nodes that links order before it."""
        found: list[set[int]] = [set() for _ in range(self._count)]
        drawn = 0
        for source, target in self._links:
            sources, targets = self._nodes[source], self._nodes[target]
            drawn += len(sources) * len(targets)
            if drawn > MAX_PAIRS:
                self.faults.append(
                    f"links: more than {MAX_PAIRS} pairs of nodes fit; refer to nodes in arguments"
                )
                break
            pairs = [(a, b) for a in sources for b in targets]
            listed = [(a, b) for a, b in pairs if a < b]
            for a, b in listed if listed and len(pairs) > 1 else pairs:
                found[b].add(a)
        return found

    def _sound(self, given: Iterable[Any]) -> Iterator[Link]:
        for at, link in enumerate(given):
            ends = _ends(opened(link))
            if ends is None:
                self._blame(at, f"malformed link, {described(link)}; it joins two tools")
            elif unknown := [end for end in ends if self._is_unknown(end)]:
                names = " and ".join(described(end) for end in unknown)
                self._blame(at, f"link to unknown node, {names} is no tool of a node")
            elif ends[0] == ends[1] and len(self._nodes[ends[0]]) == 1:
                self._blame(at, f"self link, {ends[0]} stands at both ends")
            else:
                yield ends

    def _is_unknown(self, end: object) -> bool:
        return not isinstance(end, str) or end not in self._nodes

    def _blame(self, at: int, fault: str) -> None:
        self.faults.append(f"links[{at}]: {fault}")


def _ends(link: object) -> tuple[Any, Any] | None:
    if is_object(link):
        link = [link.get("source"), link.get("target")]
    if not is_list(link) or len(link) != len(("source", "target")) or None in link:
        return None
    return link[0], link[1]


def _cycles(parents: Sequence[set[int]], what: str) -> list[str]:
    """Name the nodes of each cycle (Tarjan 1972)."""
    import networkx as nx  # noqa: PLC0415 - half a second that not every program needs

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_edges_from(
        (source, target) for target, sources in enumerate(parents) for source in sources
    )
    found: list[str] = []
    for component in nx.strongly_connected_components(graph):
        if len(component) > 1:
            members = sorted(component)
            more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
            names = ", ".join(_name(at) for at in members[:_SHOWN])
            found.append(f"{names}{more}: cycle in {what}, each waits for another of them")
    return sorted(found)
