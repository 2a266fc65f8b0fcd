"""A model with experts out of the dense one that ships: each expert begins as a copy of its MLP.

    .venv-trainer/bin/python -m benchmarks.experiments.upcycling --out DIR [--experts E] [--seed N]

The weights of a token's experts add up to one, so the new model first computes what the dense one
does; the experts grow apart because each is trained on other tokens. Source: sparse upcycling,
Komatsuzaki et al. 2023 (arXiv:2212.05055).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from hillclimb.hardware.model.shipped import assets_dir
from trainer.inputs.model.directory import copy_tokenizer, load_policy, save_config
from trainer.inputs.model.families.experts import published_tensors

PROJECTIONS = ("gate", "up", "down")
PER_TOKEN = 2
DENSE = assets_dir() / "tiny-qwen3-a"
LARGEST_GAP = 1e-4


def upcycled(num_experts: int, seed: int) -> Qwen3MoeForCausalLM:
    """Return the model in float32; only its routers depend on `seed`."""
    dense = load_policy(DENSE)
    own = dense.config.to_dict()
    kept = {name: own[name] for name in own if name not in ("model_type", "architectures")}
    config = Qwen3MoeConfig(
        **kept | {
            "num_experts": num_experts,
            "num_experts_per_tok": PER_TOKEN,
            "moe_intermediate_size": dense.config.intermediate_size,
            "norm_topk_prob": True,
        }
    )  # fmt: skip
    torch.manual_seed(seed)
    model = Qwen3MoeForCausalLM(config)  # type: ignore[no-untyped-call]
    weights = dict(dense.state_dict())
    for index in range(config.num_hidden_layers):
        mlp = f"model.layers.{index}.mlp."
        gate, up, down = (
            weights.pop(f"{mlp}{part}_proj.weight") for part in ("gate", "up", "down")
        )
        weights[f"{mlp}experts.gate_up_proj"] = torch.cat((gate, up)).repeat(num_experts, 1, 1)
        weights[f"{mlp}experts.down_proj"] = down.repeat(num_experts, 1, 1)
        weights[f"{mlp}gate.weight"] = model.state_dict()[f"{mlp}gate.weight"]
    model.load_state_dict(weights)
    tokens = torch.arange(1, 200).unsqueeze(0)
    with torch.no_grad():
        gap = float((model(tokens).logits - dense(tokens).logits).abs().max())
    if gap > LARGEST_GAP:
        raise RuntimeError(f"the models' scores differ by {gap:.3g}")
    return model


def main() -> None:
    """Write a Hugging Face directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = upcycled(options.experts, options.seed)
    save_config(model.config, options.out)
    model.generation_config.save_pretrained(options.out)
    copy_tokenizer(DENSE, options.out)
    tensors = {
        published: part.contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
        for published, part in published_tensors(name, tensor)
    }
    save_file(tensors, options.out / "model.safetensors", metadata={"format": "pt"})
    print(sum(each.numel() for each in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
