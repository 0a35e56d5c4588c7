"""Modes as hard limits, and the faults of a host's own."""

import pytest

from laneway.effects import Effect
from laneway.errors import PolicyError
from laneway.policies.modes import BUILD, PLAN, Mode, known_modes
from laneway.policies.questions import Decision


def test_plan_lets_pass_exactly_what_changes_nothing() -> None:
    decisions = {effect: PLAN.decide(effect) for effect in Effect}

    assert all(
        (decision is Decision.ALLOW) is effect.changes_nothing
        for effect, decision in decisions.items()
    )
    assert Decision.ASK not in decisions.values()


def test_build_lets_everything_pass() -> None:
    assert {BUILD.decide(effect) for effect in Effect} == {Decision.ALLOW}


def test_a_mode_of_the_host_s_own_joins_plan_and_build() -> None:
    careful = Mode("careful", frozenset({Effect.READ}), Decision.ASK)

    modes = known_modes([careful])

    assert list(modes) == ["plan", "build", "careful"]
    assert modes["careful"].decide(Effect.WRITE) is Decision.ASK


def test_plan_may_be_made_to_ask_and_build_made_stricter() -> None:
    asking = Mode("plan", PLAN.effects_allowed, Decision.ASK)
    strict = Mode("build", frozenset({Effect.WRITE}))

    modes = known_modes([asking, strict])

    assert modes == {"plan": asking, "build": strict}


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ([Mode("")], "mode '': a mode needs a name"),
        ([Mode("a"), Mode("a")], "mode 'a': it is defined twice; keep one of the two"),
        (
            [Mode("a", frozenset(), Decision.ALLOW)],
            "mode 'a': otherwise must be deny or ask; a mode that allows the rest limits nothing",
        ),
        (
            [Mode("a", frozenset({"raed"}))],  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            (
                "mode 'a': unknown effect 'raed'; did you mean 'read'? "
                "(known: external, pure, read, write)"
            ),
        ),
        (
            [Mode("plan")],
            (
                "mode 'plan': plan promises that nothing is changed, so it cannot allow "
                "external, write; give a mode that does another name"
            ),
        ),
    ],
)
def test_a_mode_that_cannot_be_meant_is_refused(modes: list[Mode], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        known_modes(modes)

    assert str(caught.value) == message
