"""Layers of policies: the strictest verdict counts, and nothing below lifts what is said above."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Code, Decision, Effect, Engine, Failure, Policy, Rule, State, ToolContext, tool
from laneway.errors import PolicyError
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.policies.layers import Layers, policy_of, with_run_layer
from laneway.policies.modes import Mode
from laneway.policies.questions import Question, Verdict

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
SEVERITY = [ALLOW, ASK, DENY]


def question(name: str = "edit", **more: Any) -> Question:
    return Question(tool=name, arguments={}, **more)


def layers(**policies: Policy) -> Policy:
    return policy_of(policies)


def rule(decision: Decision, *tools: str, **more: Any) -> Rule:
    return Rule(decision, tools=tools or ("edit",), **more)


def test_the_broadest_layer_is_first_whatever_the_order_of_the_mapping() -> None:
    policy = policy_of({"user": Policy([rule(DENY)]), "host": Policy([rule(DENY)])})

    assert policy.decide(question()).rule == "host: rule 1"


def test_the_verdict_names_layer_rule_file_and_line(tmp_path: Path) -> None:
    host, user = tmp_path / "host.toml", tmp_path / "user.toml"
    host.write_text('\n[[rule]]\ndecision = "ask"\ntools = ["edit"]\nname = "a"\n')
    user.write_text('[[rule]]\ndecision = "deny"\nmodes = ["plan"]\ntools = ["*"]\nname = "b"\n')
    policy = policy_of({"host": host, "user": str(user)})

    assert policy.decide(question()).rule == "host: host.toml:2 (a)"
    assert policy.decide(question(mode="plan", effect=Effect.READ)).rule == "user: user.toml:1 (b)"
    assert policy.decide(question("x")).rule == "host: default"


@pytest.mark.parametrize(
    ("above", "below", "decision", "named"),
    [
        (Policy([rule(DENY)]), Policy([rule(ALLOW)]), DENY, "host: rule 1"),
        (Policy([rule(ASK)]), Policy([rule(ALLOW, without_asking=True)]), ASK, "host: rule 1"),
        (Policy([rule(ALLOW)]), Policy([rule(DENY)]), DENY, "user: rule 1"),
        (Policy([rule(ALLOW)]), Policy([rule(ASK)]), ASK, "user: rule 1"),
        (Policy(otherwise=DENY), Policy([rule(ALLOW)]), DENY, "host: default"),
        (Policy(otherwise=ASK), Policy([rule(ALLOW)]), ASK, "host: default"),
        (Policy(otherwise=ALLOW), Policy(otherwise=DENY), DENY, "user: default"),
        (Policy(), Policy([rule(ALLOW)]), ALLOW, "user: rule 1"),
        (Policy([rule(ALLOW)]), Policy([rule(ALLOW)]), ALLOW, "host: rule 1"),
        (
            Policy(otherwise=DENY, narrower_may_allow=True),
            Policy([rule(ALLOW)]),
            ALLOW,
            "user: rule 1",
        ),
        (Policy(otherwise=DENY, narrower_may_allow=True), Policy(), DENY, "host: default"),
        (
            Policy([rule(ASK)], otherwise=DENY, narrower_may_allow=True),
            Policy([rule(ALLOW)]),
            ASK,
            "host: rule 1",
        ),
    ],
)
def test_what_a_layer_below_may_say(
    above: Policy, below: Policy, decision: Decision, named: str
) -> None:
    verdict = layers(host=above, user=below).decide(question())

    assert (verdict.decision, verdict.rule) == (decision, named)


def test_only_the_broadest_layer_allows_without_asking_what_the_tool_asks() -> None:
    lifts = Policy([rule(ALLOW, without_asking=True)])

    above = layers(host=lifts, user=Policy()).decide(question(asks=True))
    below = layers(host=Policy(), user=lifts).decide(question(asks=True))

    assert (above.decision, above.rule) == (ALLOW, "host: rule 1")
    assert (below.decision, below.rule) == (ASK, "tool asks")


def test_a_tool_that_asks_still_does_when_a_layer_gives_way() -> None:
    host = Policy(otherwise=DENY, narrower_may_allow=True)

    verdict = layers(host=host, user=Policy([rule(ALLOW)])).decide(question(asks=True))

    assert (verdict.decision, verdict.rule) == (ASK, "tool asks")


def test_a_layer_that_does_not_know_a_mode_judges_as_in_build() -> None:
    host = Policy([rule(DENY, modes=["build"])])
    user = Policy([rule(ASK, "look")], modes=[Mode("mine")])
    policy = layers(host=host, user=user)

    assert policy.decide(question(mode="mine")).rule == "host: rule 1"
    assert policy.decide(question("look", mode="mine")).rule == "user: rule 1"
    assert policy.decide(question("look", mode="none")).decision is DENY
    assert policy.mode("mine") == Mode("mine")
    with pytest.raises(PolicyError, match="there is no such mode; did you mean 'mine'"):
        policy.mode("mien")


def test_a_mode_is_limited_by_every_layer_that_describes_it() -> None:
    careful = Mode("careful", frozenset({Effect.READ, Effect.WRITE}), ASK)
    stricter = Mode("careful", frozenset({Effect.READ, Effect.EXTERNAL}), DENY)
    policy = layers(host=Policy(modes=[careful]), user=Policy(modes=[stricter]))

    def judged(effect: Effect) -> tuple[Decision, str]:
        verdict = policy.decide(question(mode="careful", effect=effect))
        return verdict.decision, verdict.rule

    assert judged(Effect.READ) == (ALLOW, "host: default")
    assert judged(Effect.WRITE) == (DENY, "user: mode careful")
    assert judged(Effect.EXTERNAL) == (ASK, "host: mode careful")
    assert policy.mode("careful") == careful


def test_a_file_may_speak_of_the_modes_of_broader_layers(tmp_path: Path) -> None:
    user = tmp_path / "user.toml"
    user.write_text('[[rule]]\ndecision = "deny"\nmodes = ["careful"]\n')

    policy = policy_of({"host": Policy(modes=[Mode("careful")]), "user": user})

    assert policy.decide(question(mode="careful")).rule == "user: user.toml:1"
    with pytest.raises(PolicyError, match="unknown mode 'careful'"):
        policy_of({"user": user})


def test_a_policy_of_the_hosts_own_making_is_a_layer() -> None:
    class Own(Policy):
        __slots__ = ()

        def decide(self, question: Question, /) -> Verdict:
            return Verdict(DENY if question.tool == "edit" else ALLOW, "own", "as I say")

    policy = layers(host=Policy(otherwise=ASK, narrower_may_allow=True), user=Own())

    assert policy.decide(question()).rule == "user: own"
    assert policy.decide(question("x")).decision is ALLOW
    assert policy.digest == ""
    assert policy.possible(question()) == frozenset(Decision)
    assert policy.may_grant(question())


def test_layers_can_be_a_layer() -> None:
    inner = layers(host=Policy([rule(ALLOW)]), user=Policy())
    host = Policy(otherwise=ASK, narrower_may_allow=True)
    policy = Layers([("outer", host), ("inner", inner)])

    assert policy.decide(question()).rule == "inner: host: rule 1"
    assert policy.decide(question("x")).rule == "outer: default"
    assert policy.possible(question()) == {ALLOW, ASK}
    assert policy.possible(question("x")) == {ASK}


def test_layers_given_in_a_list_are_numbered() -> None:
    assert policy_of([Policy(), Policy([rule(DENY)])]).decide(question()).rule == "layer 2: rule 1"
    assert policy_of([]).decide(question()).rule == "default"
    assert policy_of(None).decide(question()).rule == "default"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hots", "policy: unknown layer 'hots'; did you mean 'host'? (known: host, project, ses"),
        ("run", "policy: the layer of a run is given to engine.run(name, policy=…)"),
    ],
)
def test_a_layer_has_a_name_that_there_is(name: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        policy_of({name: Policy()})


def test_the_digest_tells_layers_apart() -> None:
    one, two = Policy([rule(DENY)]), Policy([rule(ASK)])
    digests = {
        policy.digest
        for policy in (
            one,
            layers(host=one),
            layers(user=one),
            layers(host=one, user=two),
            layers(host=two, user=one),
            layers(host=Policy([rule(DENY)], narrower_may_allow=True), user=two),
        )
    }

    assert len(digests) == 6
    assert layers(host=one).digest == layers(host=Policy([rule(DENY)])).digest


def test_more_kinds_of_calls_than_are_kept_are_judged_alike() -> None:
    policy = layers(host=Policy([rule(DENY, "t1*")]), user=Policy([rule(ASK, "t2*")]))
    asked = [question(f"t{n}") for n in range(5000)]

    first = [policy.decide(one) for one in asked]

    assert [policy.decide(one) for one in asked] == first


names = st.sampled_from(["edit", "look", "*", "e*"])
effects = st.lists(st.sampled_from(list(Effect)), max_size=2)
some_arguments: list[dict[str, object]] = [{}, {"x": "a"}, {"x": "b"}, {"x": ["a", "b"]}]
arguments = st.sampled_from(some_arguments)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    decision = draw(st.sampled_from(SEVERITY))
    return Rule(
        decision,
        tools=draw(st.lists(names, min_size=1, max_size=2)),
        effects=draw(effects),
        modes=draw(st.sampled_from([(), ("plan",), ("build",)])),
        arguments=draw(arguments),
        servers=draw(st.sampled_from([(), ("git*",)])),
        agents=draw(st.sampled_from([(), ("res*",)])),
        risks=draw(st.sampled_from([(), ("high",), ("low", "high")])),
        without_asking=decision is ALLOW and draw(st.booleans()),
    )


policies = st.builds(
    lambda rules, otherwise, yields: (rules, otherwise, yields),
    st.lists(rules(), max_size=4),
    st.sampled_from(SEVERITY),
    st.booleans(),
)
questions = st.builds(
    Question,
    tool=st.sampled_from(["edit", "look"]),
    arguments=arguments,
    effect=st.sampled_from(list(Effect)),
    mode=st.sampled_from(["plan", "build"]),
    asks=st.booleans(),
    server=st.sampled_from(["", "github"]),
    agent=st.sampled_from(["", "researcher"]),
    risk=st.sampled_from(["", "low", "high"]),
)
Given = tuple[list[Rule], Decision, bool]


def rule_fits(one: Rule, asked: Question) -> bool:
    """What a rule says, read naively: values are `a` and `b`, and globs end in a star."""

    def glob(patterns: Any, text: str) -> bool:
        return not patterns or any(
            text == pattern or (pattern[-1] == "*" and text.startswith(pattern[:-1]))
            for pattern in patterns
        )

    def origin(patterns: Any, text: str) -> bool:
        return not patterns or (bool(text) and glob(patterns, text))

    assert asked.arguments is not None
    for name, wanted in one.arguments.items():
        alternatives: list[str] = wanted if isinstance(wanted, list) else [wanted]  # type: ignore[list-item]  # pyright: ignore[reportUnknownVariableType, reportAssignmentType]
        found = asked.arguments.get(name, [])
        values: list[str] = found if isinstance(found, list) else [found]  # pyright: ignore[reportUnknownVariableType]
        fit = [value in alternatives for value in values]
        if not (bool(fit) and all(fit) if one.decision is ALLOW else any(fit)):
            return False
    return (
        glob(one.tools, asked.tool)
        and origin(one.servers, asked.server)
        and origin(one.agents, asked.agent)
        and origin(one.risks, asked.risk)
        and (not one.effects or asked.effect in one.effects)
        and (not one.modes or asked.mode in one.modes)
    )


def naive(given_layers: list[Given], asked: Question) -> Decision:
    """Say what all layers come to: the most of all rules, then what is said for want of one."""
    matching = [[one for one in rules if rule_fits(one, asked)] for rules, _, _ in given_layers]
    said = [one.decision for layer in matching for one in layer]
    if asked.mode == "plan" and not asked.effect.changes_nothing:
        said.append(DENY)
    if asked.asks and not any(one.without_asking for one in matching[0]):
        said.append(ASK)
    for at, (_, otherwise, yields) in enumerate(given_layers):
        # A layer below grants what it allows by itself: no rule of its own refuses.
        granted = any(
            below and all(one.decision is ALLOW for one in below) for below in matching[at + 1 :]
        )
        if not matching[at] and not (yields and granted):
            said.append(otherwise)
    return max(said, key=SEVERITY.index, default=ALLOW)


@settings(max_examples=300, deadline=None)
@given(st.lists(policies, min_size=1, max_size=4), questions)
def test_layers_decide_as_the_naive_evaluator(given_layers: list[Given], asked: Question) -> None:
    policy = stacked(given_layers)

    assert policy.decide(asked).decision is naive(given_layers, asked)


@settings(max_examples=300, deadline=None)
@given(st.lists(policies, min_size=1, max_size=4), st.lists(policies, max_size=3), questions)
def test_no_layer_below_can_allow_what_a_layer_above_denies(
    above: list[Given], below: list[Given], asked: Question
) -> None:
    binding = [(rules, otherwise, False) for rules, otherwise, _ in above]

    alone = stacked(binding).decide(asked)
    together = stacked([*binding, *below]).decide(asked)

    assert SEVERITY.index(together.decision) >= SEVERITY.index(alone.decision)
    if alone.decision is DENY:
        assert together.rule == alone.rule


@settings(max_examples=200, deadline=None)
@given(st.lists(policies, min_size=1, max_size=3), questions, arguments)
def test_what_is_possible_holds_whatever_a_call_decides(
    given_layers: list[Given], asked: Question, others: dict[str, Any]
) -> None:
    policy = stacked(given_layers)
    possible = policy.possible(asked)
    other = msgspec.structs.replace(asked, arguments=others)

    assert policy.decide(asked).decision in possible
    assert policy.decide(other).decision in possible


def stacked(given_layers: list[Given]) -> Policy:
    return Layers(
        (f"l{n}", Policy(rules, otherwise=otherwise, narrower_may_allow=yields))
        for n, (rules, otherwise, yields) in enumerate(given_layers)
    )


# In the engine


def tools_of(log: list[str]) -> list[Any]:
    @tool(effect=Effect.READ, claims=[])
    def look() -> str:
        log.append("look")
        return "seen"

    @tool(effect=Effect.EXTERNAL, claims=[], server="github")
    def send() -> str:
        log.append("send")
        return "sent"

    @tool(effect=Effect.EXTERNAL, claims=[])
    async def both(context: ToolContext) -> str:
        await context.invoke("look")
        return str(await context.invoke("send"))

    return [look, send, both]


def call(name: str) -> dict[str, Any]:
    return {"calls": [{"id": "c", "tool": name, "arguments": {}}]}


def test_the_layer_of_a_run_narrows_that_run_and_the_runs_within_its_calls() -> None:
    log: list[str] = []
    narrow = Policy([Rule(DENY, servers=["git*"], name="no-git")])

    async def main() -> tuple[Any, Any, Any]:
        async with Engine(tools_of(log)) as engine:
            async with engine.run("free") as run:
                free = (await run.submit(call("both"))).outcomes["c"]
            async with engine.run("bound", policy=narrow) as run:
                direct = await run.submit(call("send"))
                within = await run.submit(call("both"))
                return free, direct.outcomes["c"], within.outcomes["c"]

    free, direct, within = asyncio.run(main())

    assert not isinstance(free, Failure)
    assert isinstance(direct, Failure)
    assert direct.code is Code.POLICY_DENIED
    assert "run: rule 1 (no-git)" in direct.message
    assert isinstance(within, Failure)
    assert log == ["look", "send", "look"]


def test_a_run_that_is_taken_up_without_its_layer_is_told_of_the_change() -> None:
    store = MemoryJournal()
    narrow = Policy([Rule(ASK, tools=["nothing"])])

    async def main() -> tuple[tuple[str, ...], ...]:
        async with Engine(tools_of([]), journal=MemoryStore(store)) as engine:
            async with engine.run("r", policy=narrow) as run:
                await run.submit(call("look"))
            async with engine.run("r", policy=Policy([Rule(ASK, tools=["nothing"])])) as run:
                same = run.changes
            async with engine.run("r") as run:
                return same, run.changes

    assert asyncio.run(main()) == ((), ("the policy is another one",))


def shown(definitions: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in definitions]


def test_a_tool_that_no_arguments_get_past_disappears_from_what_the_model_is_shown() -> None:
    @tool(effect=Effect.EXTERNAL, effect_of=lambda _: Effect.READ, claims=[])
    def maybe(command: str) -> str:
        return command

    tools = [*tools_of([]), maybe]
    form = "anthropic-messages"
    conditional = Policy([Rule(DENY, tools=["send"], arguments={"to": "all"})])

    async def main() -> list[list[str]]:
        async with Engine(tools, policy=conditional) as engine:
            async with engine.run("a", mode="plan") as run:
                planning = shown(run.definitions(form))
            async with engine.run("b", policy=Policy([Rule(DENY, servers=["*"])])) as run:
                narrowed = shown(run.definitions(form))
            return [
                shown(engine.definitions(form)),
                shown(engine.definitions(form, mode="plan")),
                planning,
                narrowed,
            ]

    assert asyncio.run(main()) == [
        ["look", "send", "both", "maybe"],
        ["look", "maybe"],
        ["look", "maybe"],
        ["look", "both", "maybe"],
    ]
    closed = Policy([Rule(ALLOW, tools=["look"])], otherwise=DENY)
    assert shown(Engine(tools, policy=closed).definitions(form)) == ["look"]
    opened = Policy(otherwise=DENY, narrower_may_allow=True)
    below = Policy([Rule(ALLOW, tools=["send"])])
    layered = {"host": opened, "user": below}
    assert shown(Engine(tools, policy=layered).definitions(form)) == ["send"]
    with pytest.raises(PolicyError, match="no such mode"):
        Engine(tools).definitions(form, mode="biuld")


def test_the_policy_with_a_run_layer_is_the_engines_where_there_is_none() -> None:
    policy = Policy()

    assert with_run_layer(policy, None) is policy


async def until(so: Callable[[], bool]) -> None:
    while not so():  # noqa: ASYNC110 - there is no event for it; the loop is that of the engine
        await asyncio.sleep(0)


def test_a_call_that_a_layer_asks_about_waits_for_a_human() -> None:
    async def main() -> tuple[str, State]:
        policy = {"host": Policy(), "session": Policy([Rule(ASK, tools=["send"])])}
        async with Engine(tools_of([]), policy=policy) as engine, engine.run("r") as run:
            turn = await run.submit(call("send"), wait=False)
            await until(lambda: bool(run.approvals))
            (asked,) = run.approvals
            await run.approve(asked.id)
            await turn.wait()
            return asked.asked.rule, turn.calls[0].state

    assert asyncio.run(main()) == ("session: rule 1", State.SUCCEEDED)
