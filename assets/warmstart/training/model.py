"""The tiny Qwen3: small enough for one CPU core, plain for every tool that reads HF models."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from assets.warmstart.training.induction import start_near_induction
from trainer.inputs.model.directory import save_config

CONTEXT_LENGTH = 1024


def tiny_config(*, vocab_size: int, end_of_turn_id: int, pad_id: int) -> Qwen3Config:
    """Architecture of the tiny model: about 0.85 M parameters, tied embeddings."""
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=end_of_turn_id,
        pad_token_id=pad_id,
        dtype="float32",
    )


def build_model(config: Qwen3Config, *, seed: int) -> Qwen3ForCausalLM:
    """A float32 model, close to an induction circuit; the same seed gives the same weights."""
    torch.manual_seed(seed)
    model: Qwen3ForCausalLM = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    start_near_induction(model)
    return model


def save_model(model: Qwen3ForCausalLM, directory: Path) -> str:
    """Write `config.json` and bfloat16 weights; return the SHA-256 (hex) of the weights file.

    The model itself is rounded to bfloat16 first, so what is measured after saving is what was
    saved. Readers who ask for float32 get exactly these values.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))
    save_config(model.config, directory)
    model.generation_config.save_pretrained(directory)
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    weights = directory / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    return hashlib.sha256(weights.read_bytes()).hexdigest()


def load_model(directory: Path) -> Qwen3ForCausalLM:
    """Load a saved tiny model in float32."""
    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model
