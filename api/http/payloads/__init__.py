"""Payloads: the JSON that clients receive."""
