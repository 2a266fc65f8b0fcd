"""A random Qwen3 with one token per byte: small enough to train in a unit test.

Its embeddings share a direction in which `<done>` and the end of a turn stand out, so a random
policy now and then says that it is done. Where saying so is rewarded, GRPO has something to learn.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.trainer.scripted import DONE, byte_tokenizer

LIKELY = 0.2
"""Added to every dimension of the embeddings of `<done>` and `<|im_end|>`."""


def write_tiny_model(
    directory: Path, *, positions: int = 4096, seed: int = 0, tokenizer: Tokenizer | None = None
) -> Path:
    """Write a Hugging Face directory and return it."""
    tokenizer = tokenizer or byte_tokenizer()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        embeddings += 0.02
        embeddings[[tokenizer.token_to_id(mark) for mark in (DONE, "<|im_end|>")]] += LIKELY
    model.save_pretrained(directory)
    return directory
