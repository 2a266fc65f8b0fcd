"""Rollouts that a definition leaves open."""

from __future__ import annotations


class Ambiguous(Exception):
    """Two readers of a definition could label this rollout differently; it is played anew."""


def refuse(is_ambiguous: bool, reason: str) -> None:
    """Raise `Ambiguous` if it is."""
    if is_ambiguous:
        raise Ambiguous(reason)
