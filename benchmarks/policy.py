"""What a verdict costs: `python -m laneway.benchmarks.policy`.

A policy of a hundred rules has to judge a call in less than 5 µs, and ten thousand rules may cost
no more than a hundred times as much. Measured by the kind of policy: rules over many tools, as
people write them, and all over one argument or over commands.
"""

import timeit
from collections.abc import Callable, Iterator, Sequence
from time import process_time

import msgspec

from laneway.claims import exclusive
from laneway.effects import Effect
from laneway.policies.layers import Layers
from laneway.policies.questions import Decision, Question
from laneway.policies.rules import Policy, Rule

GATE_US = 5.0
"""Of a call, with a hundred rules of the kind that people write."""
SIZES = (100, 1_000, 10_000)
_LOOPS, _ROUNDS = 2_000, 7


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of policy costs a call."""

    policy: str
    rules: int
    us_per_call: float
    """Of the processor, the best of several rounds, microseconds."""


def mixed(n: int) -> list[Rule]:
    """Rules over many tools, as people write them: by name, effect, argument, claim."""
    kinds: Sequence[Callable[[int], Rule]] = (
        lambda i: Rule(Decision.DENY, tools=[f"tool_{i}_*"]),
        lambda i: Rule(Decision.ASK, tools=[f"svc{i}_*"], effects=[Effect.EXTERNAL]),
        lambda i: Rule(Decision.DENY, tools=["edit"], arguments={"path": f"/srv/{i}/*"}),
        lambda i: Rule(Decision.DENY, claims=[f"write file:/etc/{i}/**"]),
        lambda i: Rule(Decision.ALLOW, tools=["edit"], claims=[f"write file:/home/{i}"]),
    )
    return [kinds[i % len(kinds)](i) for i in range(n)]


def one_argument(n: int) -> list[Rule]:
    """All over one argument of one tool."""
    return [
        Rule(Decision.DENY, tools=["edit"], arguments={"path": f"/srv/{i}/*"}) for i in range(n)
    ]


def commands(n: int) -> list[Rule]:
    """All over commands."""
    return [Rule(Decision.DENY, commands=[f"program{i} *"]) for i in range(n)]


def edit(path: str) -> Question:
    """A call that writes a file, and whose command line runs two programs."""
    return Question(
        tool="edit",
        arguments={"path": path, "command": "git status && ls src"},
        effect=Effect.WRITE,
        claims=(exclusive(f"file:{path}"),),
        command_lines=("command",),
    )


def costs(sizes: Sequence[int] = SIZES, loops: int = _LOOPS) -> Iterator[Cost]:
    """Measure all kinds of policies.

    Args:
        sizes: How many rules.
        loops: Calls in a round.
    """
    misses, hit = edit("/home/me/project/src/a.py"), edit("/srv/52/a")
    for n in sizes:
        yield _cost("mixed, no rule of it fits", Policy(mixed(n)), misses, n, loops)
        yield _cost("mixed, one fits", Policy(mixed(n)), hit, n, loops)
        layers = Layers((f"layer {at}", Policy(mixed(n)[at::5])) for at in range(5))
        yield _cost("mixed, in five layers", layers, misses, n, loops)
        yield _cost("one argument, no rule fits", Policy(one_argument(n)), misses, n, loops)
        yield _cost("one argument, one fits", Policy(one_argument(n)), hit, n, loops)
        yield _cost("commands, no rule fits", Policy(commands(n)), misses, n, loops)


def table(found: Sequence[Cost]) -> str:
    """Write the costs for people."""
    lines = ["| policy | rules | µs per call |", "|---|---|---|"]
    lines += [f"| {one.policy} | {one.rules:,} | {one.us_per_call:.2f} |" for one in found]
    slowest = max((one.us_per_call for one in found if _gated(one)), default=0.0)
    word = "met" if slowest < GATE_US else "missed"
    return "\n".join([*lines, "", f"gate of {GATE_US:g} µs with 100 mixed rules: {word}"])


def _gated(cost: Cost) -> bool:
    return (
        cost.rules == SIZES[0] and cost.policy.startswith("mixed") and "layers" not in cost.policy
    )


def _cost(name: str, policy: Policy, question: Question, rules: int, loops: int) -> Cost:
    policy.decide(question)
    # The processor's time: others on the machine cost a policy nothing.
    best = min(
        timeit.repeat(
            lambda: policy.decide(question), number=loops, repeat=_ROUNDS, timer=process_time
        )
    )
    return Cost(policy=name, rules=rules, us_per_call=best / loops * 1e6)


def main() -> None:
    """Measure and print."""
    print(table(list(costs())))


if __name__ == "__main__":  # pragma: no cover - main() is tested
    main()
