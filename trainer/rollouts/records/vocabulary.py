"""The file of the texts of all tokens, by which pages write ids: one per attempt, gzip JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tokenizers import Tokenizer

from trainer.rollouts.chat.tokenizer import token_bytes


def write_vocabulary(path: Path, tokenizer: Tokenizer) -> None:
    """Write a list with an entry per id: the token's text, or its bytes as a list of numbers.

    Bytes are written where a byte-level token ends within a character, so that it has no text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [_entry(token) for token in token_bytes(tokenizer)]
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _entry(token: bytes) -> str | list[int]:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return list(token)
