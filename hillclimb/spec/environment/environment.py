"""The sections of a run spec. Every field is read by this version; defaults are the vetted setting.

Lengths are in tokens, times in seconds (`_s`), shares in [0, 1].
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.contract.fleet import FleetSpec
from trainer.contract.openenv import OpenEnvServer
from trainer.contract.optimizer import OptimizerSpec as OptimizerSpec
from trainer.contract.section import EnvKey as EnvKey
from trainer.contract.section import Seconds as Seconds
from trainer.contract.section import Section as Section
from trainer.contract.section import Share as Share
from trainer.contract.section import refuse_unread

_PINNED = re.compile(r"hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}")


class YarnSpec(Section):
    """A context stretched by YaRN (Peng et al. 2023, arXiv:2309.00071)."""

    factor: Annotated[float, Field(gt=1.0, le=64.0)]
    """How many times longer the context gets."""
    original_max_position_embeddings: Annotated[int, Field(ge=16, le=2_000_000)]
    """The context the model was trained with (tokens); the new one is `factor` times it."""


class ModelSpec(Section):
    """The policy to start from."""

    source: Annotated[str, Field(min_length=1, max_length=1024)] = "builtin:tiny-qwen3-a"
    """`builtin:NAME` for a model shipped with Hillclimb, `hf:ORG/NAME@REVISION` for a model of the
    Hugging Face hub (REVISION is the full commit hash: a branch or tag can move),
    `s3://BUCKET/PREFIX`, or a path to a Hugging Face directory that the runner's machine can
    read."""
    rope: YarnSpec | None = None
    """Stretch the context; null keeps the positions of the model's own config."""

    @model_validator(mode="after")
    def _revision_is_pinned(self) -> Self:
        if self.source.startswith("hf:") and not _PINNED.fullmatch(self.source):
            raise ValueError(
                f"{self.source!r} does not pin a revision: write hf:ORG/NAME@REVISION with the full"
                " commit hash (40 hexadecimal digits)"
            )
        return self


class FaultSpec(Section):
    """Faults injected into an environment, to try how a run copes with them."""

    reset_error_rate: Share = 0.0
    """Share of resets that fail as if the environment did not start."""
    call_error_rate: Share = 0.0
    """Share of tool calls that get no answer."""
    verifier_error_rate: Share = 0.0
    """Share of verifications that give no grade."""
    latency_s: Annotated[float, Field(ge=0.0, le=600.0)] = 0.0
    """Added to every reset, tool call and verification (seconds)."""
    latency_p99_s: Annotated[float, Field(gt=0.0, le=600.0)] | None = None
    """Draw the latency from a lognormal distribution with this 99th percentile and the median
    `latency_s` (seconds); null makes it the same every time."""

    @model_validator(mode="after")
    def _latencies_make_a_distribution(self) -> Self:
        if self.latency_p99_s is not None and not 0.0 < self.latency_s <= self.latency_p99_s:
            raise ValueError(
                f"latency_p99_s ({self.latency_p99_s:g}) is the slow end of a distribution whose"
                f" median is latency_s ({self.latency_s:g}): set latency_s between 0 and it"
            )
        return self


class EnvironmentOverride(Section):
    """Settings for one environment; null keeps the value of the section."""

    max_turns: Annotated[int, Field(ge=1, le=200)] | None = None
    """Model turns before the rollout is stopped and graded 0."""
    call_timeout_s: Seconds | None = None
    """Longest wait for one tool call (seconds)."""
    turn_timeout_s: Seconds | None = None
    """Longest model turn with its calls (seconds)."""
    trajectory_timeout_s: Seconds | None = None
    """Longest rollout (seconds)."""
    temperature: Annotated[float, Field(gt=0.0, le=5.0)] | None = None
    """Sampling temperature of training rollouts in this environment."""
    faults: FaultSpec | None = None
    """Injected faults of this environment."""


class EnvironmentSpec(Section):
    """How rollouts meet their environments."""

    provider: Literal["minifleet", "fleet", "openenv"] = "minifleet"
    """`minifleet`: the miniature Fleet apps shipped with Hillclimb, in the trainer's process.
    `fleet`: a platform that speaks Fleet's contract, such as `hillclimb fleet serve`.
    `openenv`: the OpenEnv servers that `openenv` names (docs/environments.md)."""
    fleet: FleetSpec = FleetSpec()
    """The platform of the provider `fleet`."""
    openenv: dict[EnvKey, OpenEnvServer] = Field(default_factory=dict)
    """The server of each environment of the provider `openenv`, by environment key."""
    max_turns: Annotated[int, Field(ge=1, le=200)] = 8
    """Model turns before a rollout is stopped and graded 0."""
    call_timeout_s: Seconds = 30.0
    """Longest wait for one tool call (seconds); passing it is an infra error."""
    reset_timeout_s: Seconds | None = None
    """Longest wait for an environment to start (seconds); null is `call_timeout_s`. Passing it is
    an infra error."""
    verifier_timeout_s: Seconds | None = None
    """Longest wait for a grade (seconds); null is `call_timeout_s`. It is waited for even where the
    rollout's time is over; without it the rollout has no grade."""
    turn_timeout_s: Seconds | None = None
    """Longest model turn with its calls (seconds); null is `trajectory_timeout_s`. Who used up the
    time decides the outcome, as for the whole rollout."""
    trajectory_timeout_s: Seconds = 300.0
    """Longest rollout (seconds); who used up the time decides the outcome: the policy is graded 0,
    the environment made an infra error. An engine that no longer answers ends the attempt."""
    infra_retry_allowance_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0
    """Seconds that a rollout which is rolled again may take beyond `trajectory_timeout_s`, over all
    its tries: they share one clock."""
    max_infra_retries: Annotated[int, Field(ge=0, le=5)] = 2
    """How often a rollout that ended in an infra error is rolled again."""
    max_infra_error_rate: Share = 0.5
    """Share of a step's rollouts that may end without a grade (infra errors, verifiers that give
    none) before the run pauses."""
    max_concurrent_rollouts: Annotated[int, Field(ge=1, le=4096)] = 192
    """Rollouts in flight at once (count)."""
    faults: FaultSpec = FaultSpec()
    """Injected faults, for all environments."""
    overrides: dict[EnvKey, EnvironmentOverride] = Field(default_factory=dict)
    """Settings for single environments, by environment key."""

    @model_validator(mode="after")
    def _faults_have_a_place(self) -> Self:
        faults = [self.faults, *(each.faults for each in self.overrides.values())]
        injected = any(each not in (None, FaultSpec()) for each in faults)
        if injected and self.provider != "minifleet":
            raise ValueError(
                f"faults are injected into minifleet alone, and the provider is {self.provider}:"
                " leave faults out"
            )
        return self

    @model_validator(mode="after")
    def _instances_outlive_rollouts(self) -> Self:
        fleet = self.fleet
        if self.provider != "fleet":
            if fleet != FleetSpec():
                raise ValueError(
                    f"environment.fleet is read by the provider fleet, and this is {self.provider}:"
                    " set environment.provider to fleet or leave the section out"
                )
            return self
        if fleet.ttl_s is not None and fleet.ttl_s <= self.longest_rollout_s:
            raise ValueError(
                f"fleet.ttl_s ({fleet.ttl_s}) must be larger than what a rollout may take"
                f" ({self.longest_rollout_s:g} s: trajectory_timeout_s, infra_retry_allowance_s,"
                " call_timeout_s and verifier_timeout_s): raise it or leave it out"
            )
        if fleet.operation_timeout_s is not None:
            own = (each.call_timeout_s for each in self.overrides.values())
            call_s = min([self.call_timeout_s, *(each for each in own if each)])
            _refuse_unnested(
                "fleet.operation_timeout_s", fleet.operation_timeout_s, "call_timeout_s", call_s
            )
        return self

    @model_validator(mode="after")
    def _deadlines_nest(self) -> Self:
        for key, override in [("", EnvironmentOverride()), *self.overrides.items()]:
            call = override.call_timeout_s or self.call_timeout_s
            turn = override.turn_timeout_s or self.turn_timeout_s
            trajectory = override.trajectory_timeout_s or self.trajectory_timeout_s
            where = f" of {key}" if key else ""
            if turn is not None:
                _refuse_unnested(f"call_timeout_s{where}", call, "turn_timeout_s", turn)
                _refuse_unnested(f"turn_timeout_s{where}", turn, "trajectory_timeout_s", trajectory)
            _refuse_unnested(f"call_timeout_s{where}", call, "trajectory_timeout_s", trajectory)
            if self.reset_timeout_s is not None:
                _refuse_unnested(
                    f"reset_timeout_s{where}",
                    self.reset_timeout_s,
                    "trajectory_timeout_s",
                    trajectory,
                )
        return self

    @property
    def longest_rollout_s(self) -> float:
        """Seconds from a rollout's first try to its grade, at the most, in any environment."""
        own = (each.trajectory_timeout_s for each in self.overrides.values())
        trajectory = max([self.trajectory_timeout_s, *(each for each in own if each)])
        retries = self.infra_retry_allowance_s if self.max_infra_retries else 0.0
        calls = [self.call_timeout_s, *(e.call_timeout_s or 0.0 for e in self.overrides.values())]
        # A call that is under way when the time is over is waited for, and then there is a grade.
        return trajectory + retries + max(calls) + (self.verifier_timeout_s or max(calls))


def _refuse_unnested(inner: str, inner_s: float, outer: str, outer_s: float) -> None:
    if inner_s >= outer_s:
        raise ValueError(
            f"{inner} ({inner_s:g}) must be smaller than {outer} ({outer_s:g}): lower the first or"
            " raise the second"
        )


class RolloutSpec(Section):
    """How training rollouts are sampled."""

    n_samples_per_prompt: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per task: the group that shares a baseline."""
    temperature: Annotated[float, Field(gt=0.0, le=5.0)] = 1.0
    """Sampling temperature; log-probs are taken at the same temperature."""
    max_input_length: Annotated[int, Field(ge=16, le=1_000_000)] = 880
    """A rollout whose context is longer than this before a turn stops there (tokens)."""
    max_generate_length: Annotated[int, Field(ge=1, le=1_000_000)] = 96
    """Longest model turn (tokens)."""
    max_sequence_length: Annotated[int, Field(ge=32, le=2_000_000)] = 1024
    """Longest whole trajectory (tokens); at most what the model's positions allow."""

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if self.max_input_length + self.max_generate_length > self.max_sequence_length:
            raise ValueError(
                "max_input_length + max_generate_length is larger than max_sequence_length"
                f" ({self.max_input_length} + {self.max_generate_length} >"
                f" {self.max_sequence_length}): a last turn would not fit; lower one of the two"
            )
        return self


class LoraSpec(Section):
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): the model itself stays as it is."""

    rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Rank of the two factors; engines must allow at least this one."""
    alpha: Annotated[int, Field(ge=1, le=4096)] = 32
    """The product of the factors is scaled by alpha / rank."""
    target_modules: Annotated[
        tuple[
            Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            ...,
        ],
        Field(min_length=1, max_length=7),
    ] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Which linear layers get an adapter."""


class LearnerSpec(Section):
    """How the gradient is computed; none of it changes what is learned, but `lora` and rounding."""

    policy_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of forward and backward pass. Weights of record, gradients' sum and optimizer are
    float32 either way."""
    activation_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of keeping its activations."""
    max_micro_tokens: Annotated[int, Field(ge=1, le=4_000_000)] = 4096
    """Packed tokens of one forward and backward pass of a rank; one sequence may be longer."""
    logprob_chunk_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Action tokens whose scores over the vocabulary exist at once."""
    lora: LoraSpec | None = None
    """Train adapters; null trains every weight. A checkpoint needs the same `model.source`."""
    cpu_offload: bool = False
    """Keep weights of record, gradients and optimizer in the machine's memory, and take the
    optimizer's step there: a GPU then holds only what it computes with. Slower, never different."""


class EngineSpec(Section):
    """Who samples: which engine, in which precision, with how much memory."""

    type: Literal["auto", "vllm", "torch"] = "auto"
    """`vllm`: vLLM, in processes of its own. `torch`: the portable engine, in the trainer's process
    or, with `placement.type` ray, in a worker's; float32 only. `auto`: vLLM where it imports, else
    torch; `trainer.started` says which."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of sampling; bfloat16 needs vLLM."""
    weight_transport: Literal["auto", "shm", "disk", "lora", "ipc", "nccl"] = "auto"
    """How weights get from the learner to vLLM: `shm` a file in shared memory, `disk` one in the
    run's directory, `lora` the adapter alone, by shared memory; it needs `learner.lora` and `type`
    vllm. `ipc`: each engine shares a GPU with a rank of the learner and reads its memory. `nccl`:
    broadcast to engines on GPUs of their own. `auto`: shm. The torch engine in the trainer's own
    process takes them in memory."""
    kv_cache_gib: Annotated[int, Field(ge=1, le=1024)] = 1
    """Memory of vLLM's cache on a CPU (GiB)."""
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85
    """Share of a GPU's memory that vLLM may use, weights and cache; read on GPUs only."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """GPUs that hold one copy of the model; more than one was never run here and needs
    `experimental: true`."""
    data_parallel_size: Annotated[int, Field(ge=1, le=256)] = 1
    """Copies of the engine, each with a process (and GPUs) of its own; rollouts of one task stay
    on one copy."""

    @property
    def is_direct(self) -> bool:
        """Whether weights go from process to process, and nothing of them is kept."""
        return self.weight_transport in ("ipc", "nccl")

    @model_validator(mode="after")
    def _transports_need_vllm(self) -> Self:
        if (self.weight_transport == "lora" or self.is_direct) and self.type != "vllm":
            raise ValueError(
                f"weight_transport {self.weight_transport} needs vLLM, and another engine may be"
                " taken: set engine.type to vllm"
            )
        if self.weight_transport == "ipc" and self.tensor_parallel_size > 1:
            raise ValueError(
                "weight_transport ipc hands a whole model to one GPU: set tensor_parallel_size to"
                " 1, or the transport to nccl"
            )
        return self

    @model_validator(mode="after")
    def _precision_fits(self) -> Self:
        if self.type == "torch" and self.dtype != "float32":
            raise ValueError(
                "the torch engine samples in float32 only: set engine.dtype to float32 or"
                " engine.type to vllm"
            )
        return self

    @model_validator(mode="after")
    def _memory_is_read(self) -> Self:
        by_vllm = ("kv_cache_gib", "gpu_memory_utilization", "tensor_parallel_size")
        refuse_unread(self, by_vllm, only=("type", "auto", "vllm"))
        return self


class ScheduleSpec(Section):
    """How long and in what portions."""

    total_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Training steps; one step samples one batch of groups (count)."""
    train_batch_size: Annotated[int, Field(ge=1, le=65_536)] = 20
    """Prompts per step; `data.sampling` says how they are shared out over the environments."""
    mini_batch_size: Annotated[int, Field(ge=1, le=65_536)] = 10
    """Prompts per optimizer step; divides train_batch_size."""
    max_staleness_steps: Annotated[int, Field(ge=0, le=16)] = 0
    """Steps by which the weights that begin a rollout may be older than those that learn from it.
    0: rollouts and updates take turns. From 1 on, rollouts of later steps go on while the policy is
    trained, and over its updates; a slow one may be learned from up to this many steps later."""
    lr_warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Optimizer steps over which the learning rate rises linearly from 0."""
    step_timeout_s: Seconds = 1500.0
    """Longest training step, and longest evaluation under one decoding (seconds). Passing it pauses
    the run; the message names the phase that hung."""
    run_timeout_s: Annotated[float, Field(gt=0.0, le=31_536_000.0)] | None = None
    """Longest run (seconds), counted over its attempts from checkpoint to checkpoint. Then the last
    step is saved and the run ends. null: none."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of sampling and of every random draw of the trainer."""

    @model_validator(mode="after")
    def _deadlines_nest(self) -> Self:
        if self.run_timeout_s is not None:
            _refuse_unnested(
                "step_timeout_s", self.step_timeout_s, "run_timeout_s", self.run_timeout_s
            )
        return self

    @model_validator(mode="after")
    def _mini_batches_are_equal(self) -> Self:
        if self.train_batch_size % self.mini_batch_size:
            raise ValueError(
                f"mini_batch_size ({self.mini_batch_size}) must divide train_batch_size"
                f" ({self.train_batch_size}): choose a divisor"
            )
        return self


class DecodingSpec(Section):
    """Sampling settings of an evaluation; the name is part of every number made with them."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    """Short name, such as `sampled` or `greedy`; `train` is taken."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw from the most likely tokens that make up this share of the probability; 1: from all."""
    n_samples_per_prompt: Annotated[int, Field(ge=1, le=256)] = 1
    """Rollouts per eval task: pass@k is defined for every k up to this."""

    @model_validator(mode="after")
    def _name_and_samples_make_sense(self) -> Self:
        if self.name == "train":
            raise ValueError("the decoding name `train` is taken by training rollouts")
        if self.temperature == 0.0 and self.top_p < 1.0:
            raise ValueError(
                "greedy decoding takes the most likely token whatever top_p is: leave top_p out or"
                " set a temperature above 0"
            )
        if self.temperature == 0.0 and self.n_samples_per_prompt > 1:
            raise ValueError(
                "greedy decoding draws the same rollout every time: set n_samples_per_prompt to 1"
                " or a temperature above 0"
            )
        return self


class EvalSpec(Section):
    """Held-out evaluation before, during and after training."""

    before_training: bool = True
    """Evaluate the starting policy at step 0."""
    interval: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Evaluate every so many steps; 0 only before and after training."""
    decodings: Annotated[tuple[DecodingSpec, ...], Field(min_length=1, max_length=8)] = (
        DecodingSpec(name="sampled", temperature=1.0),
        DecodingSpec(name="greedy", temperature=0.0),
    )
    """Each evaluation runs all of these."""
    interval_decodings: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the decodings used by evaluations during training; null: all. The evaluations
    before and after training always run all of them."""
    budget_minutes: Annotated[float, Field(gt=0.0, le=1440.0)] | None = None
    """Minutes one evaluation may begin rollouts for, split evenly over its decodings. Rollouts in
    flight then end, which takes nothing from the next decoding; those not begun have no outcome,
    which is no zero: they are missing in the coverage. Environments take turns, so that each
    loses about as many. null: no limit."""
    pass_threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """A rollout passes when its score is at least this."""

    @model_validator(mode="after")
    def _names_are_known_and_unique(self) -> Self:
        names = [decoding.name for decoding in self.decodings]
        if len(set(names)) != len(names):
            raise ValueError("two decodings have the same name: name each one differently")
        unknown = set(self.interval_decodings or ()) - set(names)
        if unknown:
            raise ValueError(
                f"interval_decodings names {sorted(unknown)}, which decodings does not define"
            )
        return self


class CheckpointSpec(Section):
    """When the state of the run is saved; the last step is always saved."""

    interval: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Save every so many steps."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 2
    """Newest checkpoints kept; older ones are deleted once a newer one is complete, also where
    another run is to evaluate them or go on from them and has not read them yet."""


class SlackSpec(Section):
    """Messages to a Slack channel."""

    channel: Annotated[str, Field(pattern=r"^[#CGD]?[A-Za-z0-9._-]{1,80}$")]
    """Channel name (`#training`) or id; the service needs a bot token."""


class NotifySpec(Section):
    """Who is told when the run starts, evaluates and ends."""

    slack: SlackSpec | None = None
    """Post to Slack; null posts nothing."""


class ResumedFrom(Section):
    """The checkpoint another run goes on from."""

    run_id: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")]
    """The run that wrote the checkpoint."""
    step: Annotated[int, Field(ge=0)]
    """Its global step."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that wrote it."""


class LineageSpec(Section):
    """Where the run comes from."""

    resumed_from: ResumedFrom | None = None
    """Set by `resume`: weights, optimizer, data order and random state of that checkpoint. In a run
    of kind `eval` or `probe`: the checkpoint whose policy is evaluated or probed."""
