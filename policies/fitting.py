"""The tests that the conditions of one rule come to, for a call with its arguments.

Reads compiled conditions on arguments, claims and commands; feeds the compiled rules.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from laneway.policies.arguments import ArgumentCondition
from laneway.policies.commands import CommandsCondition
from laneway.policies.questions import Decision, Question
from laneway.policies.resources import ClaimsCondition

CallTest = Callable[[Question], bool]


class Place(Enum):
    """What a look at many rules at once looks at, where it is no argument."""

    CLAIMS = "the resources of the claims"
    COMMANDS = "the commands in the command lines"
    DOUBT = "whether all commands in them are known"


class Need(msgspec.Struct, frozen=True):
    """What must be so if a rule fits, and is quick to find out for many rules at once."""

    place: str | Place
    """The name of an argument, or another place."""
    regex: str
    """Fits one text in there."""


def call_test(
    arguments: Sequence[ArgumentCondition],
    claims: ClaimsCondition | None,
    commands: CommandsCondition | None,
    decision: Decision,
    /,
) -> tuple[CallTest | None, CallTest | None]:
    """Join conditions.

    Returns:
        Whether they fit, None for always; and, for a denial of commands, whether they may. A rule
        that asks does so in doubt, too.
    """
    rest = _joined(arguments, claims, grants=decision is Decision.ALLOW)
    if commands is None:
        return rest, None
    fits = _both(rest, commands.test)
    doubt = _both(rest, commands.doubt)
    match decision:
        case Decision.ALLOW:
            return fits, None
        case Decision.ASK:
            return (lambda question: fits(question) or doubt(question)), None
        case Decision.DENY:
            return fits, doubt


def need_of(
    arguments: Sequence[ArgumentCondition],
    claims: ClaimsCondition | None,
    commands: CommandsCondition | None,
    /,
) -> Need | None:
    """Choose the condition that is looked at together with those of other rules."""
    for condition in arguments:
        if condition.needs:
            return Need(condition.name, condition.needs)
    if commands:
        return Need(Place.COMMANDS, commands.needs)
    return Need(Place.CLAIMS, claims.needs) if claims else None


def _both(one: CallTest | None, other: CallTest) -> CallTest:
    return other if one is None else lambda question: one(question) and other(question)


def _joined(
    on_arguments: Sequence[ArgumentCondition], on_claims: ClaimsCondition | None, *, grants: bool
) -> CallTest | None:
    tests = [condition.test for condition in on_arguments]
    claims = on_claims.test if on_claims else None
    if not tests:
        return None if claims is None else lambda question: claims(question.claims)

    def test(question: Question) -> bool:
        arguments = question.arguments
        if arguments is None:  # unknown: what might refuse does, what might grant does not
            if grants:
                return False
        else:
            for fits in tests:
                if not fits(arguments):
                    return False
        return claims is None or claims(question.claims)

    return test
