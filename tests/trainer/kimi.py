"""A tokenizer in the form in which Kimi's models have theirs, small; and its peer in tiktoken."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tests.trainer.scripted import DONE
from trainer.rollouts.kimi import PIECES

SENTENCES = (
    "The agent's calendar isn't free: booked 2026-03-14, 12345 times, and she'll pay EUR 99.5.",
    'Hotels in Brno: ÄRGER & Söhne, straße naïve café; {"query": "Brno", "nights": 3}\r\n\r\n  x',
    "日本語のテキスト, 中文字符和漢字，한국어 텍스트. Ελληνικά Русский 😀🚀",
    "aaaaaaaa banana bananas\t\tCamelCase snake_case SCREAMING don't DON'T we'Ve",
    "   trailing   \n\n indented\n    more",
)
NUM_TOKENS = 700
MARKERS = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|im_end|>",
    3: "<|im_user|>",
    4: "<|im_assistant|>",
    10: "<|im_system|>",
    17: "<|im_middle|>",
    22: "<think>",
    23: "</think>",
    24: DONE,
    30: "[PAD]",
}
"""By their place after the vocabulary; the places between have no names, as Kimi's have none."""
TEMPLATE = """{%- for message in messages -%}
  {{- '<|im_' + message.role + '|>' + message.role + '<|im_middle|>' -}}
  {{- message.content + '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_assistant|>assistant<|im_middle|>' -}}
  {%- if thinking is defined and thinking is false -%}{{- '<think></think>' -}}
  {%- else -%}{{- PREFILL -}}{%- endif -%}
{%- endif -%}
"""


def write_kimi_tokenizer(
    directory: Path, *, num_tokens: int = NUM_TOKENS, prefill: str = ""
) -> int:
    """Write `tiktoken.model`, `tokenizer_config.json` and a template; returns how many ids it has.

    With 256 tokens there is one for each byte.
    """
    trained = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens, initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(SENTENCES, trainer)
    byte_of = _bytes_by_letter()
    lines = [
        f"{base64.b64encode(bytes(byte_of[letter] for letter in token)).decode()} {token_id}"
        for token, token_id in sorted(trained.get_vocab().items(), key=lambda item: item[1])
    ]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tiktoken.model").write_text("\n".join(lines) + "\n")
    named = {str(len(lines) + place): {"content": name} for place, name in MARKERS.items()}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": named}))
    template = TEMPLATE.replace("PREFILL", repr(prefill))
    (directory / "chat_template.jinja").write_text(template)
    return len(lines) + max(MARKERS) + 1


def peer_of(directory: Path) -> tiktoken.Encoding:
    """What `tokenization_kimi.py` makes of the same two files."""
    lines = (line.split() for line in (directory / "tiktoken.model").read_text().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    named = json.loads((directory / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    names = {int(token_id): token["content"] for token_id, token in named.items()}
    markers = {
        names.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(ranks), max(names) + 1)
    }
    return tiktoken.Encoding("kimi", pat_str=PIECES, mergeable_ranks=ranks, special_tokens=markers)


def ids_of(peer: tiktoken.Encoding, text: str) -> list[int]:
    """The ids of text with Kimi's markers in it; `<done>`, which Kimi has not, is text."""
    return peer.encode(
        text, allowed_special=peer.special_tokens_set - {DONE}, disallowed_special=()
    )


def _bytes_by_letter() -> dict[str, int]:
    """The byte behind each letter, asked of `tokenizers` by text that holds every byte."""
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found: dict[str, int] = {}
    for code in (*range(0x80), *range(0x80, 0x800), *range(0x800, 0x11_0000, 0x400)):
        if 0xD800 <= code < 0xE000:
            continue
        (letters, _), *_ = as_bytes.pre_tokenize_str(chr(code))
        found.update(zip(letters, chr(code).encode(), strict=True))
    # The rest stand in no text, only in no valid UTF-8: they follow in the order of the letters.
    missing = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(found), key=ord)
    left = [byte for byte in range(256) if byte not in found.values()]
    return found | dict(zip(missing, left, strict=True))
