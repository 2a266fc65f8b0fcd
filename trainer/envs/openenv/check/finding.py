"""Findings of a check, as sentences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingMark(StrEnum):
    """Weight of a finding: `wrong` fails the check, `note` is worth a look."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFinding:
    """One sentence about the server; `what` is a stable word for scripts."""

    what: str
    mark: FindingMark
    sentence: str


def ok(what: str, sentence: str) -> ServerFinding:
    """Return a finding that is as it should be."""
    return ServerFinding(what=what, mark=FindingMark.OK, sentence=sentence)


def note(what: str, sentence: str) -> ServerFinding:
    """Return a finding that may be meant, or may not."""
    return ServerFinding(what=what, mark=FindingMark.NOTE, sentence=sentence)


def wrong(what: str, sentence: str) -> ServerFinding:
    """Return a finding that a run would fail over, or learn nothing from."""
    return ServerFinding(what=what, mark=FindingMark.WRONG, sentence=sentence)
