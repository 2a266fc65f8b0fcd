"""Whether a run fits the machines it asks for: memory, disk and time, with the arithmetic shown.

Conservative where it cannot be exact: what fits by it should run, what does not would run out of
memory. Nothing here knows a cloud or a price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainer.contract.clusters.arithmetic import GIB, Phase, Term, count, gib, largest
from trainer.contract.clusters.engine_memory import CONTEXT_BYTES, EngineMemory
from trainer.contract.clusters.gang import num_gpus_needed
from trainer.contract.clusters.gpus import Gpu, gpu_named, meant
from trainer.contract.clusters.learner_memory import LearnerMemory
from trainer.contract.clusters.machine_memory import ENVIRONMENT_BYTES, IMAGE_BYTES, MachineMemory
from trainer.contract.clusters.pace import Range, step_seconds
from trainer.contract.clusters.positions import why_too_long
from trainer.contract.clusters.shapes import ModelShape, shape_of
from trainer.contract.clusters.slices import why_uncut
from trainer.contract.clusters.spec import CandidateSpec
from trainer.contract.spec import RunSpec

LEARNS = ("train",)
SAMPLES = ("train", "eval", "probe")
"""Kinds of runs that hold a model."""
MIN_DISK_GIB = 256
"""What SkyPilot takes where nothing is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What was worked out for one kind of machine."""

    fits: bool | None
    """None: the model or the GPU is not known, so nothing was worked out."""
    problems: tuple[str, ...]
    """Why it does not fit, or why nothing is known: a sentence each."""
    lines: tuple[str, ...]
    """The arithmetic."""
    memory_gib: float | None = None
    """What one node's memory must hold (GiB)."""
    disk_gib: float | None = None
    """What one node's disk must hold (GiB)."""
    free_disk_gib: float | None = None
    """What of it must still be free once the environment is there (GiB)."""
    step_s: Range | None = None
    """Seconds of one training step; None where none is taken or the GPU is not known."""


def estimate(
    spec: RunSpec, candidate: CandidateSpec, num_nodes: int, shape: ModelShape | None = None
) -> Estimate:
    """Work out whether `spec` fits on `num_nodes` of these machines.

    `shape` is that of the model where `model.source` does not tell.
    """
    if spec.kind not in SAMPLES:
        return Estimate(
            fits=True, problems=(), lines=(f"a run of kind {spec.kind} holds no model",)
        )
    shape = shape or shape_of(spec.model.source)
    if shape is None and (too_long := why_too_long(spec, None)) is not None:
        return Estimate(fits=False, problems=(too_long,), lines=())
    if shape is None:
        reason = (
            f"the shape of {spec.model.source} is only in its config, which was not read: nothing"
            " is estimated"
        )
        return Estimate(fits=None, problems=(reason,), lines=(reason,))
    gpu = gpu_named(candidate.gpu_name) if candidate.gpu_name else None
    if candidate.gpu_name and gpu is None:
        reason = f"the memory of a {candidate.gpu_name} is not known here: nothing is estimated"
        if (close := meant(candidate.gpu_name or "")) is not None:
            reason += f" (did you mean {close}?)"
        return Estimate(fits=None, problems=(reason,), lines=(reason,))
    return _Working(spec, candidate, num_nodes, shape, gpu).done()


@dataclass(frozen=True, slots=True)
class _Working:
    spec: RunSpec
    candidate: CandidateSpec
    num_nodes: int
    shape: ModelShape
    gpu: Gpu | None

    def done(self) -> Estimate:
        machine = self._machine()
        memory, disk = largest(self._memory(machine)), machine.disk()
        memory_gib = memory.num_bytes / GIB
        disk_bytes = sum(term.num_bytes for term in disk)
        disk_gib = max(MIN_DISK_GIB, disk_bytes / GIB)
        problems = [
            *self._model_problems(),
            *self._gpu_problems(),
            *self._machine_problems(memory_gib, disk_gib),
        ]
        pace = self._pace()
        lines = [
            f"model: {count(self.shape.num_parameters)} parameters: {self.shape.num_layers} layers"
            f" of {count(self.shape.layer_parameters)}, and"
            f" {count(self.shape.root_parameters)} of embedding, head and norm",
            *self._gpu_lines(),
            *_summed(f"memory of a node, most while {memory.name}", memory),
            *_summed("disk of a node", Phase(name="", terms=disk)),
            *_pace_lines(pace),
        ]
        return Estimate(
            fits=not problems,
            problems=tuple(problems),
            lines=tuple(lines),
            memory_gib=memory_gib,
            disk_gib=disk_gib,
            free_disk_gib=(disk_bytes - IMAGE_BYTES - ENVIRONMENT_BYTES) / GIB,
            step_s=pace,
        )

    @property
    def _learns(self) -> bool:
        return self.spec.kind in LEARNS

    @property
    def _shares(self) -> bool:
        """Whether an engine and a rank are on one GPU."""
        return self._learns and self.spec.engine.weight_transport == "ipc"

    def _learner(self) -> LearnerMemory:
        spec = self.spec
        return LearnerMemory(
            shape=self.shape,
            learner=spec.learner,
            algorithm=spec.algorithm,
            num_ranks=spec.placement.learner_ranks,
            max_sequence_length=spec.rollout.max_sequence_length,
            by_pieces=spec.engine.is_direct,
            on_gpu=self.gpu is not None,
        )

    def _engine(self, gpu: Gpu) -> EngineMemory:
        return EngineMemory(
            shape=self.shape,
            engine=self.spec.engine,
            max_sequence_length=self.spec.rollout.max_sequence_length,
            max_concurrent=self.spec.environment.max_concurrent_rollouts,
            gpu_gib=gpu.memory_gib,
        )

    def _machine(self) -> MachineMemory:
        """The fullest node: workers are packed onto as few as hold them."""
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
            transport=spec.engine.weight_transport,
        )

    def _memory(self, machine: MachineMemory) -> tuple[Phase, ...]:
        """On a machine without GPUs the workers' own memory is the machine's."""
        if self.gpu is not None:
            return machine.memory_phases()
        ranks, engines = machine.ranks, machine.engines
        learner = largest(self._learner().phases())
        size = 2 if self.spec.engine.dtype == "bfloat16" else 4
        cache = self.spec.engine.kv_cache_gib
        held = size * self.shape.num_parameters + cache * GIB
        number = count(self.shape.num_parameters)
        own = (
            Term("ranks at work", ranks * learner.num_bytes, f"{ranks} x {gib(learner.num_bytes)}"),
            Term(
                "engines' weights and caches",
                engines * held,
                f"{engines} x ({size} B x {number} parameters + engine.kv_cache_gib {cache} GiB)",
            ),
        )
        return tuple(
            replace(phase, terms=(*phase.terms, *own)) for phase in machine.memory_phases()
        )

    def _model_problems(self) -> Iterator[str]:
        """What the model cannot do on any machine."""
        reasons = (
            why_too_long(self.spec, self.shape),
            why_uncut(self.spec.engine, self.shape),
        )
        yield from (each for each in reasons if each is not None)

    def _gpu_problems(self) -> Iterator[str]:
        if self.gpu is None:
            return
        engine, room = self._engine(self.gpu), self.gpu.memory_gib * GIB
        if engine.taken_bytes + CONTEXT_BYTES > room:
            yield (
                f"engine.gpu_memory_utilization {self.spec.engine.gpu_memory_utilization:g} leaves"
                f" no room for CUDA's own on a {self.candidate.gpu_name}, and vLLM does not start"
                " where so much is not free: lower it"
            )
        if not engine.fits:
            yield (
                f"the engine's cache cannot hold one rollout of"
                f" {self.spec.rollout.max_sequence_length} tokens on a {self.candidate.gpu_name}:"
                " raise engine.gpu_memory_utilization or engine.tensor_parallel_size, or lower"
                " rollout.max_sequence_length"
            )
        if not self._learns:
            return
        learner = largest(self._learner().phases())
        taken = engine.taken_bytes if self._shares else 0.0
        if learner.num_bytes + taken > room:
            beside = f" beside the engine's {gib(taken)}" if self._shares else ""
            yield (
                f"a rank of the learner needs {gib(learner.num_bytes)}{beside}, during"
                f" {learner.name}, and one {self.candidate.gpu_name} has"
                f" {self.gpu.memory_gib:g} GiB"
            )

    def _machine_problems(self, memory_gib: float, disk_gib: float) -> Iterator[str]:
        asked = self.candidate
        if asked.memory_gb is not None and asked.memory_gb < memory_gib:
            yield (
                f"a node needs {memory_gib:.0f} GiB of memory, and memory_gb of {asked.label} is"
                f" {asked.memory_gb}: raise it"
            )
        if asked.disk_gb is not None and asked.disk_gb < disk_gib:
            yield (
                f"a node needs {disk_gib:.0f} GiB of disk, and disk_gb of {asked.label} is"
                f" {asked.disk_gb}: raise it"
            )

    def _gpu_lines(self) -> Iterator[str]:
        if self.gpu is None:
            return
        spec, name = self.spec, self.candidate.gpu_name
        there = self.candidate.gpus * self.num_nodes
        used = num_gpus_needed(spec.engine, spec.placement, learns=self._learns)
        yield f"{there} x {name} of {self.gpu.memory_gib:g} GiB; the run's workers take {used}"
        if self._learns:
            phase = largest(self._learner().phases())
            title = (
                f"learner, each of {spec.placement.learner_ranks} ranks, most during {phase.name}"
            )
            yield from _summed(title, phase)
        engines = spec.engine.data_parallel_size
        where = "the GPUs of the ranks" if self._shares else "GPUs of their own"
        yield f"engine, each of {engines}, on {where}"
        yield from (f"  {line}" for line in self._engine(self.gpu).lines())

    def _pace(self) -> Range | None:
        if self.gpu is None or not self._learns:
            return None
        return step_seconds(self.spec, self._learner(), self._engine(self.gpu), self.gpu)


def _summed(title: str, phase: Phase) -> Iterator[str]:
    yield f"{title}: {gib(phase.num_bytes)}"
    yield from (f"  {term.line}" for term in phase.terms)


def _pace_lines(pace: Range | None) -> Iterator[str]:
    if pace is not None:
        yield (
            f"a step takes {_minutes(pace.low)} to {_minutes(pace.high)}, environments' own time"
            " apart: by arithmetic over data sheets, nothing was measured"
        )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
