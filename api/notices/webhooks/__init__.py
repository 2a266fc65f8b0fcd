"""Webhooks: a project's events, signed and sent to its own addresses (Standard Webhooks)."""
