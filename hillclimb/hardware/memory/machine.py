"""Main memory and disk of one node: usage of the trainer's processes outside of GPUs.

Legend: P parameters, N ranks, b bytes of a number in forward and backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.hardware.memory.arithmetic import GIB, Phase, Term, count, gib
from hillclimb.hardware.memory.learner import LearnerMemory
from hillclimb.spec.backend.counts import counted


@dataclass(frozen=True, slots=True)
class Processes:
    """Assumed memory of processes besides the computed terms (GiB)."""

    system: float
    """The operating system, SkyPilot's own processes, Ray."""
    engine: float
    rank: float
    rollout_worker: float


ON_GPUS = Processes(system=8.0, engine=4.0, rank=2.0, rollout_worker=1.0)
"""Assumed: CUDA's libraries in every process, data loaders, a cloud's agents."""
ON_CPUS = Processes(system=2.0, engine=2.0, rank=1.0, rollout_worker=0.5)
"""Assumed, a little above what the demo's processes took (1.7 GiB of an engine with its cache)."""
ENVIRONMENT_BYTES = 25 * GIB
"""Assumed for the data plane's environment with CUDA's libraries, and caches of it."""
IMAGE_BYTES = 50 * GIB
"""Assumed for the machine's own image: SkyPilot counts 45 GB on AWS and 50 on Google's."""
LOGS_BYTES = 5 * GIB
"""Assumed for logs and trajectories before their upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineMemory:
    """The node with the largest usage: that of rank 0."""

    learner: LearnerMemory
    ranks: int
    """Learner ranks on this node (count)."""
    engines: int
    rollout_workers: int
    transport: str
    kv_offload_gib: int = 0
    """Main memory for evicted parts of an engine's cache (GiB)."""
    sleeping_weights_bytes: float = 0.0
    """Weights of an engine that sleeps (`engine.sleep_level` 1)."""

    def memory_phases(self) -> tuple[Phase, ...]:
        """Return the phases of the run; the largest one determines the required memory."""
        if self.ranks == 0:
            return (Phase(name="rollouts", terms=self._always()),)
        return (
            Phase(
                name="loading the model",
                terms=(*self._always(), *self._offloaded(), self._loading()),
            ),
            Phase(
                name="saving a checkpoint",
                terms=(
                    *self._always(),
                    *self._offloaded(),
                    *self._passing_file(),
                    self._whole(),
                    self._copies(),
                ),
            ),
        )

    def disk(self) -> tuple[Term, ...]:
        """Return the files on the disk; a checkpoint is deleted after its upload."""
        number, size = self.learner.shape.num_parameters, self.learner.dtype_bytes
        terms = [
            Term("the machine's image", IMAGE_BYTES, "assumed"),
            Term("the data plane's environment", ENVIRONMENT_BYTES, "assumed"),
            Term("the model's files", 2 * number, f"2 B x {count(number)} parameters"),
            Term("logs and trajectories", LOGS_BYTES, "assumed"),
        ]
        if self.ranks:
            trained = self.learner.num_trained
            state = 4 + self.learner.moment_bytes
            checkpoint = size * number + state * trained
            how = (
                f"2 x ({size} B x {count(number)} parameters of the policy + {state:g} B x"
                f" {count(trained)} of master weights and moments): the newest, and the one being"
                " written"
            )
            terms.append(Term("checkpoints", 2 * checkpoint, how))
        if self.transport == "disk":
            how = f"2 x {size} B x {count(number)} parameters: the file, and the next one"
            terms.append(Term("weights for engines", 2 * size * number, how))
        return tuple(terms)

    def _always(self) -> tuple[Term, ...]:
        each = ON_GPUS if self.learner.on_gpu else ON_CPUS
        processes = (
            self.engines * each.engine
            + self.ranks * each.rank
            + self.rollout_workers * each.rollout_worker
        )
        how = (
            f"{counted(self.engines, 'engine')} x {each.engine:g} GiB"
            f" + {counted(self.ranks, 'rank')} x {each.rank:g} GiB"
            f" + {counted(self.rollout_workers, 'rollout worker')} x {each.rollout_worker:g} GiB,"
            " assumed"
        )
        return (
            Term("system", each.system * GIB, "assumed"),
            Term("processes", processes * GIB, how),
            *self._evicted(),
            *self._in_turns(),
        )

    def _evicted(self) -> tuple[Term, ...]:
        if not self.kv_offload_gib:
            return ()
        offloaded = self.engines * self.kv_offload_gib
        each = f"{self.kv_offload_gib} GiB (engine.kv_offload_gib)"
        how = f"{counted(self.engines, 'engine')} x {each}"
        return (Term("evicted parts of the caches", offloaded * GIB, how),)

    def _in_turns(self) -> tuple[Term, ...]:
        """Return what waits here for its turn on the GPUs (`placement.colocate`)."""
        terms: list[Term] = []
        learner = self.learner
        if learner.takes_turns and not learner.learner.cpu_offload:
            share = self.ranks / learner.num_ranks
            size = learner.moment_bytes
            how = f"{size:g} B x {count(learner.num_trained)} trained parameters x {share:g}"
            terms.append(Term("Adam's moments, parked", size * learner.num_trained * share, how))
        if self.sleeping_weights_bytes:
            how = f"{counted(self.engines, 'engine')} x {gib(self.sleeping_weights_bytes)}"
            number = self.engines * self.sleeping_weights_bytes
            terms.append(Term("weights of sleeping engines", number, how))
        return tuple(terms)

    def _offloaded(self) -> tuple[Term, ...]:
        """Return the state offloaded by `learner.cpu_offload`; without GPUs it is in the ranks'."""
        if not (self.learner.learner.cpu_offload and self.learner.on_gpu):
            return ()
        return tuple(
            Term(term.what, self.ranks * term.num_bytes, f"{self.ranks} x ({term.how})")
            for term in self.learner.own_states()
        )

    def _loading(self) -> Term:
        """Return the largest tensor, which each rank reads whole for the digest of the start.

        Of the others a rank reads its rows (`trainer.learners.model.start.loading`), where they
        stay.
        """
        number = self.learner.shape.largest_tensor
        how = f"{counted(self.ranks, 'rank')} x 4 B x {count(number)} parameters"
        return Term("the largest tensor, whole, in float32", self.ranks * 4 * number, how)

    def _passing_file(self) -> tuple[Term, ...]:
        """Return the file of weights for engines, which stays for an engine that restarts."""
        if self.transport not in ("auto", "shm"):
            return ()
        number, size = self.learner.shape.num_parameters, self.learner.dtype_bytes
        how = f"2 x {size} B x {count(number)} parameters in /dev/shm: the file, and the next one"
        return (Term("weights for engines", 2 * size * number, how),)

    def _whole(self) -> Term:
        """Return the full weights on rank 0 (`Models.whole_weights`), rounded as they arrive.

        With adapters they are merged in float32, and then rounded.
        """
        number, size = self.learner.shape.num_parameters, self.learner.dtype_bytes
        is_merged = self.learner.learner.lora is not None and size == 2
        per_parameter = 4 + size if is_merged else size
        how = f"{per_parameter} B x {count(number)} parameters"
        return Term("the whole policy on rank 0", per_parameter * number, how)

    def _copies(self) -> Term:
        """Return the copies of master weights and moments of all ranks in `dcp.async_save`."""
        trained, ranks = self.learner.num_trained, self.learner.num_ranks
        share, size = self.ranks / ranks, 4 + self.learner.moment_bytes
        shares = f"{self.ranks} of {counted(ranks, 'rank')}"
        how = f"{size:g} B x {count(trained)} trained parameters x {shares}"
        return Term("copies of the learner's state", size * trained * share, how)
