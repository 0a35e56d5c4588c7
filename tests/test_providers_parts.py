"""Pictures and files in results: parts where the provider has them, words where not."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.engine.providers import Answer, format_named, parse
from laneway.engine.providers.bedrock_converse import BedrockConverse
from laneway.engine.providers.parts import MAX_PARTS, Media, file_part, image_part, parts_of
from laneway.outcomes import Success
from tests.wires import TEXTUAL, WIRES, Said, answer, results_in

PICTURE = image_part(b"\x89PNG", "image/png")
DATA = base64.b64encode(b"\x89PNG").decode()
PAPER = file_part(b"%PDF", "application/pdf", "paper (1).pdf")
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}


def rendered(wire: str, value: Any, *, model: str = "", note: str = "") -> list[Any]:
    """The messages that answer the one call of a turn with a value."""
    payload = answer(wire, [Said("a", "f", "{}" if wire in TEXTUAL else {})])
    if model:
        payload["modelVersion"] = model
    reply = parse(payload)
    said = Answer(id="a", name="f", outcome=Success(value=value), note=note, warning="Mind.")
    return format_named(wire).render(reply.message, [said])


def told(wire: str, value: Any, **options: Any) -> Any:
    return results_in(rendered(wire, value, **options))[0].told


def test_anthropic_takes_pictures_and_papers() -> None:
    assert told("anthropic-messages", ["Look:", PICTURE, PAPER, {"n": 1}], note="Note.") == [
        {"type": "text", "text": "Note."},
        {"type": "text", "text": "Look:"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": DATA},
        },
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
        },
        {"type": "text", "text": '{"n":1}'},
        {"type": "text", "text": "Mind."},
    ]


def test_responses_take_pictures_and_papers() -> None:
    assert told("openai-responses", [PICTURE, PAPER]) == [
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {
            "type": "input_file",
            "filename": "paper (1).pdf",
            "file_data": "data:application/pdf;base64,JVBERg==",
        },
        {"type": "input_text", "text": "Mind."},
    ]


def test_bedrock_takes_pictures_and_papers_as_bytes() -> None:
    assert told("bedrock-converse", [PICTURE, PAPER, AUDIO]) == [
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
        {"document": {"format": "pdf", "name": "paper (1)-pdf", "source": {"bytes": b"%PDF"}}},
        {"text": "(audio/wav, 3 bytes: it cannot be shown in a result here)"},
        {"text": "Mind."},
    ]


@pytest.mark.parametrize("part", [{**PICTURE, "data": "no base64"}, image_part(b"x", "image/tiff")])
def test_bedrock_is_told_of_a_picture_that_it_would_refuse(part: Any) -> None:
    first, _ = told("bedrock-converse", part)

    assert "cannot be shown" in first["text"]


def test_interactions_take_every_kind() -> None:
    first, second, third, _ = told("google-interactions", [PICTURE, PAPER, AUDIO])

    assert first == {"type": "image", "mime_type": "image/png", "data": DATA}
    assert second == {"type": "document", "mime_type": "application/pdf", "data": "JVBERg=="}
    assert third == {"type": "audio", "mime_type": "audio/wav", "data": "AAAA"}


def test_gemini_3_takes_pictures_within_the_response() -> None:
    _, results = rendered("google-generate", PICTURE, model="models/gemini-3-flash-preview")

    (part,) = results["parts"]
    assert part["functionResponse"]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": DATA}}
    ]
    assert part["functionResponse"]["response"] == {"output": "Mind."}
    google: Any = pytest.importorskip("google.genai.types", reason="google-genai is not installed")
    content = google.Content.model_validate(results)
    assert content.parts is not None
    response = content.parts[0].function_response
    assert response is not None
    assert response.parts is not None
    assert response.parts[0].inline_data is not None
    assert response.parts[0].inline_data.data == b"\x89PNG"


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "", "gemma"])
def test_earlier_models_of_google_get_no_sibling_beside_a_response(model: str) -> None:
    _, results, beside = rendered("google-generate", ["Look:", PICTURE], model=model)

    (part,) = results["parts"]
    assert part.keys() == {"functionResponse"}
    assert part["functionResponse"]["response"] == {"output": "Look:\nMind."}
    assert "parts" not in part["functionResponse"]
    assert beside["parts"][0] == {"text": "From the result of f:"}
    assert beside["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": DATA}}


@pytest.mark.parametrize("wire", ["openai-chat", "cohere-v2", "ollama-chat"])
def test_where_results_are_texts_pictures_are_told_in_words(wire: str) -> None:
    assert told(wire, ["Look:", PICTURE, PAPER]) == (
        "Look:\n(image/png, 4 bytes: it cannot be shown in a result here)\n"
        "(application/pdf paper (1).pdf, 4 bytes: it cannot be shown in a result here)\nMind."
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_with_pictures_is_part_of_the_form_like_any_other(wire: str) -> None:
    messages = rendered(wire, {"content": [{"type": "text", "text": "x"}, PICTURE]})

    shown = json.dumps(messages, default=lambda blob: base64.b64encode(blob).decode())
    assert ("cannot be shown" in shown) != (DATA in shown)


def test_the_answer_of_an_mcp_tool_is_read_whole() -> None:
    inner = {"uri": "file:///a/b.pdf", "mimeType": "x/y"}
    resource = {"type": "resource", "resource": inner}
    whole = {
        "content": [
            {"type": "text", "text": "x"},
            PICTURE,
            {**resource, "resource": {**inner, "blob": "AAAA"}},
            resource,
        ],
        "isError": False,
    }

    parts = parts_of(whole)

    assert parts is not None
    text, picture, file, link = parts
    assert text == "x"
    assert picture == Media(media_type="image/png", data=DATA)
    assert file == Media(media_type="x/y", data="AAAA", name="b.pdf")
    assert isinstance(link, str)


@pytest.mark.parametrize(
    "value",
    [
        "x",
        None,
        5,
        [],
        {},
        [1, 2],
        [{"type": "text", "text": "x"}],
        {"type": "image"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "image", "data": "AAAA", "mimeType": 5},
        {"type": "image", "data": "AAAA", "mimeType": "image/png", "price": 5},
        {"type": "resource", "resource": 5},
        {"content": [PICTURE, {"type": "odd"}]},
        {"content": "x"},
        {"content": [{"type": "text", "text": "x"}]},
        [PICTURE] * (MAX_PARTS + 1),
        {"content": [PICTURE] * (MAX_PARTS + 1)},
    ],
)
def test_data_is_not_taken_for_parts(value: Any) -> None:
    assert parts_of(value) is None


BLOBS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(BLOBS)
def test_blobs_of_boto3_are_kept_as_json_and_come_back_as_bytes(value: Any) -> None:
    block = {"reasoningContent": {"redactedContent": b"\xff\x00", "other": value}}
    use = {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}
    payload = {
        "output": {"message": {"role": "assistant", "content": [block, use]}},
        "ResponseMetadata": {"RequestId": "q1"},
    }
    wire = BedrockConverse()

    reply = parse(payload)

    kept = json.loads(json.dumps(reply.message))
    said = Answer(id="a", name="f", outcome=Success(value=1))
    sent = wire.render(kept, [said])[0]["content"]
    assert reply.key == "q1"
    assert sent[0]["reasoningContent"]["redactedContent"] == b"\xff\x00"
    assert sent[1] == use
    assert wire.parse(kept).message == kept
