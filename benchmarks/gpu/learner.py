"""What the learner does on one NVIDIA GPU: speed, memory, and whether its numbers hold.

    python benchmarks/gpu/learner.py [--out results.json] [--only NAME ...]
    python benchmarks/gpu/learner.py --device cpu --tiny     # a rehearsal without a GPU

The policy is a random model of Qwen3-8B's shape, built in place. A check that runs out of memory
says so and the others go on, as they do after one that fails. The exit status is 1 if one failed,
or if what should be equal is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from hillclimb.spec.training.learner import LearnerSpec, LoraSpec
from hillclimb.spec.training.model import ModelSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.algo.loss.objective import policy_streams
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.inputs.model.rope import apply_rope
from trainer.learners.model.models import LearnerOptions, logprobs
from trainer.learners.model.policy import PolicyModule
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.model.sharding import RankGroup
from trainer.learners.packing.packing import micro_batches
from trainer.learners.rank import LearnerRank
from trainer.weights.ipc import export_ipc_handle

GIB = 1024**3
EQUALITIES = ("bit_equal", "equal", "positions_agree", "logprobs_agree")
"""Figures that say whether what should be the same is."""
HEAD_GAPS = {torch.float32: 1e-4, torch.bfloat16: 0.05}
"""Largest difference between log-probs in chunks and plainly, by what the head computes in: scores
of a random head are below 8 in size, where bfloat16 is exact to 0.016."""
BORROWER = """
import sys, torch
from trainer.weights.ipc import open_ipc_handle
torch.zeros(1, device=sys.argv[1])
print("ready", flush=True)
mine = open_ipc_handle(bytes.fromhex(sys.stdin.readline()))
for _ in range(2):
    print(int(mine.view(torch.int32).sum(dtype=torch.int64)), flush=True)
    sys.stdin.readline()
"""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """The device, and how large everything is."""

    device: str
    tiny: bool

    @property
    def lengths(self) -> tuple[int, ...]:
        """Packed tokens of one micro-batch."""
        return (128, 256) if self.tiny else (8192, 16_384, 32_768, 65_536)

    def config(self, *, layers: int | None = None) -> Qwen3Config:
        """Qwen3-8B's shape, or a toy of it."""
        return Qwen3Config(
            hidden_size=64 if self.tiny else 4096,
            intermediate_size=128 if self.tiny else 12_288,
            num_attention_heads=4 if self.tiny else 32,
            vocab_size=512 if self.tiny else 151_936,
            num_hidden_layers=layers or (2 if self.tiny else 36),
            num_key_value_heads=2 if self.tiny else 8,
            head_dim=16 if self.tiny else 128,
            max_position_embeddings=64 if self.tiny else 40_960,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
            tie_word_embeddings=False,
        )

    def model(
        self,
        *,
        layers: int | None = None,
        rope: ModelSpec | None = None,
        kind: torch.dtype = torch.float32,
    ) -> Qwen3ForCausalLM:
        """A random policy, the same one every time."""
        torch.manual_seed(0)
        config = apply_rope(self.config(layers=layers), rope or ModelSpec())
        with torch.device(self.device):
            torch.set_default_dtype(kind)
            try:
                return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call, unused-ignore]
            finally:
                torch.set_default_dtype(torch.float32)

    def rank(
        self,
        *,
        lora: bool = False,
        dtype: Literal["float32", "bfloat16"] = "bfloat16",
        layers: int | None = None,
        rope: ModelSpec | None = None,
    ) -> LearnerRank:
        """A learner on a random policy; activations are computed again."""
        # Weights of record are float32 unless they are frozen, which then need not be made so.
        kind = torch.bfloat16 if lora and dtype == "bfloat16" else torch.float32
        model = self.model(layers=layers, rope=rope, kind=kind)
        spec = LearnerSpec(
            policy_dtype=dtype,
            activation_checkpointing=True,
            max_micro_tokens=4_000_000,
            lora=LoraSpec(rank=32, alpha=64) if lora else None,
        )
        options = LearnerOptions(learner=spec, optimizer=OptimizerSpec(lr=1e-5))
        return LearnerRank(model, options, RankGroup(device=self.device))

    def batch(self, tokens: int, *, seed: int = 0, count: int = 2) -> Batch:
        """`count` rollouts of as many prompts, `tokens` packed tokens together."""
        rng, prompt = random.Random(seed), 32
        length = tokens // count - prompt + 1
        vocabulary = self.config().vocab_size
        sequences = []
        for advantage in (-1.0, 1.0)[:count]:
            ids = tuple(rng.randrange(vocabulary) for _ in range(prompt + length))
            mask = (False,) * prompt + (True,) * length
            logprobs = (0.0,) * prompt + (-12.0,) * length
            sequences.append(
                TrainingSequence(
                    token_ids=ids,
                    action_mask=mask,
                    logprobs=logprobs,
                    prompt_length=prompt,
                    advantage=advantage,
                    temperature=1.0,
                )
            )
        return Batch(mini_batches=(tuple(sequences),))

    def measured(self, rank: LearnerRank, tokens: int, *, count: int = 2) -> Figures:
        """Figures of the second of two steps."""
        rank.step(self.batch(tokens, count=count))
        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        metrics = rank.step(self.batch(tokens, seed=1, count=count))
        names = ("tokens_per_second", "mfu", "peak_memory_gib", "grad_norm")
        return {name: metrics.get(f"policy/{name}") for name in names}

    def by_length(self, rank: LearnerRank) -> Figures:
        """Figures for each number of packed tokens, until one is too many for the memory."""
        figures: Figures = {}
        for tokens in self.lengths:
            figures[str(tokens)] = attempt(partial(self.measured, rank, tokens))
            if "out_of_memory" in figures[str(tokens)]:
                break
        return figures


def lora_lengths(bench: Bench) -> Figures:
    """Adapters on the whole model, by packed tokens."""
    rank = bench.rank(lora=True)
    return bench.by_length(rank)


def full_lengths(bench: Bench) -> Figures:
    """Every weight of the whole model, by packed tokens: 16 bytes each before activations.

    Those alone are 131 GB: what one GPU of 141 GB has left may not take a pass. The comparison with
    adapters that it can make is `quarter_lengths` against `lora_quarter_lengths`.
    """
    rank = bench.rank()
    return bench.by_length(rank)


def quarter_lengths(bench: Bench) -> Figures:
    """Every weight of a quarter of the layers: the speed of full training where memory suffices."""
    rank = bench.rank(layers=1 if bench.tiny else 9)
    return bench.by_length(rank)


def lora_quarter_lengths(bench: Bench) -> Figures:
    """Adapters on the same quarter: what of the memory is the weights' that they leave alone."""
    rank = bench.rank(lora=True, layers=1 if bench.tiny else 9)
    return bench.by_length(rank)


def chunked_logprobs(bench: Bench) -> Figures:
    """Forward and backward of the head over 8192 tokens, in chunks and plainly."""
    config, rows = bench.config(), 256 if bench.tiny else 8192
    dtype = torch.float32 if bench.device == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    hidden = torch.randn(rows, config.hidden_size, device=bench.device, dtype=dtype)
    head = 0.02 * torch.randn(config.vocab_size, config.hidden_size, device=bench.device).to(dtype)
    hidden.requires_grad_()
    head.requires_grad_()
    targets = torch.randint(config.vocab_size, (rows,), device=bench.device)
    ones = torch.ones(rows, device=bench.device)

    def plain() -> torch.Tensor:
        return (hidden @ head.T).float().log_softmax(-1).gather(1, targets[:, None]).squeeze(1)

    def chunked() -> torch.Tensor:
        return token_logprobs(hidden, head, targets, ones, chunk_tokens=rows // 8)[0]

    figures: Figures = {}
    found: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, score in (("plain", plain), ("chunked", chunked)):
        torch.autograd.grad(score().sum(), (hidden, head))
        clear(bench.device)
        started = time.perf_counter()
        scored = score()
        gradient, _ = torch.autograd.grad(scored.sum(), (hidden, head))
        synchronize(bench.device)
        figures[name] = {
            "seconds": time.perf_counter() - started,
            "peak_memory_gib": peak(bench.device),
        }
        found[name] = (scored.detach(), gradient)
    gap = float((found["plain"][0] - found["chunked"][0]).abs().max())
    figures["max_logprob_difference"] = gap
    figures["logprobs_agree"] = gap <= HEAD_GAPS[dtype]
    figures["max_gradient_difference"] = float(
        (found["plain"][1] - found["chunked"][1]).abs().max()
    )
    return figures


def yarn(bench: Bench) -> Figures:
    """One sequence far beyond the trained positions: speed, and whether positions are right."""
    agreement = positions_agree(bench)
    clear(bench.device)
    rank = bench.rank(lora=True, rope=stretched(64 if bench.tiny else 32_768))
    return agreement | bench.measured(rank, bench.lengths[-1], count=1)


def stretched(original: int) -> ModelSpec:
    """YaRN over four times the `original` positions."""
    return ModelSpec.model_validate(
        {"rope": {"factor": 4.0, "original_max_position_embeddings": original}}
    )


def positions_agree(bench: Bench) -> Figures:
    """Log-probs beyond the trained positions, in float32: packed, and by transformers alone.

    Two rollouts share a prompt that is twice as long as what was trained on. How far the model
    without YaRN is off shows that positions matter to these log-probs.
    """
    original, layers = 64 if bench.tiny else 2048, 2
    yarn_spec, prompt = stretched(original), 2 * original
    first, second = (
        replace(
            sequence,
            prompt_length=prompt,
            action_mask=tuple(at >= prompt for at in range(len(sequence.token_ids))),
        )
        for sequence in bench.batch(8 * original).mini_batches[0]
    )
    second = replace(second, token_ids=first.token_ids[:prompt] + second.token_ids[prompt:])

    def plainly(rope: ModelSpec) -> torch.Tensor:
        model = sharpened(bench.model(layers=layers, rope=rope))
        with torch.no_grad():
            return torch.cat([far_logprobs(model, each) for each in (first, second)])

    sequences = (first, second)
    (micro,) = micro_batches(
        sequences,
        policy_streams(sequences, (1.0, 1.0)),
        max_tokens=10**9,
        device=torch.device(bench.device),
    )
    policy = PolicyModule(
        sharpened(bench.model(layers=layers, rope=yarn_spec)), chunk_tokens=original
    )
    packed = logprobs(policy, micro)
    del policy
    gap = float((packed - plainly(yarn_spec)).abs().max())
    unstretched = float((packed - plainly(ModelSpec())).abs().max())
    return {
        "max_far_gap": gap,
        "max_far_gap_without_yarn": unstretched,
        "positions_agree": gap < unstretched / 100,
    }


def sharpened(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    """Make attention pick few tokens, so that positions show in the log-probs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                parameter.mul_(2.0)
    return model


def far_logprobs(model: Qwen3ForCausalLM, sequence: TrainingSequence) -> torch.Tensor:
    """Log-probs of what follows the prompt, by transformers' own forward pass."""
    prompt = sequence.prompt_length
    ids = torch.tensor([sequence.token_ids], device=model.device)
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[0, prompt - 1 :]
    targets = ids[0, prompt:]
    return torch.cat(
        [
            model.lm_head(part).log_softmax(-1).gather(1, wanted[:, None]).squeeze(1)
            for part, wanted in zip(
                torch.split(hidden, 1024), torch.split(targets, 1024), strict=True
            )
        ]
    )


def bfloat16_gap(bench: Bench) -> Figures:
    """Log-probs of the same weights in float32 and bfloat16."""
    ids = [(7 + 7919 * index) % bench.config().vocab_size for index in range(512)]
    layers = None if bench.tiny else 9
    exact = bench.rank(dtype="float32", layers=layers).logprobs(ids)
    gc.collect()
    gap = (bench.rank(layers=layers).logprobs(ids) - exact).abs()
    return {"mean": float(gap.mean()), "max": float(gap.max())}


@contextmanager
def deterministic() -> Iterator[None]:
    """Sum in the same order every time: attention's backward pass on a GPU otherwise does not.

    cuBLAS does so by itself on one stream; torch would only warn that it was not told to.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before)


def resume(bench: Bench) -> Figures:
    """Save, go on, load, go on again: the same bits of weights of record, optimizer, counters?"""
    layers = 1 if bench.tiny else 2
    rank, tokens = bench.rank(layers=layers), bench.lengths[0]
    with tempfile.TemporaryDirectory() as directory, deterministic():
        rank.step(bench.batch(tokens))
        started = time.perf_counter()
        finish = rank.begin_save(Path(directory))
        copied = time.perf_counter() - started
        finish()
        saved = time.perf_counter() - started
        rank.step(bench.batch(tokens, seed=1))
        expected = held(rank)
        rank.load(Path(directory))
        went_back = differing(expected, held(rank))
        rank.step(bench.batch(tokens, seed=1))
        differ = differing(expected, held(rank))
    figures = {"copy_seconds": copied, "save_seconds": saved, "num_differing": len(differ)}
    # Unless the load took back what the step had changed, equal bits would say nothing.
    return figures | {"bit_equal": bool(went_back) and not differ}


def held(rank: LearnerRank) -> dict[str, torch.Tensor]:
    """A copy of all that a checkpoint holds, in the precision of training."""
    state = rank._state()  # noqa: SLF001 - the very thing that is saved
    return {name: tensor.cpu().clone() for name, tensor in state.tensors().items()}


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    """Names of the tensors that are not the same bits."""
    missing = one.keys() ^ other.keys()
    both = one.keys() & other.keys()
    return sorted({*missing, *(name for name in both if not torch.equal(one[name], other[name]))})


def cuda_ipc(bench: Bench) -> Figures:
    """A tensor of 1 GiB exported to a process that is no child: CUDA IPC, shared memory on a CPU.

    Its copy must be equal, and stay what it was when the exporter goes on.
    """
    tensor = torch.randn(1024 if bench.tiny else GIB // 4, device=bench.device)
    expected = int(tensor.view(torch.int32).sum(dtype=torch.int64))
    with subprocess.Popen(
        [sys.executable, "-c", BORROWER, bench.device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        started = time.perf_counter()
        say(other, export_ipc_handle(tensor).hex())
        taken = other.stdout.readline()
        seconds = time.perf_counter() - started
        tensor.zero_()
        synchronize(bench.device)
        say(other, "again")
        kept = other.stdout.readline()
        say(other, "done")
    return {"seconds": seconds, "equal": taken == kept == f"{expected}\n"}


def say(other: subprocess.Popen[str], line: str) -> None:
    """Send a line; one that has ended said nothing either, which is seen by that."""
    assert other.stdin is not None
    with suppress(BrokenPipeError):
        other.stdin.write(line + "\n")
        other.stdin.flush()


CHECKS: dict[str, Callable[[Bench], Figures]] = {
    "lora_by_packed_tokens": lora_lengths,
    "quarter_by_packed_tokens": quarter_lengths,
    "lora_quarter_by_packed_tokens": lora_quarter_lengths,
    "full_by_packed_tokens": full_lengths,
    "chunked_logprobs": chunked_logprobs,
    "yarn": yarn,
    "bfloat16_gap": bfloat16_gap,
    "resume": resume,
    "cuda_ipc": cuda_ipc,
}


def attempt(check: Callable[[], Figures]) -> Figures:
    """The check's figures, or that the memory did not suffice."""
    try:
        return check()
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}


def equal(figures: Figures) -> bool:
    """False where something that should be equal was not, or nothing was found out."""
    return "failed" not in figures and all(figures.get(name, True) for name in EQUALITIES)


def checked(check: Callable[[Bench], Figures], bench: Bench) -> Figures:
    """The check's figures, or what it failed with: the others are still to be run."""
    try:
        return attempt(partial(check, bench))
    except Exception as error:  # noqa: BLE001 - the edge of a check, which is reported
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def clear(device: str) -> None:
    """Forget what earlier checks held."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def peak(device: str) -> float | None:
    """GiB of tensors at most since `clear`; not known on a CPU."""
    return None if device == "cpu" else torch.cuda.max_memory_allocated() / GIB


def main() -> int:
    """Run the checks and print what each found; 1 if one failed or found a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", nargs="+", choices=sorted(CHECKS), default=list(CHECKS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    bench = Bench(device=given.device, tiny=given.tiny)
    name = platform.processor() or platform.machine()
    if given.device != "cpu":
        name = torch.cuda.get_device_name(given.device)
    results: Figures = {"device": name, "torch": torch.__version__, "tiny": given.tiny}
    for check in given.only:
        clear(given.device)
        results[check] = checked(CHECKS[check], bench)
        print(check, json.dumps(results[check]), flush=True)
        if given.out:
            given.out.write_text(json.dumps(results, indent=1) + "\n")
    wrong = [check for check in given.only if not equal(results[check])]
    print(f"failed or not equal: {', '.join(wrong)}" if wrong else "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
