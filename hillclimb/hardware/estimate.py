"""Estimate of a run's memory and disk on a kind of machine, with the arithmetic shown.

It is conservative where it cannot be exact: a run that fits should work, one that does not would
run out of memory. Clouds and prices play no part here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hillclimb.hardware.gpus import GpuModel, closest_gpu, flops_of_device, gpu_named
from hillclimb.hardware.memory.arithmetic import GIB, Phase, Term, count, gib, largest
from hillclimb.hardware.memory.engine import CONTEXT_BYTES, EngineMemory
from hillclimb.hardware.memory.learner import EXPORT, SAMPLING, LearnerMemory
from hillclimb.hardware.memory.machine import ENVIRONMENT_BYTES, IMAGE_BYTES, MachineMemory
from hillclimb.hardware.memory.routes import why_not_replayed
from hillclimb.hardware.model.context_length import why_too_long
from hillclimb.hardware.model.context_parallel import why_indivisible_context
from hillclimb.hardware.model.defaults import LARGE, why_unsuited
from hillclimb.hardware.model.experts import why_not_adapted
from hillclimb.hardware.model.linear_attention import NO_SHARED_SEQUENCES, why_not_linear
from hillclimb.hardware.model.published import shape_of
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.hardware.model.speed.step_time import StepArithmetic, StepTime
from hillclimb.hardware.model.tensor_parallel import why_indivisible
from hillclimb.spec.backend.counts import counted
from hillclimb.spec.backend.gang import num_gpus_needed
from hillclimb.spec.backend.skypilot import CandidateSpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.engine import Transport

LEARNS = ("train",)
SAMPLES = ("train", "eval", "probe")
"""Kinds of runs that load a model."""
MIN_DISK_GIB = 256
"""SkyPilot's default disk size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate for one kind of machine."""

    fits: bool | None
    """None: model or GPU is unknown, so there is no estimate."""
    problems: tuple[str, ...]
    """Sentences about why it does not fit, or why there is no estimate."""
    lines: tuple[str, ...]
    """The arithmetic."""
    num_settings: int = 0
    """Of the problems, those that begin them: settings that no machine makes right (count)."""
    memory_gib: float | None = None
    """Required memory of a node (GiB)."""
    disk_gib: float | None = None
    """Required disk of a node (GiB)."""
    free_disk_gib: float | None = None
    """Part of it that must be free after the installation of the environment (GiB)."""
    step_time: StepTime | None = None
    """On paper; None without GPUs, where the run does not fit, and where nothing is known."""

    @property
    def wrong_settings(self) -> tuple[str, ...]:
        """Sentences about settings that no machine makes right."""
        return self.problems[: self.num_settings]

    @property
    def misfits(self) -> tuple[str, ...]:
        """Sentences about memory and disk, which larger machines may have."""
        return self.problems[self.num_settings :]


def estimate(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None = None
) -> Estimate:
    """Estimate whether `spec` fits on `num_nodes` of these machines.

    `shape` is the model's shape, for models whose `model.source` does not determine it.
    """
    if spec.kind not in SAMPLES:
        return Estimate(
            fits=True, problems=(), lines=(f"a run of kind {spec.kind} loads no model",)
        )
    shape = shape or shape_of(spec.model.source)
    if shape is None and (too_long := why_too_long(spec, None)) is not None:
        return Estimate(fits=False, problems=(too_long,), lines=(), num_settings=1)
    if shape is None:
        reason = (
            f"the shape of {spec.model.source} is only in its config, which was not read: there is"
            " no estimate"
        )
        return Estimate(fits=None, problems=(reason,), lines=(reason,))
    gpu = gpu_named(candidate.gpu_name) if candidate.gpu_name else None
    if candidate.gpu_name and gpu is None:
        reason = f"the memory of a {candidate.gpu_name} is unknown: there is no estimate"
        if (close := closest_gpu(candidate.gpu_name or "")) is not None:
            reason += f" (did you mean {close}?)"
        return Estimate(fits=None, problems=(reason,), lines=(reason,))
    return _Working(spec, candidate, num_nodes, shape, gpu).done()


def model_problems(spec: RunSpec, shape: ModelShape) -> Iterator[str]:
    """Yield why a run cannot have this model, on whatever machine."""
    reasons = (
        why_too_long(spec, shape),
        why_indivisible(spec.engine, shape),
        _why_not_adapted(spec, shape),
        _why_indivisible_context(spec, shape),
        why_not_replayed(spec, shape),
        why_not_linear(spec, shape),
    )
    yield from (each for each in reasons if each is not None)


def _why_not_adapted(spec: RunSpec, shape: ModelShape) -> str | None:
    lora = spec.learner.lora
    if lora is None or shape.experts is None:
        return None
    return why_not_adapted(lora.target_modules)


def _why_indivisible_context(spec: RunSpec, shape: ModelShape) -> str | None:
    size = spec.learner.context_parallel_size
    if spec.kind not in LEARNS or size == 1:
        return None
    if shape.linear is not None:
        return NO_SHARED_SEQUENCES
    return why_indivisible_context(size, shape.num_heads, shape.num_kv_heads)


@dataclass(frozen=True, slots=True)
class _Working:
    spec: RunSpec
    candidate: CandidateSpec
    num_nodes: int
    shape: ModelShape
    gpu: GpuModel | None

    def done(self) -> Estimate:
        machine = self._machine()
        memory, disk = largest(self._memory(machine)), machine.disk()
        memory_gib = memory.num_bytes / GIB
        disk_bytes = sum(term.num_bytes for term in disk)
        disk_gib = max(MIN_DISK_GIB, disk_bytes / GIB)
        settings = [*self._model_problems()]
        problems = [
            *settings,
            *self._gpu_problems(),
            *self._machine_problems(memory_gib, disk_gib),
        ]
        step_time = None if problems else self._step_time()
        lines = [
            f"model: {count(self.shape.num_parameters)} parameters: {self.shape.num_layers} layers"
            f" of {count(self.shape.layer_parameters)}, and"
            f" {count(self.shape.root_parameters)} of embedding, head and norm",
            *self._expert_lines(),
            *self._gpu_lines(),
            *_summed(f"memory of a node, most while {memory.name}", memory),
            *_summed("disk of a node", Phase(name="", terms=disk)),
            *(() if step_time is None else (step_time.line,)),
        ]
        return Estimate(
            fits=not problems,
            problems=tuple(problems),
            lines=tuple(lines),
            num_settings=len(settings),
            memory_gib=memory_gib,
            disk_gib=disk_gib,
            free_disk_gib=(disk_bytes - IMAGE_BYTES - ENVIRONMENT_BYTES) / GIB,
            step_time=step_time,
        )

    def _expert_lines(self) -> Iterator[str]:
        experts = self.shape.experts
        if experts is not None:
            yield (
                f"  {experts.per_token} of {experts.num} experts compute a token: all are in"
                f" memory, and a token is multiplied with"
                f" {count(self.shape.active_parameters)} parameters"
            )

    @property
    def _learns(self) -> bool:
        return self.spec.kind in LEARNS

    @property
    def _shares(self) -> bool:
        """Tell whether an engine and a rank share a GPU."""
        return self._learns and self.spec.engine.weight_transport == "ipc"

    @property
    def _takes_turns(self) -> bool:
        """Tell whether they use it one after the other; without GPUs nothing is given back."""
        return self._learns and self.spec.placement.colocate and self.gpu is not None

    @property
    def _transport(self) -> Transport:
        """Return the transport that the trainer uses on this machine."""
        engine, has_adapter = self.spec.engine, self.spec.learner.lora is not None
        if self.gpu is None:
            return engine.weight_transport
        return engine.transport_between_gpus(has_adapter=has_adapter)

    def _learner(self) -> LearnerMemory:
        spec = self.spec
        return LearnerMemory(
            shape=self.shape,
            learner=spec.learner,
            algorithm=spec.algorithm,
            num_ranks=spec.placement.learner_ranks,
            max_sequence_length=spec.rollout.max_sequence_length,
            by_chunks=self._transport in ("ipc", "nccl"),
            on_gpu=self.gpu is not None,
            takes_turns=self._takes_turns,
        )

    def _engine(self, gpu: GpuModel) -> EngineMemory:
        return EngineMemory(
            shape=self.shape,
            engine=self.spec.engine,
            max_sequence_length=self.spec.rollout.max_sequence_length,
            max_concurrent=self.spec.environment.max_concurrent_rollouts,
            gpu_gib=gpu.memory_gib,
        )

    def _step_time(self) -> StepTime | None:
        """Return the time of a step; of small models it is not the GPU that takes it."""
        flops = flops_of_device(self.candidate.gpu_name or "")
        is_known = self.gpu is not None and flops is not None and self.spec.engine.type != "torch"
        if not (is_known and self._learns) or self.shape.num_parameters < LARGE:
            return None
        assert self.gpu is not None
        assert flops is not None
        engine, learner = self._engine(self.gpu), self._learner()
        return StepArithmetic(
            spec=self.spec,
            shape=self.shape,
            num_gpus=self.candidate.gpus * self.num_nodes,
            cache_bytes=engine.cache_bytes,
            kv_bytes_per_token=engine.kv_bytes_per_token,
            weight_bytes=engine.weight_bytes,
            num_trained=learner.num_trained,
            pass_tokens=learner.tokens * self.spec.learner.context_parallel_size,
            flops_per_s=flops,
            bytes_per_s=self.gpu.bytes_per_s,
            transport=self._transport,
        ).time()

    def _machine(self) -> MachineMemory:
        """Return the fullest node: workers are packed onto as few nodes as possible."""
        spec = self.spec
        ranks = spec.placement.learner_ranks if self._learns else 0
        engines = spec.engine.data_parallel_size
        if self.candidate.gpus:
            ranks = min(ranks, self.candidate.gpus)
            free = self.candidate.gpus - (0 if self._shares else ranks)
            engines = max(1, min(engines, free // spec.engine.tensor_parallel_size))
        return MachineMemory(
            learner=self._learner(),
            ranks=ranks,
            engines=engines,
            rollout_workers=spec.placement.rollout_workers,
            transport=self._transport,
            kv_offload_gib=spec.engine.kv_offload_gib,
            sleeping_weights_bytes=self._sleeping_weights_bytes(),
        )

    def _sleeping_weights_bytes(self) -> float:
        engine = self.spec.engine
        size = 2 if engine.dtype == "bfloat16" else 4
        keeps = self._takes_turns and engine.sleep_level == 1
        return float(size * self.shape.num_parameters) if keeps else 0.0

    def _memory(self, machine: MachineMemory) -> tuple[Phase, ...]:
        """Return the phases of a node's memory; without GPUs it includes the workers' own."""
        if self.gpu is not None:
            return machine.memory_phases()
        ranks, engines = machine.ranks, machine.engines
        learner = largest(self._learner().phases())
        size = 2 if self.spec.engine.dtype == "bfloat16" else 4
        cache = self.spec.engine.kv_cache_gib
        engine_bytes = size * self.shape.num_parameters + cache * GIB
        number = count(self.shape.num_parameters)
        own = (
            Term("ranks at work", ranks * learner.num_bytes, f"{ranks} x {gib(learner.num_bytes)}"),
            Term(
                "engines' weights and caches",
                engines * engine_bytes,
                f"{engines} x ({size} B x {number} parameters + engine.kv_cache_gib {cache} GiB)",
            ),
        )
        return tuple(
            replace(phase, terms=(*phase.terms, *own)) for phase in machine.memory_phases()
        )

    def _model_problems(self) -> Iterator[str]:
        yield from model_problems(self.spec, self.shape)
        setting = self.spec.engine.cache_needs_gpu
        if setting is not None and self.gpu is None:
            yield f"{setting} needs a GPU, and {self.candidate.label} has none: leave it out"
        if self.gpu is not None:
            yield from why_unsuited(self.spec, self.shape)

    def _gpu_problems(self) -> Iterator[str]:
        if self.gpu is None:
            return
        engine, room = self._engine(self.gpu), self.gpu.memory_gib * GIB
        update = engine.update_bytes(self._transport) if self._learns else 0.0
        # Engines that take turns have no cache yet when new weights arrive.
        beside_cache = 0.0 if self._takes_turns else update
        if engine.reserved_bytes + CONTEXT_BYTES + beside_cache > room:
            arriving = f" and {gib(beside_cache)} of arriving weights" if beside_cache else ""
            yield (
                f"engine.gpu_memory_utilization {self.spec.engine.gpu_memory_utilization:g} leaves"
                f" no room for CUDA's own memory{arriving} on one {self.candidate.gpu_name}, and"
                " vLLM does not start unless its share is free: lower it"
            )
        if not engine.fits:
            yield (
                f"the engine's cache cannot hold one rollout of"
                f" {self.spec.rollout.max_sequence_length} tokens on one {self.candidate.gpu_name}:"
                " raise engine.gpu_memory_utilization or engine.tensor_parallel_size, or lower"
                " rollout.max_sequence_length"
            )
        if not self._learns:
            return
        learner = max(
            self._learner().phases(),
            key=lambda phase: phase.num_bytes + self._beside(phase, engine, update),
        )
        engines = self._beside(learner, engine, update)
        if learner.num_bytes + engines > room:
            shared = f" beside the engine's {gib(engines)}" if self._shares else ""
            yield (
                f"a rank of the learner needs {gib(learner.num_bytes)}{shared}, during"
                f" {learner.name}, and one {self.candidate.gpu_name} has"
                f" {self.gpu.memory_gib:g} GiB"
            )

    def _beside(self, phase: Phase, engine: EngineMemory, update: float) -> float:
        """Return the bytes of an engine on a rank's GPU in a phase of the learner."""
        if not self._shares:
            return 0.0
        # New weights arrive while the learner exports them, and at no other time.
        arriving = update if phase.name == EXPORT else 0.0
        if not self._takes_turns or phase.name == SAMPLING:
            return engine.reserved_bytes + arriving
        return (engine.without_cache_bytes if arriving else engine.asleep_bytes) + arriving

    def _machine_problems(self, memory_gib: float, disk_gib: float) -> Iterator[str]:
        candidate = self.candidate
        if candidate.memory_gb is not None and candidate.memory_gb < memory_gib:
            yield (
                f"a node needs {memory_gib:.0f} GiB of memory, and memory_gb of {candidate.label}"
                f" is {candidate.memory_gb}: raise it"
            )
        if candidate.disk_gb is not None and candidate.disk_gb < disk_gib:
            yield (
                f"a node needs {disk_gib:.0f} GiB of disk, and disk_gb of {candidate.label} is"
                f" {candidate.disk_gb}: raise it"
            )

    def _gpu_lines(self) -> Iterator[str]:
        if self.gpu is None:
            return
        spec, name = self.spec, self.candidate.gpu_name
        available = self.candidate.gpus * self.num_nodes
        used = num_gpus_needed(spec.engine, spec.placement, learns=self._learns)
        yield f"{available} x {name} of {self.gpu.memory_gib:g} GiB; the run's workers take {used}"
        if self._learns:
            phase = largest(self._learner().phases())
            size = spec.learner.context_parallel_size
            shared = f", {size} of which share each sequence" if size > 1 else ""
            ranks = counted(spec.placement.learner_ranks, "rank")
            each = "" if spec.placement.learner_ranks == 1 else "each of "
            title = f"learner, {each}{ranks}{shared}, most during {phase.name}"
            yield from _summed(title, phase)
        engines = spec.engine.data_parallel_size
        where = "the GPUs of the ranks" if self._shares else "separate GPUs"
        if self._takes_turns:
            where += f", asleep while these learn (engine.sleep_level {spec.engine.sleep_level})"
        yield f"engine, each of {engines}, on {where}"
        yield from (f"  {line}" for line in self._engine(self.gpu).lines())


def _summed(title: str, phase: Phase) -> Iterator[str]:
    yield f"{title}: {gib(phase.num_bytes)}"
    yield from (f"  {term.line}" for term in phase.terms)
