"""What a re-execution has found: the first decision that would be another one now, or none."""

import msgspec

from laneway.ids import CallId, RunId


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A decision of the engine that is recorded so, and would be another one now."""

    seq: int
    """Of the recorded fact. Where nothing stands for what is decided now: of the last before it."""
    turn: int
    """0 for what belongs to no turn."""
    call: CallId | None
    """None for what is about a turn or the run as a whole."""
    name: str = ""
    """The provider's id of the call."""
    tool: str = ""
    recorded: str
    """What was decided then; `nothing` where no fact stands for it."""
    now: str
    """What is decided now."""
    sentence: str
    """Both, and what follows, for people."""

    def __str__(self) -> str:
        return self.sentence


class Reexecution(msgspec.Struct, frozen=True, kw_only=True):
    """How the recorded decisions of a run compare with those of today's code, policy and tools."""

    run: RunId
    divergences: tuple[Divergence, ...] = ()
    """The first alone, unless all were asked for: then at most one of each turn."""
    decisions: int
    """How many recorded decisions were made again alike."""
    earlier: int = 0
    """Starts that came later then, for something that is not of this run: other runs held a lane,
    or an operator, a rate or a thread was waited for."""
    by_durations: bool = False
    """Calls of one turn took their places in a wide lane by how long calls took before, as far as
    an engine knew that then; the record says in which order, and that order was kept."""

    priorities: dict[str, int] = {}
    """Of tools that the host has not given: the lowest that explain who overtook whom, since none
    are recorded."""

    @property
    def divergence(self) -> Divergence | None:
        """The first decision that differs; None if all are the same."""
        return self.divergences[0] if self.divergences else None

    @property
    def same(self) -> bool:
        """Whether every recorded decision was made again alike."""
        return not self.divergences

    def __str__(self) -> str:
        alike = f"{self.decisions} decision{'' if self.decisions == 1 else 's'} alike"
        lines = [
            f"{self.run}: the same, {alike}"
            if self.same
            else f"{self.run}: {len(self.divergences)} diverged, {alike} before"
        ]
        lines += [str(one) for one in self.divergences]
        if self.earlier:
            lines.append(
                f"({self.earlier} started later then than they had to for this run alone: other "
                "runs, an operator, a rate or a thread was waited for)"
            )
        if self.by_durations:
            lines.append("(the order of the longest path goes by the record)")
        if self.priorities:
            found = ", ".join(f"{name} {most}" for name, most in sorted(self.priorities.items()))
            lines.append(f"(who overtook whom is explained by priorities: {found})")
        return "\n".join(lines)
