"""Several policies, the broadest first: host, project, user, session, run.

Each layer judges every call for itself, and the strictest verdict is what is decided: nothing below
allows what a layer above denies, or silences what it asks. A layer may leave to those below it what
none of its own rules match. Reads policies; feeds the engine, for which it is one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, cast

import msgspec

from laneway.errors import PolicyError
from laneway.policies.grants import Demands
from laneway.policies.modes import BUILD, Mode
from laneway.policies.names import closest
from laneway.policies.precedence import TOOL_ASKS
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.rules import DEFAULT, Kind, Policy, kind_of

LAYERS: Final = ("host", "project", "user", "session")
"""The names of layers that a mapping may hold, the broadest first."""
RUN: Final = "run"
"""The narrowest layer, which a run brings along."""

OnePolicy = Policy | str | Path
"""A policy, or the path of one."""
AnyPolicy = OnePolicy | Mapping[str, OnePolicy] | Iterable[OnePolicy]
"""One policy, or layers: by name, or in order, the broadest first."""

_KINDS_MAX = 4096


class Layers(Policy):
    """Judges calls by all layers: deny beats ask beats allow; the broadest that says so is named.

    The tool's own wish to ask is heard by the broadest layer alone, so that only a rule of that one
    can allow `without_asking`. A mode means in each layer what that layer says it means; for one
    that does not know it, it is `build`.
    """

    __slots__ = ("_kinds", "_yielding", "layers")

    def __init__(self, layers: Iterable[tuple[str, Policy]]) -> None:
        """Put layers on each other.

        Args:
            layers: Names and policies, the broadest first; at least one.
        """
        super().__init__()
        self.layers = tuple(layers)
        """Names and policies, the broadest first."""
        self._yielding = [
            policy.giving_way() if policy.narrower_may_allow else None for _, policy in self.layers
        ]
        self._kinds: dict[Kind, Sequence[_Seat]] = {}

    @property
    def digest(self) -> str:
        """SHA-256 over names and digests; empty if a layer is of the host's own making."""
        digests = [(name, policy.digest) for name, policy in self.layers]
        if not all(own for _, own in digests):
            return ""
        return sha256(msgspec.json.encode(digests)).hexdigest()[:16]

    def decide(self, question: Question, /) -> Verdict:
        """Judge one call."""
        seats = self._kinds.get(kind_of(question)) or self._seated(question)
        said = [seat.policy.decide(seat.view(question)) for seat in seats]
        strictest, name, most = said[0], "", -1
        for at, seat in enumerate(seats):
            verdict, policy = said[at], seat.policy
            if seat.yielding and policy.is_default(verdict) and _granted(seats, said, at):
                policy = seat.yielding
                verdict = policy.decide(seat.view(question))
            rank = _RANKS[verdict.decision] or not policy.is_default(verdict)
            if rank > most:
                strictest, name, most = verdict, seat.name, rank
        return Verdict(strictest.decision, _label(name, strictest.rule), strictest.reason)

    def demands(self, question: Question, /) -> Demands:
        """Say what any layer wants of the answer."""
        wanted = Demands()
        for seat in self._seated(question):
            wanted |= seat.policy.demands(seat.view(question))
        return wanted

    def possible(self, question: Question, /) -> frozenset[Decision]:
        """Say what may become of calls that differ from this one in arguments and claims only."""
        found = frozenset({Decision.ALLOW})
        seats = self._seated(question)
        for at, seat in enumerate(seats):
            view = seat.view(question)
            own = seat.policy.possible(view)
            if seat.yielding and any(
                below.policy.may_grant(below.view(question)) for below in seats[at + 1 :]
            ):
                own |= seat.yielding.possible(view)
            found = frozenset(max(one, two, key=_RANKS.__getitem__) for one in found for two in own)
        return found

    def may_grant(self, question: Question, /) -> bool:
        """Whether a rule of any layer allows some calls of this kind."""
        seats = self._seated(question)
        return any(seat.policy.may_grant(seat.view(question)) for seat in seats)

    def is_default(self, verdict: Verdict, /) -> bool:
        """Whether a verdict was given because no rule of any layer matches."""
        return verdict.rule in {_label(name, DEFAULT) for name, _ in self.layers}

    def mode(self, name: str, /) -> Mode:
        """Find a mode by its name, as the broadest layer that knows it describes it.

        Raises:
            PolicyError: no layer does; the message names those there are.
        """
        for _, policy in self.layers:
            if _knows(policy, name):
                return policy.mode(name)
        raise PolicyError(
            f"mode {name!r}",
            f"there is no such mode{closest(name, {mode.name for mode in self.modes})}",
        )

    @property
    def modes(self) -> Collection[Mode]:
        """All that any layer knows."""
        found = {mode.name: mode for _, policy in reversed(self.layers) for mode in policy.modes}
        return found.values()

    def _seated(self, question: Question) -> "Sequence[_Seat]":
        if len(self._kinds) >= _KINDS_MAX:  # the names of tools and modes come from outside
            self._kinds.clear()
        knowing = [_knows(policy, question.mode) for _, policy in self.layers]
        seats: list[_Seat] = []
        for at, (name, policy) in enumerate(self.layers):
            mode = question.mode if knowing[at] or not any(knowing) else BUILD.name
            asks = question.asks and not at
            changed = mode != question.mode or asks != question.asks
            heard = (mode, asks) if changed else None
            seats.append(_Seat(name, policy, self._yielding[at], heard))
        self._kinds[kind_of(question)] = seats
        return seats


class _Seat(msgspec.Struct, frozen=True):
    """A layer as it hears one kind of question."""

    name: str
    policy: Policy
    yielding: Policy | None
    """The same with an `otherwise` that allows, if it leaves that to narrower layers."""
    hears: tuple[str, bool] | None
    """Another mode, and whether the tool asks, than the question says; None for the same."""

    def view(self, question: Question) -> Question:
        """The question, as this layer hears it."""
        if self.hears is None:
            return question
        mode, asks = self.hears
        return msgspec.structs.replace(question, mode=mode, asks=asks)


def policy_of(given: AnyPolicy | None, /) -> Policy:
    """Make the one policy that a host meant; without any, everything is allowed.

    Raises:
        PolicyError: a file cannot be read, or a layer has no name that there is.
    """
    if given is None:
        return Policy()
    if isinstance(given, (Policy, str, Path)):
        return _read(given, ())
    layers: list[tuple[str, Policy]] = []
    for name, one in _named(given):
        modes = [mode for _, policy in layers for mode in policy.modes]
        layers.append((name, _read(one, modes)))
    return Layers(layers) if layers else Policy()


def with_run_layer(policy: Policy, narrower: OnePolicy | None, /) -> Policy:
    """Put the layer of a run below all others, which it can only narrow.

    Raises:
        PolicyError: its file cannot be read.
    """
    if narrower is None:
        return policy
    above = policy.layers if isinstance(policy, Layers) else ((LAYERS[0], policy),)
    return Layers([*above, (RUN, _read(narrower, policy.modes))])


def _read(one: OnePolicy, modes: Collection[Mode]) -> Policy:
    return one if isinstance(one, Policy) else Policy.from_toml(Path(one), modes=modes)


def _named(given: "Mapping[str, OnePolicy] | Iterable[OnePolicy]") -> list[tuple[str, OnePolicy]]:
    """List layers by name, the broadest first."""
    if not isinstance(given, Mapping):
        return [(f"layer {n}", one) for n, one in enumerate(given, 1)]
    by_name = cast("Mapping[str, OnePolicy]", given)
    for name in by_name:
        if name == RUN:
            raise PolicyError("policy", "the layer of a run is given to engine.run(name, policy=…)")
        if name not in LAYERS:
            raise PolicyError("policy", f"unknown layer {name!r}{closest(name, LAYERS)}")
    return [(name, by_name[name]) for name in LAYERS if name in by_name]


def _granted(seats: "Sequence[_Seat]", said: Sequence[Verdict], above: int) -> bool:
    """Whether a rule of a layer below allows the call."""
    return any(
        verdict.decision is Decision.ALLOW and not seat.policy.is_default(verdict)
        for seat, verdict in zip(seats[above + 1 :], said[above + 1 :], strict=True)
    )


def _label(layer: str, rule: str) -> str:
    """Name the layer with the rule; a tool asks on its own."""
    return rule if rule == TOOL_ASKS else f"{layer}: {rule}"


def _knows(policy: Policy, mode: str) -> bool:
    try:
        policy.mode(mode)
    except PolicyError:
        return False
    return True


_RANKS = {Decision.ALLOW: 0, Decision.ASK: 2, Decision.DENY: 3}
"""What is said for want of a rule ranks below a rule that allows: 0 and 1."""
