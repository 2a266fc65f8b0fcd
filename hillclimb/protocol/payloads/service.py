"""Payloads of the service itself: its health, presets and session codes."""

from __future__ import annotations

from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class ReadyPayload(Payload):
    """The service can serve requests."""

    status: Literal["ready"] = "ready"
    database_revision: str
    warnings: list[str]
    """Problems that do not affect requests: sentences for the operator."""


class PresetPayload(Payload):
    """A spec by name."""

    object: Literal["preset"] = "preset"
    name: str
    about: str
    aliases: tuple[str, ...] = ()
    """Old names of task files by which it is found too."""
    spec: dict[str, Any]
    """The body for `POST /v1/runs`, as it is written: without defaults."""
    text: str
    """The same as YAML, with its comments."""


class PresetList(Payload):
    """All presets, by name."""

    object: Literal["list"] = "list"
    data: list[PresetPayload]


class SessionCodePayload(Payload):
    """A code that signs a browser in once."""

    object: Literal["session_code"] = "session_code"
    code: str
    login_url: str
    expires_in_s: int
