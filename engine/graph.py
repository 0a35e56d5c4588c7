"""From the calls of one turn to a DAG whose edges say why.

Reads, of each call, its name, what it declares (needs, after), what it refers to and what it
claims; gives a networkx DiGraph for analysis and pictures, and flat lists for the scheduler. All
faults of the graph are named here, before anything runs.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from laneway.calls import Edge, Reason
from laneway.claims import Access, Claim
from laneway.ids import CallId
from laneway.lanes.names import levels
from laneway.outcomes import Code, Failure

if TYPE_CHECKING:
    import networkx as nx


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the analysis knows of a call."""

    id: CallId
    name: str
    """The id by which the model and other calls name it."""
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    """(name, path) of each reference."""
    claims: tuple[Claim, ...] = ()
    out: bool = False
    """The call has a fault of its own and will not run: it conflicts with nothing."""
    inside: CallId | None = None
    """The plan call that it is part of: it knows the names of that plan only, and the plan call
    ends after it."""


class CallGraph(msgspec.Struct, kw_only=True):
    """The DAG of one turn. Positions are places in the turn's list of calls, from 0."""

    ids: list[CallId]
    edges: list[Edge]
    successors: list[list[tuple[int, Reason]]]
    waits: list[int]
    """How many edges lead into each call."""
    faults: dict[int, Failure]
    """Calls that cannot run, by position: cycles and names that lead nowhere."""
    earlier: dict[int, list[str]]
    """Names of calls of earlier turns that a call needs."""


def digraph(ids: Iterable[CallId], edges: Iterable[Edge]) -> "nx.DiGraph[CallId]":
    """The graph for analysis: nodes are call ids, edges carry `reason` and `detail`.

    Where several edges lead from one call to another, the first is drawn: what must succeed is
    named before what only must have ended.
    """
    import networkx as nx  # noqa: PLC0415 - half a second that not every program needs

    graph: nx.DiGraph[CallId] = nx.DiGraph()
    graph.add_nodes_from(ids)
    graph.add_edges_from(
        (edge.source, edge.target, {"reason": edge.reason, "detail": edge.detail})
        for edge in reversed(tuple(edges))
    )
    return graph


def analyse(nodes: Sequence[Node], earlier: Mapping[str, object] = {}) -> CallGraph:
    """Build the graph of a turn.

    Conflict edges lead from the call that was asked for first to the later one, except where an
    explicit edge orders them the other way.

    Args:
        nodes: in request order; names are unique in the turn, and in each plan of it.
        earlier: names of calls of earlier turns, which may be needed or referred to.
    """
    graph = CallGraph(
        ids=[node.id for node in nodes],
        edges=[],
        successors=[[] for _ in nodes],
        waits=[0] * len(nodes),
        faults={},
        earlier={},
    )
    linked: list[set[int]] | None = None
    if any(node.needs or node.after or node.data or node.inside for node in nodes):
        linked = [set() for _ in nodes]
        _link(nodes, earlier, graph, linked)
        order = _order(nodes, graph, linked)
    else:
        order = list(range(len(nodes)))
    _conflicts(nodes, order, graph, linked)
    return graph


def _link(
    nodes: Sequence[Node],
    earlier: Mapping[str, object],
    graph: CallGraph,
    linked: list[set[int]],
) -> None:
    """Draw the declared edges and those of references; `linked` holds each call's sources."""
    places: defaultdict[CallId | None, dict[str, int]] = defaultdict(dict)
    for at, node in enumerate(nodes):
        places[node.inside][node.name] = at
    plans = {node.id: at for at, node in enumerate(nodes) if node.id in places}
    held_up: dict[int, list[tuple[int, Reason]]] = {at: [] for at in plans.values()}
    for target, node in enumerate(nodes):
        place = places[node.inside]
        dangling: dict[str, None] = {}
        declared = [
            *((name, Reason.NEEDS, "") for name in node.needs),
            *((name, Reason.DATA, path) for name, path in node.data),
            *((name, Reason.AFTER, "") for name in node.after),
        ]
        for name, reason, detail in declared:
            source = place.get(name)
            if source is not None:
                _draw(graph, linked, source, target, reason, detail)
                if target in held_up:
                    held_up[target].append((source, reason))
            elif name in earlier:
                if reason is not Reason.AFTER:
                    graph.earlier.setdefault(target, []).append(name)
            else:
                dangling[name] = None
        if dangling:
            graph.faults[target] = _dangling(node, dangling, place)
        plan = plans.get(node.inside) if node.inside else None
        if plan is not None:
            _wait_with(plan, held_up[plan], target, nodes, graph, linked)
            _draw(graph, linked, target, plan, Reason.AFTER, "")


def _wait_with(
    plan: int,
    held_up: Sequence[tuple[int, Reason]],
    target: int,
    nodes: Sequence[Node],
    graph: CallGraph,
    linked: list[set[int]],
) -> None:
    """Let a call of a plan wait for what the call that holds it waits for, and fail with that."""
    for source, reason in held_up:
        why = Reason.NEEDS if reason.carries_failure else Reason.AFTER
        _draw(graph, linked, source, target, why, "")
    if plan in graph.earlier:
        graph.earlier.setdefault(target, []).extend(graph.earlier[plan])
    if plan in graph.faults and target not in graph.faults:
        graph.faults[target] = Failure(
            code=Code.DEPENDENCY_FAILED,
            message=f"{nodes[target].name} was not run: {nodes[plan].name}, which holds it, cannot "
            "be run.",
            cause=nodes[plan].id,
        )


def _draw(
    graph: CallGraph,
    linked: list[set[int]],
    source: int,
    target: int,
    reason: Reason,
    detail: str,
) -> None:
    ids = graph.ids
    graph.edges.append(Edge(ids[source], ids[target], reason, detail))
    graph.successors[source].append((target, reason))
    graph.waits[target] += 1
    linked[target].add(source)


def _order(nodes: Sequence[Node], graph: CallGraph, linked: list[set[int]]) -> list[int]:
    """Order the calls by their explicit edges, then by request; name the cycles.

    Kahn 1962, with a heap over positions: of all orders that respect the edges, the one closest
    to the request.
    """
    waits = [len(sources) for sources in linked]
    ready = [at for at, count in enumerate(waits) if not count]
    order = _follow(ready, waits, graph)
    if len(order) < len(nodes):
        members = _name_cycles(nodes, graph)
        # They will not run; what comes behind them still has an order.
        freed = _count_down(members, waits, graph)
        order += members
        order += _follow([at for at in freed if at not in members], waits, graph)
    return order


def _follow(ready: list[int], waits: list[int], graph: CallGraph) -> list[int]:
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for target in _count_down([at], waits, graph):
            heappush(ready, target)
    return order


def _count_down(sources: Iterable[int], waits: list[int], graph: CallGraph) -> list[int]:
    """Take sources off what their targets wait for; name the targets that wait no more."""
    freed: list[int] = []
    for source in sources:
        for target in {target for target, _ in graph.successors[source]}:
            waits[target] -= 1
            if not waits[target]:
                freed.append(target)
    return freed


def _name_cycles(nodes: Sequence[Node], graph: CallGraph) -> dict[int, None]:
    """Fail the members of each cycle, and give them; what depends on one is skipped later."""
    import networkx as nx  # noqa: PLC0415 - as in digraph

    place = {node.id: at for at, node in enumerate(nodes)}
    drawn = digraph(graph.ids, graph.edges)
    failed: dict[int, None] = {}
    for component in nx.strongly_connected_components(drawn):
        members = sorted(place[member] for member in component)
        if len(members) == 1 and not drawn.has_edge(graph.ids[members[0]], graph.ids[members[0]]):
            continue
        names = _shown([nodes[at].name for at in members])
        failed.update(dict.fromkeys(members))
        for at in members:
            other = graph.faults.get(at)
            graph.faults[at] = Failure(
                code=Code.DEPENDENCY_CYCLE,
                message=("" if other is None else f"{other.message.removesuffix('.')}; ")
                + (
                    f"{nodes[at].name} waits for itself"
                    if len(members) == 1
                    else f"the calls {names} wait for one another in a cycle"
                )
                + ", so it can never start.",
                hint="Ask again without one of these dependencies.",
            )
    return failed


def _dangling(node: Node, names: Collection[str], place: Mapping[str, int]) -> Failure:
    told = _shown([repr(name) for name in names])
    none = "no call has that name" if len(names) == 1 else "no calls have those names"
    return Failure(
        code=Code.BAD_REFERENCE,
        message=f"{node.name} depends on {told}, but {none}.",
        hint=f"The calls of this {'plan' if node.inside else 'turn'} are: {_shown(place)}.",
    )


def _shown(names: Collection[str]) -> str:
    """List names, but not thousands of them in each of thousands of messages."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(islice(names, _MOST_NAMES)) + more


_MOST_NAMES = 20


def _conflicts(
    nodes: Sequence[Node], order: Sequence[int], graph: CallGraph, linked: list[set[int]] | None
) -> None:
    board = Scoreboard()
    for target in order:
        node = nodes[target]
        if node.out or target in graph.faults or not node.claims:
            continue
        drawn = linked[target] if linked is not None else ()
        sources: dict[int, str] = {}
        for claim in node.claims:
            if not claim.resource.startswith("lane:"):
                for source, resource in board.meet(target, claim):
                    sources.setdefault(source, resource)
        for source, resource in sources.items():
            if source not in drawn and source != target:
                ids = graph.ids
                graph.edges.append(Edge(ids[source], ids[target], Reason.CONFLICT, resource))
                graph.successors[source].append((target, Reason.CONFLICT))
                graph.waits[target] += 1


class _Cell:
    """Who touched a resource: its last writer, and the readers since then."""

    __slots__ = ("below", "readers", "writer")

    def __init__(self) -> None:
        self.writer: int | None = None
        self.readers: list[int] = []
        self.below: set[str] = set()
        """Resources one level down that have been touched."""


class Scoreboard:
    """An index over resources that finds RAW, WAR and WAW hazards without comparing pairs.

    As in a processor's scoreboard (Thornton 1964, CDC 6600), only the last writer of a resource
    and the readers since then can matter to the next call; here resources are nested, so a call
    also meets what was done above and below.
    """

    def __init__(self) -> None:
        """Start with nothing touched."""
        self._cells: dict[str, _Cell] = {}

    def meet(self, call: int, claim: Claim) -> list[tuple[int, str]]:
        """Enter a claim; return the earlier calls it must wait for, with the resource they share.

        Cost: the depth of the resource, plus what is found; an exclusive claim forgets all that
        it has found below itself, since whoever comes later waits for this call.
        """
        path = levels(claim.resource)
        writes = claim.access is Access.EXCLUSIVE
        found: list[tuple[int, str]] = []
        for resource in path[:-1]:
            cell = self._cells.get(resource)
            if cell is not None:
                self._collect(cell, resource, found, readers=writes)
        own = self._cell(path)
        self._collect(own, claim.resource, found, readers=writes)
        self._collect_below(own, found, readers=writes, forget=writes)
        if writes:
            own.writer = call
            own.readers = []
        else:
            own.readers.append(call)
        return [(source, resource) for source, resource in found if source != call]

    def _cell(self, path: Sequence[str]) -> _Cell:
        above: _Cell | None = None
        cell = None
        for resource in path:
            cell = self._cells.get(resource)
            if cell is None:
                cell = self._cells[resource] = _Cell()
                if above is not None:
                    above.below.add(resource)
            above = cell
        assert cell is not None
        return cell

    @staticmethod
    def _collect(
        cell: _Cell, resource: str, found: list[tuple[int, str]], *, readers: bool
    ) -> None:
        if cell.writer is not None:
            found.append((cell.writer, resource))
        if readers:
            found.extend((reader, resource) for reader in cell.readers)

    def _collect_below(
        self, cell: _Cell, found: list[tuple[int, str]], *, readers: bool, forget: bool
    ) -> None:
        pending = list(cell.below)
        while pending:
            resource = pending.pop()
            inner = self._cells[resource]
            self._collect(inner, resource, found, readers=readers)
            pending.extend(inner.below)
            if forget:
                del self._cells[resource]
        if forget:
            cell.below.clear()
