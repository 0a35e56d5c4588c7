"""What a driver brings along that decides what becomes of calls, and what of it has changed.

Reads the tools, the policy and the lanes of an engine; feeds the facts that tell of a driver, and
the host, who is told what a run that it takes up will meet.
"""

from collections.abc import Iterator, Mapping

import msgspec

from laneway.engine.serialise import digest
from laneway.engine.spec import ToolSpec
from laneway.engine.tools import Toolset
from laneway.facts import Setting
from laneway.journal.fold import RunView
from laneway.lanes.lane import Lane
from laneway.lanes.names import covers, is_lane
from laneway.policies.rules import Policy


def setting_of(tools: Toolset, policy: Policy, lanes: Mapping[str, Lane]) -> Setting:
    """Describe what an engine was made with.

    Args:
        tools: its tools.
        policy: its rules.
        lanes: those that the host configured, by canonical name.
    """
    return Setting(
        tools={tool.spec.name: mark(tool.spec) for tool in tools},
        policy=policy.digest,
        lanes={
            name: lane.max_concurrent
            for name, lane in sorted(lanes.items())
            if lane.max_concurrent is not None
        },
    )


def judged_by(setting: Setting, policy: Policy) -> Setting:
    """Describe a run that brings a layer of its own along."""
    digest = policy.digest
    if digest == setting.policy:
        return setting
    return msgspec.structs.replace(setting, policy=digest)


def mark(spec: ToolSpec) -> str:
    """A tool's version, with a digest of its schema alone behind it: `9f3c…-77aa…`."""
    return f"{spec.version}-{digest(spec.schema)[:8]}"


def changes_since(view: RunView, now: Setting) -> tuple[str, ...]:
    """Say what has changed since a run's last driver, in a sentence each.

    Only what concerns the run is told: tools that its calls asked for, the policy, lanes and other
    resources that they claim. Nothing is known of a driver who wrote nothing down.
    """
    before = view.setting
    if before == Setting() or not view.calls:
        return ()
    return (
        *_tools(view, before, now),
        *_policy(before, now),
        *_lanes(view, before, now),
        *_budgets(before, now),
    )


def _tools(view: RunView, before: Setting, now: Setting) -> Iterator[str]:
    used = {call.record.tool for call in view.calls.values()}
    for name in sorted(used):
        was, is_now = before.tools.get(name), now.tools.get(name)
        if was == is_now:
            continue
        if is_now is None:
            yield f"tool {name} is gone"
        elif was is None:
            yield f"tool {name} is there now"
        else:
            schema = was.partition("-")[2] != is_now.partition("-")[2]
            differs = "the arguments' schema differs" if schema else "what it declares differs"
            yield f"tool {name} has another version: {differs}"


def _policy(before: Setting, now: Setting) -> Iterator[str]:
    if before.policy != now.policy:
        yield "the policy is another one"


def _lanes(view: RunView, before: Setting, now: Setting) -> Iterator[str]:
    changed = [
        name
        for name in sorted({*before.lanes, *now.lanes})
        if before.lanes.get(name) != now.lanes.get(name)
    ]
    if not changed:
        return
    claimed = {
        claim.resource
        for call in view.calls.values()
        for claim in (*call.record.claims, *(call.claims or ()))
    }
    for name in changed:
        if any(covers(name, one) or covers(one, name) for one in claimed):
            was, is_now = _limit(before, name), _limit(now, name)
            told = "any number of calls" if is_now is None else f"{is_now} calls"
            told = "1 call" if is_now == 1 else told
            yield f"{name} takes {told} at once, was {'any number' if was is None else was}"


def _budgets(before: Setting, now: Setting) -> Iterator[str]:
    for key in sorted({*before.budgets, *now.budgets}):
        was, is_now = before.budgets.get(key), now.budgets.get(key)
        if was != is_now:
            told = ["as by default" if one is None else f"{one:g}" for one in (is_now, was)]
            yield f"the budget {key} is {told[0]}, was {told[1]}"


def _limit(setting: Setting, name: str) -> int | None:
    return setting.lanes.get(name, 1 if is_lane(name) else None)
