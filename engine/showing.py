"""Which tools a model is shown: all but those whose every call would be denied.

Reads the tools, the policy, the mode of a run, and whether anybody can be asked; feeds the host's
requests. What is shown is a hint, like everything that a model is told: each call is judged.
"""

from collections.abc import Iterable
from typing import Any

from laneway.effects import Effect
from laneway.engine.providers.definitions import gathered
from laneway.engine.spec import ToolSpec
from laneway.engine.tool import Tool, see_that_known
from laneway.policies.questions import Decision, Question
from laneway.policies.rules import Policy
from laneway.policies.unattended import Unattended


def definitions(
    tools: Iterable[Tool[..., Any]],
    provider: str,
    policy: Policy,
    mode: str,
    unattended: Unattended | None,
) -> list[dict[str, Any]]:
    """Write the tools that may be called at all as the provider wants them in a request.

    Args:
        tools: of the engine.
        provider: the name of a wire format, for instance `openai-chat`.
        policy: that judges the calls.
        mode: in which they are judged.
        unattended: who answers for humans, if nobody is there.

    Raises:
        UsageError: a provider that is not known.
        PolicyError: the policy has no such mode.
    """
    see_that_known(provider)
    policy.mode(mode)
    shown = [tool.definition(provider) for tool in passing(tools, policy, mode, unattended)]
    return gathered(provider, shown)


def passing(
    tools: Iterable[Tool[..., Any]], policy: Policy, mode: str, unattended: Unattended | None
) -> list[Tool[..., Any]]:
    """The tools of which not every call would be denied."""
    return [tool for tool in tools if _passes(tool.spec, policy, mode, unattended)]


def _passes(spec: ToolSpec, policy: Policy, mode: str, unattended: Unattended | None) -> bool:
    """Whether some arguments could get past the policy."""
    return any(
        _may_run(policy.possible(question), question, unattended)
        for question in (_question(spec, effect, mode) for effect in _effects(spec))
    )


def _may_run(
    decisions: frozenset[Decision], question: Question, unattended: Unattended | None
) -> bool:
    if Decision.ALLOW in decisions:
        return True
    if Decision.ASK not in decisions:
        return False
    return unattended is None or unattended.may_allow(question)


def _effects(spec: ToolSpec) -> list[Effect]:
    """What a call may turn out to do: at most what the tool declares."""
    effects = list(Effect)
    return effects[: effects.index(spec.effect) + 1] if spec.effect_of else [spec.effect]


def _question(spec: ToolSpec, effect: Effect, mode: str) -> Question:
    return Question(
        tool=spec.name,
        arguments=None,
        effect=effect,
        mode=mode,
        declared=spec.declared,
        asks=spec.approval,
        server=spec.server,
        agent=spec.agent,
        risk=spec.risk,
        command_lines=spec.command_lines,
    )
