"""The cause of a missing grade in words: one line, short, without secrets."""

from __future__ import annotations

from hillclimb.process.redactor import Redactor
from hillclimb.protocol.outcomes import DETAIL_LIMIT


def cause_in_words(text: str | None, redactor: Redactor) -> str | None:
    """Return a server's or an error's text as the detail of an outcome; None where it is empty.

    Secrets are redacted first: half of one, at the place of the cut, would not be recognised.
    """
    line = " ".join(redactor.text(text or "").replace("\0", "\ufffd").split())
    return f"{line[: DETAIL_LIMIT - 1]}…" if len(line) > DETAIL_LIMIT else line or None
