"""Agent modes: how far any call may reach at all, whatever the rules allow.

Reads effects; feeds the rules, which no mode loosens and which loosen no mode.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.names import closest
from laneway.policies.questions import Decision


class Mode(msgspec.Struct, frozen=True):
    """A hard limit on effects: rules, grants and approvals pass below it, never above."""

    name: str
    effects_allowed: frozenset[Effect] = frozenset(Effect)
    """What may run, as far as the mode is concerned."""
    otherwise: Decision = Decision.DENY
    """What becomes of all other effects: deny or ask."""

    def decide(self, effect: Effect, /) -> Decision:
        """Judge an effect; a tool that declares nothing counts as external."""
        return Decision.ALLOW if effect in self.effects_allowed else self.otherwise


PLAN = Mode("plan", frozenset({Effect.PURE, Effect.READ}))
"""Nothing that changes anything."""

BUILD = Mode("build")
"""Everything that the rules let pass."""


def at_most(own: Mode, above: Mode, /) -> Mode:
    """Choose the mode of a run within another run's call: never wider than what is above it.

    Where neither is the narrower for all effects it keeps its own, and each of its calls is judged
    in both.
    """
    wider = any(
        _SEVERITY.index(own.decide(effect)) > _SEVERITY.index(above.decide(effect))
        for effect in Effect
    )
    return own if wider else above


_SEVERITY = (Decision.ALLOW, Decision.ASK, Decision.DENY)


def known_modes(own: Iterable[Mode], /) -> Mapping[str, Mode]:
    """Add the host's own modes to plan and build; both may be made stricter or ask.

    Raises:
        PolicyError: a mode has no name, is given twice, limits nothing that it says it limits,
            or is called plan and changes something.
    """
    modes = {PLAN.name: PLAN, BUILD.name: BUILD}
    seen: set[str] = set()
    for mode in own:
        if fault := fault_of(mode, seen):
            raise PolicyError(f"mode {mode.name!r}", fault)
        seen.add(mode.name)
        modes[mode.name] = mode
    return modes


def fault_of(mode: Mode, seen: Collection[str], /) -> str:
    """Say what is wrong with a mode of the host's own, empty for nothing."""
    if not mode.name:
        return "a mode needs a name"
    if mode.name in seen:
        return "it is defined twice; keep one of the two"
    if mode.otherwise not in {Decision.DENY, Decision.ASK}:
        return "otherwise must be deny or ask; a mode that allows the rest limits nothing"
    for effect in mode.effects_allowed:
        if effect not in list(Effect):
            return f"unknown effect {effect!r}{closest(effect, list(Effect))}"
    changing = [name for name in mode.effects_allowed if not Effect(name).changes_nothing]
    if mode.name == PLAN.name and changing:
        return (
            "plan promises that nothing is changed, so it cannot allow "
            f"{', '.join(sorted(changing))}; give a mode that does another name"
        )
    return ""
