"""Schemas, results and refusals as they come over the wire."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from hillclimb.environment.base import ToolResult
from trainer.envs.fleet.wire.faults import of_response
from trainer.envs.fleet.wire.results import tool_result, without_placeholders
from trainer.envs.fleet.wire.schema import changes_nothing, normalised, tool_spec


@pytest.mark.parametrize(
    ("wire", "plain"),
    [
        ({"type": "string", "title": "Name", "default": "x"}, {"type": "string"}),
        (
            {"type": "object", "properties": {"title": {"type": "string", "title": "T"}}},
            {"type": "object", "properties": {"title": {"type": "string"}}},
        ),
        (
            {"anyOf": [{"type": "integer", "title": "N"}, {"type": "null"}], "default": None},
            {"type": "integer"},
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}]},
            {"type": "array", "items": {"type": "number"}},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]},
            {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}},
        ),
        ({"enum": [{"title": "kept"}], "default": 1}, {"enum": [{"title": "kept"}]}),
        (
            {"examples": [{"title": "kept", "default": 1}], "title": "T"},
            {"examples": [{"title": "kept", "default": 1}]},
        ),
        (
            {"dependentRequired": {"title": ["default"]}},
            {"dependentRequired": {"title": ["default"]}},
        ),
    ],
)
def test_a_schema_is_brought_into_the_plain_form(wire: Any, plain: Any) -> None:
    assert normalised(wire) == plain


def test_a_tool_without_a_schema_takes_an_object() -> None:
    tool = tool_spec({"name": "ping", "description": None})
    assert (tool.name, tool.description) == ("ping", "")
    assert tool.parameters == {"type": "object"}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": False}, False),
        (None, False),
    ],
)
def test_only_a_tool_that_says_so_changes_nothing(annotations: Any, *, expected: bool) -> None:
    assert changes_nothing({"name": "t", "annotations": annotations}) is expected


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1024, 768) + b"rest"
JPEG = b"\xff\xd8\xff\xe0."


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("wire", "result"),
    [
        (text("fine"), ToolResult(text="fine")),
        (text("no hotel", isError=True), ToolResult(text="no hotel", is_error=True)),
        (text("Error: no hotel"), ToolResult(text="no hotel", is_error=True)),
        (text('{"error": "x"}'), ToolResult(text='{"error": "x"}', is_error=True)),
        (text('{"error": null}'), ToolResult(text='{"error": null}')),
        (text('{"status": "failed"}'), ToolResult(text='{"status": "failed"}', is_error=True)),
        (text('{"status": "ok"}'), ToolResult(text='{"status": "ok"}')),
        (text('{"base64_image": null}'), ToolResult(text='{"base64_image": null}')),
        (text("{not json"), ToolResult(text="{not json")),
        ({"content": [], "structuredContent": {"n": 1}}, ToolResult(text='{"n": 1}')),
        ({"content": []}, ToolResult(text="")),
        (
            {"content": [image(PNG)]},
            ToolResult(text="[image: 1024x768 PNG, not shown in this modality]", images=(PNG,)),
        ),
        (
            {"content": [image(JPEG), *text('{"error": "no"}')["content"], image(b"?")]},
            ToolResult(
                text='{"error": "no"}\n[image: JPEG, 5 bytes, not shown in this modality]\n'
                "[image: unknown format, 1 bytes, not shown in this modality]",
                is_error=True,
                images=(JPEG, b"?"),
            ),
        ),
        (
            {"content": [image(PNG[:12])]},
            ToolResult(
                text="[image: PNG, 12 bytes, not shown in this modality]", images=(PNG[:12],)
            ),
        ),
        (
            {"content": [{"type": "image", "data": "%"}]},
            ToolResult(text="[an image that cannot be read]"),
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "body"}}]},
            ToolResult(text="body"),
        ),
    ],
)
def test_a_result_is_what_the_agent_reads(wire: Any, result: ToolResult) -> None:
    assert tool_result(wire, 100) == result


def test_the_line_of_an_image_is_never_cut_and_left_out_for_who_sees_it() -> None:
    found = tool_result({"content": [*text("x" * 200)["content"], image(PNG)]}, 100)
    assert found.text.endswith("are cut]\n[image: 1024x768 PNG, not shown in this modality]")
    assert without_placeholders(found).endswith("are cut]")
    assert without_placeholders(tool_result({"content": [image(PNG)]}, 100)) == ""
    assert without_placeholders(ToolResult(text="as it is\n")) == "as it is\n"


def test_a_long_answer_is_cut_and_says_so() -> None:
    assert tool_result(text("x" * 100), 100).text == "x" * 100
    cut = tool_result(text("Error: " + "x" * 101), 100)
    assert cut.is_error
    assert cut.text == "x" * 100 + "\n[the answer has 101 characters, and the last 1 are cut]"


@pytest.mark.parametrize(
    ("status", "body", "kind", "transient", "done"),
    [
        (502, b"<html>", "bad_gateway", True, True),
        (502, b'{"detail": {"retryable": true}}', "bad_gateway", True, False),
        (502, b'{"detail": {"retryable": false}}', "bad_gateway", False, True),
        (503, b"", "unavailable", True, False),
        (429, b"", "rate_limit", True, False),
        (401, b'{"detail": "no"}', "unauthorized", False, False),
        (
            403,
            b'{"detail": {"error_type": "instance_limit_exceeded"}}',
            "instance_limit_exceeded",
            False,
            False,
        ),
        (403, b'{"detail": "team not found"}', "forbidden", False, False),
        (
            409,
            b'{"detail": {"error": "duplicate_request_id", "instance_id": "i"}}',
            "duplicate_request_id",
            False,
            False,
        ),
        (418, b"", "http_418", False, True),
        (599, b"", "http_599", True, True),
    ],
)
def test_a_refusal_is_read_by_status_and_by_what_the_server_says(
    status: int, body: bytes, kind: str, *, transient: bool, done: bool
) -> None:
    fault = of_response(status, {"retry-after": "1.5"}, body)
    assert (fault.kind, fault.is_transient, fault.may_be_done) == (kind, transient, done)
    assert fault.retry_after_s == 1.5
    assert fault.is_known == (status not in (418, 599))
