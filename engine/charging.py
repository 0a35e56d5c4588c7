"""What a model's answer is charged for, before anything of it is taken in.

A turn that no budget has room for is recorded and refused as a whole: each of its calls is answered
with the reason, so that the conversation stays well-formed. Reads the parsed answer and the books
of its run; feeds admission with faults, and the fact that announces the turn with what it took.
"""

from typing import TYPE_CHECKING

import msgspec

from laneway.engine.admission import Admission
from laneway.engine.pricing import pricing_of
from laneway.engine.providers.reply import Reply
from laneway.engine.tally import is_model_turn
from laneway.facts import Usage
from laneway.outcomes import Ended
from laneway.policies.budgets import MICROS, micros
from laneway.policies.ledger import RULE, Line, Refused, exceeded, hold, release, reserve, settle
from laneway.policies.prices import Tokens
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.accounts import Account


class Charge:
    """What is set aside for one answer until its turn is recorded, or not."""

    __slots__ = ("_account", "_key", "_wants", "refused")

    def __init__(self, account: "Account", coming: Admission, reply: Reply) -> None:
        """Set it aside, or refuse the turn.

        Raises:
            UsageError: a budget of cost is there, and nobody knows the price of the model.
        """
        self._account = account
        self._wants: list[tuple[Line, int]] = []
        self.refused = ""
        """The reason why nothing of the turn will run; empty where it may."""
        self._key = ""
        if not is_model_turn(coming.opening.referring, ""):
            return  # A body's own call: what it begins is counted as such.
        usage = None if reply.tokens is None else self._usage(reply, reply.tokens)
        reason, key = account.exhausted()
        if not reason:
            answer = reserve(account.turns)
            if isinstance(answer, Refused):
                reason, key = str(answer), answer.line.key
            else:
                self._wants += account.turns
        if usage is not None:
            whole = usage.input_tokens + usage.output_tokens
            used = [(line, whole) for line in account.tokens]
            used += [(line, round(usage.cost * MICROS)) for line in account.cost if usage.cost]
            hold(used)
            self._wants += used
        if usage is not None or reason:
            coming.opening = msgspec.structs.replace(coming.opening, usage=usage, refused=key)
        if reason:
            self.refused, self._key = reason, key
            _refuse(coming, reason, key)

    def _usage(self, reply: Reply, tokens: Tokens) -> Usage | None:
        if self._account.is_paid(reply):
            return None
        cost, source = 0.0, ""
        if self._account.counts_cost:
            pricing = pricing_of(reply.model, self._account.budgets)
            cost, source = micros(pricing.of(tokens), up=True) / MICROS, pricing.source
        return Usage(
            input_tokens=tokens.input, output_tokens=tokens.output, cost=cost, price=source
        )

    def close(self, *, taken_in: bool) -> None:
        """The turn is recorded, and what it took is used; or it is not, and nothing is."""
        if not taken_in:
            release(self._wants)
            return
        settle(self._wants)
        self._account.look(self._wants)
        if self.refused:
            self._account.end(self.refused, self._key)


def _refuse(coming: Admission, reason: str, key: str) -> None:
    failure = exceeded(
        f"{reason}, so nothing of this answer runs",
        "Tell the user what has been done, what is unfinished, and which limit was reached.",
    )
    for at, call in enumerate(coming.turn.calls):
        if at not in coming.faults:
            call.rule = f"{RULE}{key}"
            coming.faults[at] = Ended(State.DENIED, failure)
