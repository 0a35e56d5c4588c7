"""How a payload finds its format, and what is no payload at all."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from laneway.engine.providers import FORMATS, format_named, parse
from laneway.errors import PayloadError

NAMES = (
    "bedrock-converse, anthropic-messages, openai-responses, google-generate, "
    "google-interactions, ollama-chat, cohere-v2, openai-chat, plan"
)
CALL: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE: dict[str, Any] = {"id": "a", "type": "tool_use", "name": "f", "input": {}}


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ({"choices": [{"message": {"role": "assistant", "content": "x"}}]}, "openai-chat"),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, "openai-chat"),
        ({"role": "assistant", "content": [], "tool_calls": [CALL]}, "openai-chat"),
        ({"role": "assistant", "content": "x"}, "openai-chat"),
        ({"type": "message", "role": "assistant", "content": []}, "anthropic-messages"),
        ({"role": "assistant", "content": [USE]}, "anthropic-messages"),
        ({"stop_reason": "tool_use", "content": [USE]}, "anthropic-messages"),
        ({"calls": [{"tool": "f"}]}, "plan"),
        ([{"tool": "f"}], "plan"),
        (({"tool": "f"},), "plan"),
    ],
)
def test_a_payload_is_known_by_its_shape(payload: Any, name: str) -> None:
    assert parse(payload).provider == name


def test_a_named_format_is_used_whatever_the_shape() -> None:
    payload = {"role": "assistant", "content": "x"}

    assert parse(payload, provider="anthropic-messages").provider == "anthropic-messages"


def test_every_format_is_found_by_its_name() -> None:
    assert [format_named(wire.name) for wire in FORMATS] == list(FORMATS)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PayloadError) as caught:
        parse({}, provider="telegraph")

    assert str(caught.value) == (f"provider: there is no format 'telegraph'. Known are {NAMES}")


@pytest.mark.parametrize(
    ("payload", "looks"),
    [({}, "an empty object"), ({"answers": [], "x": 1}, "an object with answers, x")],
)
def test_an_unknown_shape_is_refused_with_what_it_looked_like(payload: Any, looks: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(payload)

    assert str(caught.value) == (
        f"reply: {looks} is in no known format ({NAMES}). "
        "Submit the whole answer of the provider, or name its format"
    )


class Chunks:
    def __aiter__(self) -> AsyncIterator[Any]:
        raise NotImplementedError


def generate() -> Iterator[Any]:
    yield {}


@pytest.mark.parametrize("stream", [Chunks(), generate(), iter([])])
def test_a_stream_is_refused_as_a_stream(stream: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(stream)

    assert str(caught.value) == (
        f"reply: it is a stream ({type(stream).__name__}), and streams are not read here. "
        "Submit the finished message that the SDK gathers from it"
    )


def test_an_answer_that_nobody_awaited_is_refused_as_such() -> None:
    async def create() -> None:
        raise NotImplementedError

    answer = create()
    with pytest.raises(PayloadError, match=r"^reply: it has not been awaited"):
        parse(answer)
    answer.close()


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ('{"choices": []}', "it is text. Decode the JSON first"),
        (b"{}", "it is text. Decode the JSON first"),
        (None, "it is a NoneType. Submit the SDK's response object, or its dict"),
        (5, "it is a int."),
        (BaseModel, "it is a ModelMetaclass."),
    ],
)
def test_what_is_no_object_is_refused(payload: Any, fault: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse(payload)

    assert str(caught.value).startswith(f"reply: {fault}")


def test_any_mapping_is_read_like_a_dict() -> None:
    message = {"role": "assistant", "content": "x"}

    assert parse(OrderedDict(message)).message == message
    assert parse(MappingProxyType(message)).message == message


def test_models_of_other_libraries_are_dumped_without_their_empty_fields() -> None:
    class Answer(BaseModel):
        role: str = "assistant"
        content: str | None = "x"
        audio: str | None = None

    assert parse(Answer()).message == {"role": "assistant", "content": "x"}


def test_objects_with_a_plain_to_dict_are_asked_for_it() -> None:
    class Answer:
        def to_dict(self) -> dict[str, Any]:
            return {"role": "assistant", "content": "x"}

    assert parse(Answer()).message == {"role": "assistant", "content": "x"}


SAID: dict[str, Any] = {
    "bedrock-converse": {"role": "user", "content": [{"text": "half �"}]},
    "google-generate": {"role": "user", "parts": [{"text": "half �"}]},
    "google-interactions": {
        "type": "user_input",
        "content": [{"type": "text", "text": "half �"}],
    },
}


@pytest.mark.parametrize("name", [wire.name for wire in FORMATS])
def test_the_host_says_a_text_or_a_message_of_its_own(name: str) -> None:
    form = format_named(name)
    block = {"role": "user", "content": [{"type": "text", "text": "x"}]}

    assert form.say("half \ud83d") == SAID.get(name, {"role": "user", "content": "half �"})
    assert form.say(block) == block
    assert form.say(MappingProxyType({"role": "user", "content": ("x",)})) == {
        "role": "user",
        "content": ["x"],
    }


@pytest.mark.parametrize("said", [5, {"content": "x"}, [], {"role": 1}])
def test_the_host_cannot_say_what_is_no_message(said: Any) -> None:
    with pytest.raises(
        PayloadError, match=r"^message: .* is no message\. Say a text, or a message"
    ):
        format_named("openai-chat").say(said)
