"""Time of a training step on GPUs by arithmetic, and the share of it for which they compute.

It is no forecast: rollouts differ from `TYPICAL`, no step was ever measured, and tool calls, slow
last rollouts and traffic between GPUs are left out. It compares divisions of GPUs between engines
and learner. Each constant says where it comes from; "the review" is the expert's reading of the
trainer on 8 H100 from before the presets had this form, itself arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.hardware.model.speed.flops import forward_flops
from hillclimb.spec.run import RunSpec

DENSE_MFU = 0.42
"""Of a learner's pass over 32k to 65k tokens. Measured on one H100 for nine layers of Qwen3-8B
(0.423 and 0.428, benchmarks/results/gpu_h100.jsonl). Assumed: other GPUs, several ranks, and
engines over prompts reach it too."""
EXPERT_MFU = 0.16
"""The same of experts: three layers of Qwen3-30B-A3B at 32k, 0.162 before the fused kernels."""
DECODING_BANDWIDTH = 0.7
"""Share of the data sheet's bandwidth that decoding reaches. Assumed: the review's 28 ms per token
for 351,000 cached tokens of Qwen3-8B on an H100 are 0.72."""
HOST_BYTES_PER_S = 64e9
"""Between a GPU and the machine's memory, one way: data sheet of PCIe 5 x16."""
DIRECT_BYTES_PER_S = 10e9
"""Weights by `nccl` or `ipc`. Assumed: the review has 1 to 2 s for the 16 GB of Qwen3-8B."""
FILE_BYTES_PER_S = 0.5e9
"""Weights through files. Assumed: the review has 30 to 40 s for the same."""
SWITCH_S = 30.0
"""From sampling to learning and back on GPUs that take turns. Assumed, the review's half minute."""
HOST_ADAM_S, HOST_ADDITION_S = 0.6e-9, 0.27e-9
"""Of a parameter in the machine's memory, per update and per pass. The first was measured on one
thread of a CPU; the second is the review's 1.5 s for 5.5e9 gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A rollout; all fields are counts of tokens."""

    prompt: int
    """Shared by the rollouts of a group."""
    length: int
    drawn: int
    """Sampled by the engine; what is neither prompt nor drawn are observations."""

    def within(self, length: int) -> Workload:
        """Return it in its proportions, no longer than `length`."""
        if length >= self.length:
            return self
        prompt, drawn = (each * length // self.length for each in (self.prompt, self.drawn))
        return Workload(prompt=prompt, length=length, drawn=drawn)


TYPICAL = Workload(prompt=12_000, length=25_000, drawn=6_000)
"""The review's rollout of Fleet's tool use. Length and drawn tokens are its own; its 19 rollouts in
a cache of 351,000 tokens have 18,500 each on average, so that they begin with 12,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of one step (seconds), and which GPUs compute in it."""

    generation_s: float
    update_s: float
    """For which the learner's GPUs compute."""
    waiting_s: float
    """For which they wait for the machine's memory (`learner.cpu_offload`)."""
    idle_s: float
    """For which all GPUs wait: weights on their way, and the switch between turns."""
    engine_gpus: int
    learner_gpus: int
    num_gpus: int
    """GPUs that are paid for."""
    shares: bool
    """True if engines and ranks use the same GPUs: what both do is added up."""
    overlaps: bool
    """True if engines draw the next step meanwhile (`schedule.max_staleness_steps`)."""
    workload: Workload

    @property
    def step_s(self) -> float:
        """Seconds from one step to the next."""
        learning = self.update_s + self.waiting_s
        if self.overlaps and not self.shares:
            return max(self.generation_s, learning) + self.idle_s
        return self.generation_s + learning + self.idle_s

    @property
    def busy_share(self) -> float:
        """GPU-seconds in which a GPU computes, over all that are paid for: from 0 to 1."""
        busy = self.engine_gpus * self.generation_s + self.learner_gpus * self.update_s
        return busy / (self.num_gpus * self.step_s)

    @property
    def line(self) -> str:
        """Line of text for users."""
        meanwhile = "at the same time" if self.overlaps and not self.shares else "in turn"
        offload = f" and {self.waiting_s:.0f} s for its memory" if self.waiting_s else ""
        return (
            f"GPUs compute for {self.busy_share:.0%} of a step, on paper, if a rollout has"
            f" {self.workload.length:,} tokens and {self.workload.drawn:,} are drawn: engines"
            f" {self.generation_s:.0f} s, the learner {self.update_s:.0f} s{offload}, {meanwhile};"
            f" weights and switches {self.idle_s:.0f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArithmetic:
    """A step of a spec on GPUs of one kind."""

    spec: RunSpec
    shape: ModelShape
    num_gpus: int
    """GPUs that are paid for."""
    cache_bytes: float
    """The KV cache of a GPU of an engine."""
    kv_bytes_per_token: float
    """Of that cache."""
    weight_bytes: float
    """The model on a GPU of an engine."""
    num_trained: int
    """Parameters with a gradient."""
    pass_tokens: int
    """Packed tokens of a pass, over all ranks that share it."""
    flops_per_s: float
    """Dense bfloat16 peak of a GPU."""
    bytes_per_s: float
    """Bandwidth of a GPU's memory, by its data sheet."""
    transport: str
    """By which weights go to engines, `auto` decided."""
    workload: Workload = TYPICAL
    mfu: float | None = None
    """None: the measured one of the model's kind."""

    def time(self) -> StepTime:
        """Return the time of a step."""
        engine, placement = self.spec.engine, self.spec.placement
        idle = self.sync_s() + (SWITCH_S if placement.colocate else 0.0)
        return StepTime(
            generation_s=self.decoding_s() + self.prefill_s(),
            update_s=self.update_s(),
            waiting_s=self.waiting_s(),
            idle_s=idle,
            engine_gpus=engine.data_parallel_size * engine.tensor_parallel_size,
            learner_gpus=placement.learner_ranks,
            num_gpus=self.num_gpus,
            shares=engine.weight_transport == "ipc",
            overlaps=self.spec.schedule.max_staleness_steps > 0,
            workload=self._rollout,
        )

    @property
    def _rollout(self) -> Workload:
        return self.workload.within(self.spec.rollout.max_sequence_length)

    @property
    def _num_groups(self) -> int:
        return self.spec.schedule.train_batch_size

    @property
    def _num_samples(self) -> int:
        return self.spec.rollout.n_samples_per_prompt

    @property
    def _own_mfu(self) -> float:
        return self.mfu or (DENSE_MFU if self.shape.experts is None else EXPERT_MFU)

    def num_decoded(self) -> float:
        """Return the rollouts that one engine decodes at once (count).

        A rollout reserves the tokens that it has beside its group's prompt, on average half of
        them, and its longest turn (`trainer.engines.admission`).
        """
        rollout, spec = self._rollout, self.spec
        own = (rollout.length - rollout.prompt) / 2 + spec.rollout.max_generate_length
        each = self.kv_bytes_per_token * (rollout.prompt / self._num_samples + own)
        started = self._num_groups * self._num_samples * (1 + spec.schedule.max_staleness_steps)
        most = min(spec.environment.max_concurrent_rollouts, started)
        return min(self.cache_bytes / each, most / spec.engine.data_parallel_size)

    def token_s(self) -> float:
        """Return the time in which an engine decodes a token of each of its rollouts (seconds).

        All weights and the cache of every rollout pass through the GPU's memory once: also of
        experts, of which tens of rollouts need nearly all.
        """
        rollout = self._rollout
        cached = self.kv_bytes_per_token * (rollout.prompt + rollout.length) / 2
        bytes_read = self.weight_bytes + self.num_decoded() * cached
        return bytes_read / (DECODING_BANDWIDTH * self.bytes_per_s)

    def decoding_s(self) -> float:
        """Return the time for which every engine decodes (seconds): its cache is full all along."""
        num = self._num_groups * self._num_samples * self._rollout.drawn
        per_engine = num / self.spec.engine.data_parallel_size
        return per_engine / self.num_decoded() * self.token_s()

    def prefill_s(self) -> float:
        """Return the time for which every engine computes prompts and observations (seconds).

        Each is computed once, and a prompt once for its group.
        """
        rollout, spec = self._rollout, self.spec
        seen = rollout.length - rollout.prompt - rollout.drawn
        flops = self._num_groups * self._forward(rollout.prompt, rollout.prompt**2 / 2)
        pairs = seen * (rollout.prompt + rollout.length) / 2
        flops += self._num_groups * self._num_samples * self._forward(seen, pairs)
        num_gpus = spec.engine.data_parallel_size * spec.engine.tensor_parallel_size
        return flops / (num_gpus * self._own_mfu * self.flops_per_s)

    def _forward(self, num_tokens: float, num_pairs: float, num_outputs: float = 0.0) -> float:
        return forward_flops(
            self.shape, num_tokens=num_tokens, num_outputs=num_outputs, num_pairs=num_pairs
        )

    def _num_parts(self) -> int:
        """Return the parts in which a group is learned, each with its prompt (`partition`)."""
        rollout = self._rollout
        room = self.pass_tokens - rollout.prompt
        together = max(1, min(self._num_samples, room // (rollout.length - rollout.prompt)))
        return ceil(self._num_samples / together)

    def _num_packed(self) -> int:
        """Return the tokens that the learner computes for a group (count)."""
        rollout = self._rollout
        own = self._num_samples * (rollout.length - rollout.prompt)
        return self._num_parts() * rollout.prompt + own

    def update_s(self) -> float:
        """Return the time for which every rank computes (seconds).

        Forward and backward pass, one more forward pass for each other policy that scores the
        rollouts. Frozen weights have no gradient, and attention always has one.
        """
        spec, rollout = self.spec, self._rollout
        own, prompt = rollout.length - rollout.prompt, rollout.prompt
        pairs = self._num_parts() * prompt**2 / 2
        pairs += self._num_samples * (own * prompt + own**2 / 2)
        outputs = self._num_samples * rollout.drawn
        forward = self._forward(self._num_packed(), pairs, outputs)
        scorings = spec.algorithm.off_policy_correction.is_on + spec.algorithm.use_kl_loss
        flops = (3 + scorings) * forward
        if spec.learner.lora is not None:
            flops -= forward - self._forward(0, pairs)
        num_ranks = spec.placement.learner_ranks
        return self._num_groups * flops / (num_ranks * self._own_mfu * self.flops_per_s)

    def waiting_s(self) -> float:
        """Return the time for which ranks wait for the machine's memory (seconds).

        With `learner.cpu_offload` each pass copies its gradients there, where they are added up,
        and each update is computed there.
        """
        spec = self.spec
        if not spec.learner.cpu_offload:
            return 0.0
        num_sharing = spec.placement.learner_ranks / spec.learner.context_parallel_size
        num_tokens = self._num_groups * self._num_packed() / num_sharing
        num_updates = spec.schedule.train_batch_size // spec.schedule.mini_batch_size
        num_passes = max(num_updates, ceil(num_tokens / self.pass_tokens))
        per_pass = 4 / HOST_BYTES_PER_S + HOST_ADDITION_S
        per_parameter = num_passes * per_pass + num_updates * HOST_ADAM_S
        return per_parameter * self.num_trained / spec.placement.learner_ranks

    def sync_s(self) -> float:
        """Return the time for which new weights are on their way (seconds): 2 B a parameter."""
        is_direct = self.transport in ("ipc", "nccl")
        number = self.num_trained if self.transport == "lora" else self.shape.num_parameters
        return 2 * number / (DIRECT_BYTES_PER_S if is_direct else FILE_BYTES_PER_S)
