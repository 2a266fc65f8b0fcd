"""Payloads of the service itself: its parts, and access to them."""

from hillclimb.protocol.payloads.service.parts import (
    PresetList,
    PresetPayload,
    ReadyPayload,
    SessionCodePayload,
)

__all__ = ["PresetList", "PresetPayload", "ReadyPayload", "SessionCodePayload"]
