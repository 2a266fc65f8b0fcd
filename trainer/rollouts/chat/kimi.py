"""Kimi's tokenizer: its vocabulary is a `tiktoken.model`, and its rules are code of the model's.

Code from a hub is never run here, so the rules are written down: which pieces text is cut into, and
that the tokens after the vocabulary's are markers, named in `tokenizer_config.json`. The ids are
those of `tokenization_kimi.py` of moonshotai/Kimi-K2-Instruct, except in runs of more than 25,000
characters without white space (or of nothing else), which that file cuts first.
"""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

VOCABULARY, CONFIG = "tiktoken.model", "tokenizer_config.json"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_BEFORE, _CONTRACTION = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PIECES = "|".join(
    (
        r"[\p{Han}]+",
        f"{_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTION}",
        f"{_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""`pat_str` of `tokenization_kimi.py`: tokens never reach over the border of two pieces."""

Ranks = dict[bytes, int]


def read_kimi(directory: Path) -> Tokenizer:
    """Make the tokenizer of a directory with `tiktoken.model` and `tokenizer_config.json`.

    Raises:
        OSError, ValueError, KeyError, TypeError: a file is missing or malformed.
    """
    ranks = _read_ranks(directory / VOCABULARY)
    letters = byte_letters()
    texts = {token: "".join(letters[byte] for byte in token) for token in ranks}
    halves = [_halves(token, ranks) for token in sorted(ranks, key=ranks.__getitem__)]
    merges = [(texts[left], texts[right]) for left, right in filter(None, halves)]
    vocab = {texts[token]: rank for token, rank in ranks.items()}
    # A piece that is a token is that token, whether or not merges lead there: as in tiktoken.
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_read_markers(directory / CONFIG, first_id=len(ranks)))
    return tokenizer


def _read_ranks(path: Path) -> Ranks:
    """Read the tokens' bytes with their ids, which are also their ranks in merging."""
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines() if line)
    ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    if sorted(ranks.values()) != list(range(len(ranks))) or len(ranks) < 256:
        raise ValueError("the ids do not count from 0 without a gap, or a single byte is missing")
    return ranks


def _read_markers(path: Path, *, first_id: int) -> list[str]:
    """Read the names of the ids after the vocabulary's; ids without a name get a placeholder."""
    named = json.loads(path.read_text(encoding="utf-8"))["added_tokens_decoder"]
    names = {int(token_id): str(token["content"]) for token_id, token in named.items()}
    end = max(names, default=first_id - 1) + 1
    return [names.get(i, f"<|reserved_token_{i}|>") for i in range(first_id, end)]


def _halves(token: bytes, ranks: Ranks) -> tuple[bytes, bytes] | None:
    """Return the two tokens that a token is merged from; None for a byte or without such merges.

    A `tiktoken.model` does not list them. They remain when the token's bytes are merged in the
    order of the ranks below its own.
    """
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        places = ((ranks.get(left + right), i) for i, (left, right) in enumerate(pairwise(parts)))
        known = [(rank, i) for rank, i in places if rank is not None]
        rank, at = min(known, default=(ranks[token], 0))
        if rank >= ranks[token]:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def byte_letters() -> list[str]:
    """Return the printable character that represents each byte, as GPT-2's byte-level BPE does."""
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    shifted = {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]
