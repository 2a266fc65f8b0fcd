"""Sanitizing of text from servers, so that it can be stored."""

from __future__ import annotations


def sanitize_unicode(text: str) -> str:
    """Replace each half of a surrogate pair by a question mark.

    A server that cuts its text within an emoji sends such a half. JSON accepts it; tokenizers,
    files and databases do not.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
