"""The order that links between nodes ask for, and the cycles in any order.

A link names its ends by their tools, as in TaskBench's plans, so it may fit several pairs of nodes.
Feeds the reader of such plans; gathers the faults of links.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.payload import described, opened

MAX_PAIRS = 100_000
"""Of nodes that the links of one plan may fit: a short list of links by name can fit very many."""

_SHOWN = 8

Link = tuple[str, str]


class NamedLinks:
    """The links between nodes, by the names of their tools."""

    def __init__(self, given: Iterable[Any], names: Sequence[str]) -> None:
        """Read links.

        Args:
            given: as `{"source", "target"}` or pairs, each end the name of a tool.
            names: the tool of each node.
        """
        self.faults: list[str] = []
        self._nodes: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            self._nodes.setdefault(name, []).append(at)
        self._links = list(dict.fromkeys(self._sound(given)))
        self._count = len(names)
        self.ambiguous = any(len(self._nodes[end]) > 1 for link in self._links for end in link)
        """Whether a link fits several pairs of nodes."""

    def parents(self) -> list[set[int]]:
        """For each node, the nodes that links order before it.

        A link that fits several pairs orders all in which the source is listed before the target.
        """
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


def name_of(at: int) -> str:
    """The id of a node's call."""
    return f"node-{at}"


def cycles(parents: Sequence[set[int]], what: str) -> list[str]:
    """Name the nodes of each cycle (Tarjan 1972).

    Args:
        parents: for each node, the nodes it waits for.
        what: makes it wait, for the message.
    """
    if not any(parents):
        return []
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
            names = ", ".join(name_of(at) for at in members[:_SHOWN])
            found.append(f"{names}{more}: cycle in {what}, each waits for another of them")
    return sorted(found)
