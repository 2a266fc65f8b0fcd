"""Loads the tokenizer of a model's directory."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from trainer.errors import ModelUnavailable
from trainer.rollouts.chat.kimi import VOCABULARY, read_kimi


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
