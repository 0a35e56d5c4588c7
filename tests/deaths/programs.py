"""What a case is: the calls of a few turns, and how the processes die that play them.

Reads a seed and nothing else; feeds the lives, which play a case, and the judge, who knows from
here what must hold between its calls.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Literal

import msgspec

from laneway import Effect

RUN = "case"
LANES = {"bank": 1, "mail": 2, "ship": 1, "ask": 1, "lose": 1}
"""How many may be in each lane at once."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, as far as the judge has to know it."""

    effect: Effect | None
    """None for a tool of which nothing is said: it runs alone in its run."""
    file: Literal["", "read", "write"] = ""
    """What it does to its path."""
    lane: str = ""
    idempotent: bool = False
    sync: bool = False
    timeout: float | None = None
    ends: Literal["", "FAILED", "TIMED_OUT", "UNCERTAIN"] = ""
    """How it ends, if it is not with success."""

    @property
    def repeatable(self) -> bool:
        """Whether its body may be entered again after it has been entered."""
        return self.idempotent or self.effect in (Effect.PURE, Effect.READ)


KINDS = {
    "pure": Kind(effect=Effect.PURE),
    "look": Kind(effect=Effect.READ, file="read"),
    "scan": Kind(effect=Effect.READ, file="read", sync=True),
    "write": Kind(effect=Effect.WRITE, file="write"),
    "save": Kind(effect=Effect.WRITE, file="write", sync=True),
    "put": Kind(effect=Effect.WRITE, file="write", idempotent=True),
    "pay": Kind(effect=Effect.EXTERNAL, lane="bank"),
    "mail": Kind(effect=Effect.EXTERNAL, lane="mail"),
    "ship": Kind(effect=Effect.EXTERNAL, lane="ship"),
    "free": Kind(effect=Effect.EXTERNAL),
    "raw": Kind(effect=None),
    "ask": Kind(effect=Effect.EXTERNAL, lane="ask"),
    "flaky": Kind(effect=Effect.READ, file="read"),
    "retry": Kind(effect=Effect.WRITE, file="write", idempotent=True),
    "lose": Kind(effect=Effect.EXTERNAL, lane="lose", ends="UNCERTAIN"),
    "bad": Kind(effect=Effect.READ, ends="FAILED"),
    "hang": Kind(effect=Effect.READ, file="read", timeout=0.01, ends="TIMED_OUT"),
    "drag": Kind(effect=Effect.WRITE, file="write", sync=True, timeout=0.01, ends="TIMED_OUT"),
    "outer": Kind(effect=Effect.WRITE, file="write"),
    "again": Kind(effect=Effect.WRITE, file="write", idempotent=True),
    "thread": Kind(effect=Effect.WRITE, file="write", idempotent=True, sync=True),
    "plan": Kind(effect=Effect.PURE),
}
NESTING = ("outer", "again", "thread")
WITHIN = ("pure", "look", "save", "put", "pay", "mail", "ask", "raw", "bad")
PLANNED = ("pure", "look", "write", "put", "pay", "mail", "ask", "flaky", "raw")
ALONE = tuple(kind for kind in KINDS if kind not in (*NESTING, "plan"))
COMMON = ("pure", "look", "write", "put", "pay", "mail")
PATHS = ("a", "b", "d", "d/x", "d/y")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as its program wants it."""

    label: str
    kind: str
    path: str = "a"
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    refers: str = ""
    """Whose value it is given."""
    how: Literal["value", "text", "path"] = "value"
    twin: str = ""
    """The call whose arguments it repeats, in a flight of both."""
    fails: int = 0
    """How many of its first attempts lose their connection."""
    pause_ms: float = 0.0
    size: int = 0
    """Characters by which its value is made longer."""
    parts: tuple["Call", ...] = ()
    """The calls of a plan, or those that its body makes."""
    beside: bool = False
    """Whether its body makes them side by side."""
    grant: bool = True
    """What a human answers who is asked about it."""
    settle: bool = False
    """Whether a human finds out, after a death, that it did happen."""

    @property
    def sources(self) -> tuple[str, ...]:
        """What must have succeeded before it starts."""
        return (*self.needs, self.refers) if self.refers else self.needs

    def asked(self) -> dict[str, Any]:
        """Write it as a plan does."""
        wanted = {
            "id": self.label,
            "tool": self.kind,
            "arguments": {"calls": [part.asked() for part in self.parts]}
            if self.kind == "plan"
            else self.arguments(),
        }
        edges = {"needs": list(self.needs), "after": list(self.after)}
        return {**wanted, **{name: edge for name, edge in edges.items() if edge}}

    def arguments(self) -> dict[str, Any]:
        """What its tool is given, references included."""
        given: dict[str, Any] = {
            "id": self.twin or self.label,
            "path": f"d/${{{self.refers}}}" if self._of_path else self.path,
            "more": "",
            "fails": self.fails,
            "pause_ms": self.pause_ms,
            "size": self.size,
        }
        if self.refers and self.how == "value":
            given["more"] = {"$from": self.refers}
        elif self.refers and self.how == "text":
            given["more"] = f"see ${{{self.refers}}}"
        if self.kind in NESTING:
            given["parts"] = [{"tool": one.kind, "given": one.arguments()} for one in self.parts]
            given["beside"] = self.beside
        return given

    @property
    def _of_path(self) -> bool:
        return bool(self.refers) and self.how == "path"


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """How a life is to end."""

    kind: Literal["before", "amid", "after", "body", "take", "time", "mute", "close"]
    """Around a commit, in a tool's body, while the run is taken, from outside, before a human who
    does not answer, while all is closed."""
    at: int = 1
    """At the how manieth of them, from 1; one that never comes kills nobody."""
    ms: float = 0.0
    """After so much time: from outside, of the life; else, since what it dies in began."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A program, and the deaths that it is to survive."""

    seed: int
    turns: tuple[tuple[Call, ...], ...]
    deaths: tuple[Death, ...]

    def calls(self) -> Iterator[Call]:
        """All of them, those within others too."""
        for turn in self.turns:
            yield from everything(turn)


def everything(calls: Sequence[Call]) -> Iterator[Call]:
    """Calls, each followed by those within it."""
    for call in calls:
        yield call
        yield from everything(call.parts)


def case_of(seed: int) -> Case:
    """Make the case of a seed."""
    chance = Random(seed)
    turns: list[tuple[Call, ...]] = []
    for number in range(1, chance.choice((1, 1, 2, 3)) + 1):
        earlier = [call for turn in turns for call in turn]
        turns.append(_turn(chance, f"t{number}", earlier))
    return Case(seed=seed, turns=tuple(turns), deaths=_deaths(chance))


def _deaths(chance: Random) -> tuple[Death, ...]:
    deaths = [_death(chance)]
    while len(deaths) < 6 and chance.random() < 0.6:
        deaths.append(_death(chance))
    return tuple(deaths)


def _death(chance: Random) -> Death:
    kinds = ("before", "amid", "after", "body", "take", "time", "mute", "close")
    (kind,) = chance.choices(kinds, (18, 12, 18, 26, 6, 14, 4, 2))
    at = 1 + min(int(chance.expovariate(0.3)), 40)
    ms = chance.uniform(0, 60)
    if kind == "body":
        at = 1 + min(int(chance.expovariate(0.2)), 60)
    elif kind == "take":
        at, ms = 1, chance.choice((0, chance.uniform(0, 2)))
    elif kind in ("mute", "close"):
        at = 1
    elif kind == "amid":
        ms = chance.uniform(0, 1.5)
    return Death(kind=kind, at=at, ms=ms)  # type: ignore[arg-type]


def _turn(chance: Random, name: str, earlier: Sequence[Call]) -> tuple[Call, ...]:
    calls: list[Call] = []
    for number in range(1, chance.choice((1, 2, 3, 4, 5, 6, 8)) + 1):
        calls.append(_call(chance, f"{name}c{number}", calls, earlier))
    if chance.random() < 0.3:
        chance.shuffle(calls)
    return tuple(calls)


def _call(chance: Random, label: str, before: Sequence[Call], earlier: Sequence[Call]) -> Call:
    pures = [one for one in before if one.kind == "pure" and not one.twin and not one.refers]
    if pures and chance.random() < 0.3:
        first = chance.choice(pures)
        return msgspec.structs.replace(first, label=label, twin=first.label, needs=(), after=())
    luck = chance.random()
    if luck < 0.08:
        parts: list[Call] = []
        for number in range(1, chance.randint(1, 4) + 1):
            parts.append(_alone(chance, f"{label}p{number}", PLANNED, parts, earlier))
        return Call(label=label, kind="plan", parts=tuple(parts))
    if luck < 0.22:
        within = tuple(
            _alone(chance, f"{label}n{number}", WITHIN, (), ())
            for number in range(1, chance.randint(1, 3) + 1)
        )
        call = _alone(chance, label, NESTING, before, earlier)
        beside = call.kind != "thread" and chance.random() < 0.4
        return msgspec.structs.replace(call, parts=within, beside=beside)
    return _alone(chance, label, COMMON if luck < 0.55 else ALONE, before, earlier)


def _alone(
    chance: Random,
    label: str,
    kinds: Sequence[str],
    before: Sequence[Call],
    earlier: Sequence[Call],
) -> Call:
    kind = chance.choice(kinds)
    names = [one.label for one in before]
    telling = [one for one in (*before, *earlier) if one.kind != "plan"]
    refers = chance.choice(telling).label if telling and chance.random() < 0.3 else ""
    small = {one.label for one in telling if not one.size}
    of_path = bool(KINDS[kind].file) and refers in small and kind not in NESTING
    few = min(len(names), 2)
    return Call(
        label=label,
        kind=kind,
        path=chance.choice(PATHS),
        needs=tuple(chance.sample(names, few)) if few and chance.random() < 0.3 else (),
        after=tuple(chance.sample(names, few)) if few and chance.random() < 0.2 else (),
        refers=refers,
        how=chance.choice(("value", "text", "path") if of_path else ("value", "text")),
        fails=chance.randint(1, 2) if kind in ("flaky", "retry") else 0,
        pause_ms=round(chance.choice((0.0, 0.0, 1.0, chance.uniform(0, 4))), 2),
        size=chance.choice((1, 40_000)) if chance.random() < 0.06 else 0,
        grant=chance.random() < 0.7,
        settle=chance.random() < 0.4,
    )
