"""What answers say that they took, in every provider's words."""

from typing import Any

import pytest

from laneway.engine.providers.reply import Reply
from laneway.engine.providers.usage import usage_of, with_usage
from laneway.policies.prices import Tokens

GOOGLE = {"promptTokenCount": 50, "candidatesTokenCount": 4, "thoughtsTokenCount": 6}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            Tokens(input=9, output=2, cache_read=4),
        ),
        (
            {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
            Tokens(input=9, output=2, cache_read=4),
        ),
        (
            {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4},
            Tokens(input=13, output=2, cache_read=4),
        ),
        (
            {"input_tokens": 9, "output_tokens": 2, "cache_creation_input_tokens": 4},
            Tokens(input=13, output=2, cache_write=4),
        ),
        (GOOGLE, Tokens(input=50, output=10)),
        (
            {"prompt_token_count": 5, "candidates_token_count": 4, "cached_content_token_count": 9},
            Tokens(input=5, output=4, cache_read=5),
        ),
        ({"total_input_tokens": 5, "total_output_tokens": 4}, Tokens(input=5, output=4)),
        (
            {"inputTokens": 5, "outputTokens": 4, "cacheWriteInputTokens": 3},
            Tokens(input=8, output=4, cache_write=3),
        ),
        ({"tokens": {"input_tokens": 5, "output_tokens": 4}}, Tokens(input=5, output=4)),
        ({"prompt_eval_count": 5, "eval_count": 4}, Tokens(input=5, output=4)),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": True, "output_tokens": "7"}, None),
        ({"seconds": 3}, None),
        ([7], None),
        (None, None),
    ],
)
def test_tokens_are_counted_as_the_provider_means_them(said: Any, found: Tokens | None) -> None:
    assert usage_of(said) == found


def test_the_model_and_what_it_took_are_told_of_wherever_they_stand() -> None:
    reply = Reply(provider="x", message={}, calls=())
    ollama = with_usage(reply, {"model": "m", "prompt_eval_count": 5, "eval_count": 4})
    google = with_usage(reply, {"modelVersion": "g", "usageMetadata": GOOGLE})

    assert (ollama.model, ollama.tokens) == ("m", Tokens(input=5, output=4))
    assert (google.model, google.tokens) == ("g", Tokens(input=50, output=10))
    assert with_usage(reply, {"model": "m"}) is reply
