"""Conversion of a tool's MCP result to the observation of the agent.

Fleet's tools report an error in three ways: `isError`, a JSON object with a truthy
`error` or the status `failed`, and a text that begins with `Error:`.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult, shortened

_PREFIX = "error:"
_FORMATS = ((b"\x89PNG\r\n\x1a\n", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"))
_PNG_SIZE = slice(16, 24)
"""Bytes of a PNG's width and height."""


def tool_result(wire: Mapping[str, JsonValue], max_chars: int) -> ToolResult:
    """Return the result of a `CallToolResult`, with at most `max_chars` of its text.

    The text ends with a line for each image.
    """
    texts: list[str] = []
    images: list[bytes] = []
    blocks = wire.get("content")
    for block in blocks if isinstance(blocks, list) else []:
        if isinstance(block, dict):
            _read(block, texts, images)
    structured = wire.get("structuredContent")
    if not texts and not images and structured is not None:
        texts.append(json.dumps(structured, ensure_ascii=False))
    text = "\n".join(texts)
    is_error = wire.get("isError") is True or _is_error_text(text)
    if is_error and text[: len(_PREFIX)].lower() == _PREFIX:
        # The observation of an error begins with these words anyway.
        text = text[len(_PREFIX) :].strip()
    lines = [shortened(text, max_chars)] if text or not images else []
    text = "\n".join([*lines, *map(_placeholder, images)])
    return ToolResult(text=text, is_error=is_error, images=tuple(images))


def without_placeholders(result: ToolResult) -> str:
    """Return the text of a result without the lines for its images, for a reader who sees them."""
    lines = "\n".join(map(_placeholder, result.images))
    return result.text.removesuffix(lines).removesuffix("\n") if lines else result.text


def _placeholder(image: bytes) -> str:
    """Return what the model reads in place of an image."""
    kind = next((name for start, name in _FORMATS if image.startswith(start)), "unknown format")
    if kind == "PNG" and len(image) >= _PNG_SIZE.stop:
        width, height = struct.unpack(">II", image[_PNG_SIZE])
        return f"[image: {width}x{height} PNG, not shown in this modality]"
    return f"[image: {kind}, {len(image)} bytes, not shown in this modality]"


def _read(block: Mapping[str, JsonValue], texts: list[str], images: list[bytes]) -> None:
    kind = block.get("type")
    if kind == "text":
        texts.append(str(block.get("text", "")))
    elif kind == "image":
        try:
            images.append(base64.b64decode(str(block.get("data", "")), validate=True))
        except binascii.Error:
            texts.append("[an image that cannot be read]")
    elif kind == "resource":
        resource = block.get("resource")
        inner = resource if isinstance(resource, dict) else {}
        texts.append(str(inner.get("text", f"[{inner.get('uri', 'a resource')}]")))
    else:
        texts.append(json.dumps(dict(block), ensure_ascii=False))


def _is_error_text(text: str) -> bool:
    if text[: len(_PREFIX)].lower() == _PREFIX:
        return True
    if not text.startswith("{"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    return bool(value.get("error")) or value.get("status") == "failed" or bool(value.get("isError"))
