"""The tiny models' tokenizer: byte-level BPE whose words split alike wherever they stand.

A small model copies a name from prompt to call token by token, so the name must be the same
tokens in `stay in Brno`, `"city": "Brno"` and `Brno-12`. Hence the pre-tokenizer: a run of
letters never carries the space or quote beside it and every digit stands alone. Only what is
never copied may grow into one long token: punctuation with its spaces, tool schemas, JSON keys
with the quotes around them, the head of a call, and the fixed sentences of the prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from assets.warmstart.training.model import CONTEXT_LENGTH
from trainer.rollouts.chat.prompts import INSTRUCTIONS

VOCAB_SIZE = 2048
END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
"""Markers that text never contains; `Chat` places them by id."""
TEXT_MARKERS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>", "<done>"),
)
"""Markers the model writes as text; one id each, visible when decoded, as in Qwen3."""

CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""What `trainer.rollouts.chat.chat.Chat` writes with ids, as text."""


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train the BPE on rendered conversations (without control tokens) and wrap it for HF."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_pretoken_pattern()), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[*CONTROL_TOKENS, *TEXT_MARKERS],
        min_frequency=2,
        show_progress=False,
    )
    marker = re.compile("|".join(map(re.escape, TEXT_MARKERS)))
    tokenizer.train_from_iterator((marker.sub("\n", text) for text in texts), trainer)
    return _wrapped(_with_visible_markers(tokenizer))


def tokenizer_hash(directory: Path) -> str:
    """SHA-256 (hex) of `tokenizer.json`: weights are worthless under any other one."""
    return hashlib.sha256((directory / "tokenizer.json").read_bytes()).hexdigest()


def _with_visible_markers(tokenizer: Tokenizer) -> Tokenizer:
    """Undo that BPE training makes every reserved token special: text markers stay text."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] in CONTROL_TOKENS
    return Tokenizer.from_str(json.dumps(state))


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    wrapped: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _pretoken_pattern() -> str:
    sentence = re.compile("|".join(map(re.escape, TEXT_MARKERS)))
    fixed = [part for line in INSTRUCTIONS for part in sentence.split(line) if len(part) > 1]
    return "|".join(
        [
            *(re.escape(part) for part in fixed),
            r"You are an agent working in the app |Current date: ",
            r"LOGGED_IN_[A-Z]+: |Tool result:\n",
            r"\{\"name\":\"[a-z_]+\",\"description\":\"[^\"]*\",\"parameters\":",
            r"\{\"type\":\"object\",\"properties\":\{",
            r"\"[a-z_]+\":\{\"type\":\"[a-z]+\"(?:,\"enum\":\[[^\]]*\])?\},?",
            r"\},\"required\":\[[^\]]*\]\}\}",
            r"\{\"name\": \"[a-z_]+\", \"arguments\": \{",
            r"(?:\"?, )?\"[a-z_]+\": \"?",
            r"(?:\{|\"?,)\"[a-z_]+\":\"?",
            r"\n",
            r"\p{L}+",
            r"\p{N}",
            r"[^\p{L}\p{N}\n]+",
        ]
    )
