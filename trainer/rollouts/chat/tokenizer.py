"""Loads the tokenizer of a model's directory, and the tokens at which the model stops."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tokenizers import Tokenizer, decoders

from trainer.errors import ModelUnavailable
from trainer.rollouts.chat.kimi import VOCABULARY, byte_letters, read_kimi

_END_FILES = ("generation_config.json", "config.json")
"""Files that name the tokens at which a model stops, the better one first."""
log = logging.getLogger(__name__)


def load_tokenizer(directory: Path) -> Tokenizer:
    """Load `tokenizer.json` of a model directory, or the `tiktoken.model` of a Kimi.

    Raises:
        ModelUnavailable: it is missing or cannot be read.
    """
    path, kimi = directory / "tokenizer.json", directory / VOCABULARY
    if kimi.is_file() and not path.is_file():
        try:
            return read_kimi(directory)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            why = f"{type(fault).__name__}: {fault}"
            raise ModelUnavailable(f"cannot load {kimi}: {why}") from fault
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as fault:
        # tokenizers raises plain Exception for broken files
        raise ModelUnavailable(f"cannot load {path}: {fault}") from fault


def read_end_ids(directory: Path) -> tuple[int, ...]:
    """Return `eos_token_id` of a model directory, one number or several; () where none is named."""
    for name in _END_FILES:
        try:
            ends = json.loads((directory / name).read_text(encoding="utf-8")).get("eos_token_id")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, AttributeError) as fault:
            log.warning("%s names no stop tokens: %s", directory / name, fault)
            continue
        ids = ends if isinstance(ends, list) else [ends]
        if ends is not None and all(isinstance(each, int) and each >= 0 for each in ids):
            return tuple(ids)
    return ()


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Return what each id stands for, in order of the ids; ids without a token are empty.

    A token of a byte-level vocabulary may be a part of a character, which is no text of its own.
    """
    added = tokenizer.get_added_tokens_decoder()
    is_byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)
    of_letter = {letter: byte for byte, letter in enumerate(byte_letters())}

    def bytes_of(token_id: int) -> bytes:
        if token_id in added:
            return added[token_id].content.encode()
        token = tokenizer.id_to_token(token_id) or ""
        if is_byte_level and all(letter in of_letter for letter in token):
            return bytes(of_letter[letter] for letter in token)
        return tokenizer.decode([token_id], skip_special_tokens=False).encode()

    return [bytes_of(i) for i in range(tokenizer.get_vocab_size(with_added_tokens=True))]
