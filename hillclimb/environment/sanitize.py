"""Text of others that can be stored: what a server says passes through here once."""

from __future__ import annotations


def storable(text: str) -> str:
    """Return a text of an environment with a question mark for each half of a surrogate pair.

    A server that cuts its text within an emoji sends such a half. JSON lets it pass, and no
    tokenizer, file or database takes it.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
