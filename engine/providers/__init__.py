"""The wire formats, one file each, and the choice between them.

Reads what a client library returned; feeds the engine with a `Reply`. A new format is one file and
one line in `FORMATS`.
"""

from laneway.engine.providers.anthropic_messages import AnthropicMessages
from laneway.engine.providers.bedrock_converse import BedrockConverse
from laneway.engine.providers.cohere_v2 import CohereV2
from laneway.engine.providers.google_generate import GoogleGenerate
from laneway.engine.providers.google_interactions import GoogleInteractions
from laneway.engine.providers.labelled import read_labelled_plan
from laneway.engine.providers.llmcompiler import read_llmcompiler_plan
from laneway.engine.providers.mixing import see_that_one
from laneway.engine.providers.ollama_chat import OllamaChat
from laneway.engine.providers.openai_chat import OpenAIChat
from laneway.engine.providers.openai_responses import OpenAIResponses
from laneway.engine.providers.payload import body_of, described
from laneway.engine.providers.plan import PlanForm
from laneway.engine.providers.reply import Answer, Asked, Format, Message, Reply
from laneway.engine.providers.taskbench import read_taskbench_plan
from laneway.engine.providers.usage import with_usage
from laneway.errors import PayloadError

__all__ = [
    "FORMATS",
    "Answer",
    "Asked",
    "Format",
    "Message",
    "Reply",
    "format_named",
    "parse",
    "read_labelled_plan",
    "read_llmcompiler_plan",
    "read_taskbench_plan",
]

FORMATS: tuple[Format, ...] = (
    BedrockConverse(),
    AnthropicMessages(),
    OpenAIResponses(),
    GoogleGenerate(),
    GoogleInteractions(),
    OllamaChat(),
    CohereV2(),
    OpenAIChat(),
    PlanForm(),
)
"""All known formats; the first that recognises a payload reads it.

Bedrock's bare messages would pass for Anthropic's, and Cohere's and Ollama's for OpenAI's, which
stands behind all others, since every server's error is one of its own.
"""


def parse(payload: object, *, provider: str | None = None) -> Reply:
    """Read a model's answer.

    Args:
        payload: the SDK's response object, its dict, a bare assistant message, or a plan.
        provider: the name of its format; None goes by the payload's own shape.

    Raises:
        PayloadError: it cannot be read; names the place, the fault and the way out.
        ProviderRefusedError: the provider answered with an error.
        PlanError: it is a plan with faults of form.
    """
    body = body_of(payload)
    if provider is not None:
        return with_usage(format_named(provider).parse(body), body)
    see_that_one(body)
    for wire in FORMATS:
        if wire.recognises(body):
            return with_usage(wire.parse(body), body)
    if body.get("role", "assistant") not in ("assistant", "model"):
        raise PayloadError(
            "reply.role", f"it is {described(body['role'])}", "Submit the model's own message"
        )
    raise PayloadError(
        "reply",
        f"{described(body)} is in no known format ({_names()})",
        "Submit the whole answer of the provider, or name its format",
    )


def format_named(name: str) -> Format:
    """Find a format by its name, which is also how a journal names it.

    Raises:
        PayloadError: there is none of that name.
    """
    for wire in FORMATS:
        if wire.name == name:
            return wire
    raise PayloadError("provider", f"there is no format {name!r}", f"Known are {_names()}")


def _names() -> str:
    return ", ".join(wire.name for wire in FORMATS)
