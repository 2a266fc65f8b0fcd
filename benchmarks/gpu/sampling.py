"""Block D: how far a policy that samples in bfloat16 is from the learner's numbers.

transformers' own `generate` is the policy that samples; vLLM too where it is installed.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.gpu.serving.turns import CORRECTED, has_vllm, routes, taking_turns
from benchmarks.gpu.serving.whole_run import whole_run
from benchmarks.gpu.setting import Cases, Check, Figures, Setting
from hillclimb.hardware.model.shipped import assets_dir
from hillclimb.protocol.rundir import POLICY
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.canary import BFLOAT16_TOLERANCE, canary_tokens
from trainer.engines.vllm.options import VllmOptions
from trainer.inputs.model.directory import load_policy
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import RankGroup
from trainer.learners.rank import LearnerRank

SHIPPED = assets_dir() / "tiny-qwen3-a"


def shipped_rank(setting: Setting) -> LearnerRank:
    """The model that ships with Hillclimb: it was trained, so its log-probs are no noise."""
    options = LearnerOptions(learner=setting.learner(), algorithm=CORRECTED, tokenizer_dir=SHIPPED)
    return LearnerRank(load_policy(SHIPPED), options, RankGroup(device=setting.device))


def real_tokens() -> list[int]:
    """Text as the model reads it, a page of the documentation."""
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED, local_files_only=True)
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids[:512]


def on_device(model: Any, setting: Setting) -> Any:
    """Return the model in bfloat16 where the benchmark runs."""
    return model.to(setting.device, torch.bfloat16)


def canary(setting: Setting) -> Cases:
    """The canary's gap in bfloat16: on its random tokens, and on text."""
    rank = shipped_rank(setting)
    model = on_device(load_policy(SHIPPED), setting)
    tokens = {
        "random": list(canary_tokens(model.config.vocab_size)),
        "text": real_tokens(),
    }
    for name, ids in tokens.items():
        gaps = (_scored(model, ids) - rank.logprobs(ids)).abs()
        mean = float(gaps.mean())
        yield (
            name,
            {
                "mean": mean,
                "largest": float(gaps.max()),
                "is_within_the_canarys_limit": mean < BFLOAT16_TOLERANCE,
            },
        )


def _scored(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Log-probs by transformers' own forward pass, [T-1]."""
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    with torch.no_grad():
        scores = model(input_ids=tokens, use_cache=False).logits[0, :-1].float()
    logprobs: torch.Tensor = scores.log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)
    return logprobs.cpu()


def sampled(setting: Setting) -> Cases:
    """Rollouts by `generate` in bfloat16, and what the learner makes of their log-probs."""
    shipped = on_device(load_policy(SHIPPED), setting)
    prompt = real_tokens()[:64]
    yield "shipped", _learned(setting, shipped_rank(setting), shipped, prompt)
    layers = setting.size(9, 2)
    rank = setting.rank(layers, algorithm=CORRECTED)
    random_model = setting.model(layers, dtype=torch.bfloat16)
    ids = [(7 + 7919 * index) % setting.shape.vocab_size for index in range(64)]
    yield "random", _learned(setting, rank, random_model, ids)


def _learned(setting: Setting, rank: LearnerRank, model: CausalLM, prompt: list[int]) -> Figures:
    """Draw four rollouts, take a step on them, and return the figures of the mismatch."""
    length = setting.size(512, 8)
    tokens = torch.tensor([prompt] * 4, device=setting.device)
    torch.manual_seed(0)
    generating: Any = model
    drawn = generating.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=True,
        top_k=0,
        min_new_tokens=length,
        max_new_tokens=length,
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=0,
    )
    new = drawn.sequences[:, len(prompt) :]
    scores = torch.stack(drawn.logits, dim=1).float().log_softmax(-1)
    logprobs = scores.gather(2, new[:, :, None]).squeeze(2).tolist()
    sequences = tuple(
        TrainingSequence(
            token_ids=(*prompt, *ids),
            action_mask=(False,) * len(prompt) + (True,) * length,
            logprobs=(0.0,) * len(prompt) + tuple(values),
            prompt_length=len(prompt),
            advantage=1.0 if index % 2 else -1.0,
            temperature=1.0,
        )
        for index, (ids, values) in enumerate(zip(new.tolist(), logprobs, strict=True))
    )
    metrics = rank.step(Batch(mini_batches=(sequences,)))
    kept = ("rollout_train_logprobs", "tis_", "is_ratio")
    return {
        name.removeprefix("policy/"): value
        for name, value in metrics.items()
        if any(each in name for each in kept)
    }


def vllm(setting: Setting) -> Cases:
    """vLLM beside the learner: log-probs, and an update in the middle of a rollout."""
    if not has_vllm() or setting.rehearses:
        yield "engine", {"skipped": "vLLM is not installed, or this is a rehearsal"}
        return
    yield "engine", asyncio.run(_beside_vllm(setting))


async def _beside_vllm(setting: Setting) -> Figures:
    from trainer.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - not everywhere
    from trainer.types import SamplingParams  # noqa: PLC0415

    rank = shipped_rank(setting)
    with tempfile.TemporaryDirectory() as folder:
        rank.save(Path(folder))
        options = VllmOptions(
            model_dir=Path(folder) / POLICY,
            max_length=1024,
            num_sessions=8,
            dtype="bfloat16",
            gpu_memory_utilization=0.3,
        )
        engine = await asyncio.to_thread(VllmEngine, options)
        try:
            ids = real_tokens()
            before = (await engine.logprobs(ids) - rank.logprobs(ids)).abs()
            params = SamplingParams(max_new_tokens=512, temperature=1.0, stop_token_ids=())
            drawing = asyncio.create_task(
                engine.sample(ids[:64], params, session="one", prefix_key="")
            )
            await asyncio.sleep(0.2)
            path = Path(folder) / "weights.safetensors"
            sent = rank.write_weights(path)
            loaded = await engine.load_weights_file(path, 1)
            sample = await drawing
        finally:
            await engine.close()
    return {
        "mean": float(before.mean()),
        "largest": float(before.max()),
        "is_every_weight_there": replace(sent, version=1) == loaded,
        "versions": sorted(set(sample.weight_versions)),
        "in_flight": sorted(set(sample.weight_versions)) == [0, 1],
    }


CHECKS: dict[str, Check] = {
    "canary": canary,
    "sampled": sampled,
    "whole_run": whole_run,
    "vllm": vllm,
    "taking_turns": taking_turns,
    "routes": routes,
}
