"""A request to the model, paid for in advance: tokens and cost are set aside before it is made.

    async with run.request(model="…", messages=messages, max_output_tokens=4096) as request:
        reply = await client.messages.create(…)
        request.reply(reply)
    turn = await run.submit(reply)

Reads what the host is about to send; writes what is set aside, before the host goes on, and what it
came to. Of a request that failed nobody knows what it took: its input is settled as it was
estimated, since providers bill what they have read, and the rest is given back.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec

from laneway.engine.accounts import Account
from laneway.engine.pricing import pricing_of
from laneway.engine.providers import parse
from laneway.engine.providers.reply import Reply
from laneway.errors import BudgetExceededError, JournalError, UsageError
from laneway.facts import BudgetReserved, BudgetSettled, Fact
from laneway.policies.budgets import MICROS, Unit, micros
from laneway.policies.ledger import Line, Refused, release, reserve, settle
from laneway.policies.prices import Pricing, Tokens

OUTPUT_TOKENS = 4096
"""Set aside for an answer where the host names no limit of its own."""
BYTES_PER_TOKEN = 3
"""English text has about four bytes a token and JSON or code about three (OpenAI, "What are tokens
and how to count them"); fewer makes the estimate the higher."""


def estimated_tokens(messages: Any) -> int:
    """Estimate the tokens of messages from the length of their JSON: high, never exact."""
    return math.ceil(len(msgspec.json.encode(messages, enc_hook=str)) / BYTES_PER_TOKEN)


class Request:
    """Made by `run.request(…)`; use it with `async with`."""

    def __init__(
        self,
        find: Callable[[], Account],
        *,
        model: str,
        messages: Any,
        max_output_tokens: int | None,
    ) -> None:
        """Prepare; nothing is set aside before it is entered.

        Raises:
            UsageError: `max_output_tokens` is no number of tokens.
        """
        most: Any = OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise UsageError(f"max_output_tokens={max_output_tokens!r} is no number of tokens")
        self._find = find
        self._model = model
        self._messages = messages
        self._output = most
        self._account: Account
        self._input = 0
        self._wants: dict[str, list[tuple[Line, int]]] = {}
        self._names: dict[str, str] = {}
        self._least: dict[str, int] = {}
        self._pricing: Pricing | None = None
        self._took: Tokens | None = None
        self._reply: Reply | None = None
        self._open = False
        self._made = False

    async def __aenter__(self) -> Self:
        """Set aside what the request may take, durably.

        Raises:
            BudgetExceededError: a budget has no room for it; nothing was set aside.
            UsageError: a budget of cost is there, and nobody knows the price of the model; or the
                request has been made before.
            JournalError: nothing can be written down.
        """
        if self._made:
            raise UsageError("a request is made once; for another one, call run.request(…) again")
        account = self._account = self._find()
        reason, key = account.exhausted()
        if reason:
            account.end(reason, key)
            await account.services.journal.keep(account.log, [])
            raise BudgetExceededError(account.log.view.run, reason)
        count = account.budgets.count_tokens or estimated_tokens
        self._input = max(int(count(self._messages)), 0)
        amounts = self._amounts(account)
        wants = [want for each in self._wants.values() for want in each]
        answer = reserve([*wants, *account.turns])
        if isinstance(answer, Refused):
            raise BudgetExceededError(account.log.view.run, str(answer))
        self._open = self._made = True
        number = account.next_request()
        price = "" if self._pricing is None else self._pricing.source
        facts: list[Fact] = []
        for key, amount in amounts.items():
            name = self._names[key] = f"request-{number}/{key}"
            scale = _scale(key)
            facts.append(
                BudgetReserved(
                    budget=key,
                    amount=amount / scale,
                    reservation=name,
                    least=self._least[key] / scale,
                    price=price if key == Unit.COST else "",
                )
            )
        account.clock.go_on(self)
        try:
            await account.services.journal.keep(account.log, facts)
        except BaseException:
            self._settle_books(dict(self._least))
            raise
        account.look(wants)
        return self

    def _amounts(self, account: Account) -> dict[str, int]:
        whole = self._input + self._output
        amounts = {Unit.TOKENS.value: whole}
        self._least[Unit.TOKENS.value] = self._input
        self._wants[Unit.TOKENS.value] = [(line, whole) for line in account.tokens]
        if account.counts_cost:
            pricing = self._pricing = pricing_of(self._model, account.budgets)
            most = micros(pricing.of(Tokens(input=self._input, output=self._output)), up=True)
            amounts[Unit.COST.value] = most
            self._least[Unit.COST.value] = micros(pricing.of(Tokens(input=self._input)), up=True)
            self._wants[Unit.COST.value] = [(line, most) for line in account.cost]
        return amounts

    def reply(self, reply: object, *, provider: str | None = None) -> None:
        """The provider answered: what it says that the request took is settled.

        Where the answer says nothing, its own length and that of the messages are counted instead.

        Args:
            reply: as for `Run.submit`, which does not charge for it again.
            provider: as for `Run.submit`.

        Raises:
            PayloadError: the answer cannot be read.
            UsageError: the request is over.
        """
        if not self._open:
            raise UsageError("request.reply(…) belongs inside `async with run.request(…)`")
        parsed = reply if isinstance(reply, Reply) else parse(reply, provider=provider)
        self._reply = parsed
        count = self._account.budgets.count_tokens or estimated_tokens
        self._took = parsed.tokens or Tokens(input=self._input, output=int(count(parsed.message)))

    def not_billed(self) -> None:
        """The provider does not bill the request: it never arrived, or was refused at the door.

        Everything is given back when the request is left.
        """
        self._took = Tokens()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle it: with what it took, or where nobody knows, with its input."""
        taken = dict(self._least)
        if self._took is not None:
            taken[Unit.TOKENS.value] = self._took.total
            if self._pricing is not None:
                taken[Unit.COST.value] = micros(self._pricing.of(self._took), up=True)
        account, reply = self._account, self._reply
        key = "" if reply is None else reply.key
        facts = [
            BudgetSettled(reservation=self._names[one], amount=amount / _scale(one), reply=key)
            for one, amount in taken.items()
        ]
        self._settle_books(taken)
        if reply is not None:
            account.paid.append((reply.key, reply.message))
        if error is None:
            await account.services.journal.keep(account.log, facts)
            return
        with suppress(JournalError):  # Whoever takes the run up settles it by the same rule.
            await asyncio.shield(account.services.journal.keep(account.log, facts))

    def _settle_books(self, taken: Mapping[str, int]) -> None:
        self._open = False
        release(self._account.turns)  # The turn is counted when the answer is submitted.
        self._account.clock.rest(self)
        for key, wants in self._wants.items():
            settle(wants, [taken[key]] * len(wants))
            self._account.look(wants)


def _scale(key: str) -> int:
    return MICROS if key == Unit.COST else 1
