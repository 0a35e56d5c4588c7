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
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.links import NamedLinks, cycles, name_of
from laneway.engine.providers.notation import Notation, Referred, as_plan, rewritten
from laneway.engine.providers.payload import arguments_of, described, opened
from laneway.engine.providers.reply import Reply
from laneway.engine.telling import excerpt
from laneway.errors import PlanError

NODES = ("task_nodes", "nodes", "calls")
LINKS = ("task_links", "links")
TOOL = ("task", "tool", "name")
"""What nodes, links and a node's tool may be called; the first is TaskBench's own word."""

_SPEAKS_OF_A_NODE = re.compile(r"<(?:node|output|result|generated)[^<>]*>")
_NODE = re.compile(r"<node-([0-9]+)>")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_.:/-]")


def read_taskbench_plan(
    record: Mapping[str, Any],
    *,
    tools: Collection[str] | None = None,
    parameters: Mapping[str, Sequence[str]] | None = None,
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
        tools: the names of the tools there are; None does without the check.
        parameters: of each tool, in order. Names are as TaskBench writes them or as registered.

    Raises:
        PlanError: names every fault: self reference, unknown reference, malformed reference, cycle,
            link to unknown node, self link, malformed link, links that fit more than MAX_PAIRS
            pairs, arguments that are not a list, and unknown tool, where `tools` is given.
    """
    nodes = _listed(record, NODES)
    reader = _Nodes(nodes, tools, parameters or {})
    calls = [reader.call(at, opened(node)) for at, node in enumerate(nodes)]
    links = NamedLinks(_listed(record, LINKS, needed=False), reader.names)
    linked = links.parents()
    by_reference = any(reader.referred)
    faults = [*reader.faults, *links.faults, *cycles(reader.referred, "references")]
    if not (by_reference and links.ambiguous):
        faults += cycles(linked, "links")
    if not by_reference:
        for call, sources in zip(calls, linked, strict=True):
            if is_object(call) and sources:
                call["needs"] = [name_of(source) for source in sorted(sources)]
    return as_plan(calls, faults)


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
        self,
        nodes: Sequence[Any],
        tools: Collection[str] | None,
        parameters: Mapping[str, Sequence[str]],
    ) -> None:
        self.faults: list[str] = []
        self.names: list[str] = []
        """The tool of each node."""
        self.referred: list[set[int]] = [set() for _ in nodes]
        """For each node, the nodes that its arguments refer to; never itself."""
        self._tools = None if tools is None else {_legal(name) for name in tools}
        self._parameters = {_legal(name): given for name, given in parameters.items()}
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
        call: dict[str, Any] = {"id": name_of(at), "tool": _legal(tool)}
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
        return Referred(name_of(source))

    def _where(self) -> str:
        return f"{name_of(self._at)} ({self.names[self._at]})"

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
