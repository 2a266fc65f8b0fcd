"""Worker factory: makes learner, engine and rollout worker in the process in which they run.

A factory is small and can be pickled; models, caches and environments cannot, or should not. Each
method imports the classes that it makes (`hillclimb.process.lazy_imports` gives the reason).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hillclimb.environment.base import EnvProvider
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.rundir import WEIGHTS, run_tag
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.attempt.scratch import shared_directory
from trainer.engines.base import Engine

if TYPE_CHECKING:
    from trainer.engines.choose import ChosenEngine, Weights
    from trainer.learners.model.models import LearnerOptions
    from trainer.learners.model.sharding import RankGroup
    from trainer.learners.rank import LearnerRank
    from trainer.rollouts.worker import RolloutWorker

IMITATION = AlgorithmSpec(loss_reduction="token_mean")
"""Of a warm start: every demonstrated token of a mini-batch counts alike, and no other policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFactory:
    """Makes the workers of one attempt: learner ranks, engines, rollout workers."""

    spec: RunSpec
    model_dir: Path
    """Hugging Face directory of the policy that the run starts from."""
    vocab_size: int
    """Embeddings of that policy (count)."""
    attempt_dir: Path
    attempt: int
    provider: EnvProvider | None = None
    """Environment provider in place of the one that the spec names."""
    shared_dir: Path = field(default_factory=shared_directory)
    """The attempt's part of the shared memory of the trainer's machine."""

    @property
    def weights_dir(self) -> Path:
        """Directory of the weight files from learner to engines, for transports through a file."""
        if self.spec.engine.weight_transport == "disk":
            return self.attempt_dir / WEIGHTS
        return self.shared_dir

    def between_gpus(self) -> WorkerFactory:
        """Return the factory whose weights go from GPU to GPU where the spec leaves the way open.

        A file in shared memory would pass every tensor through the host in float32, which takes
        half a minute per step for eight billion parameters.
        """
        engine = self.spec.engine
        transport = engine.transport_between_gpus(has_adapter=self.spec.learner.lora is not None)
        changed = engine.model_copy(update={"weight_transport": transport})
        return replace(self, spec=self.spec.model_copy(update={"engine": changed}))

    @property
    def run_tag(self) -> str:
        """Tag of the attempt's resources on other platforms."""
        return run_tag(self.attempt_dir.parent.name, self.attempt)

    def learner_options(self) -> LearnerOptions:
        """Return the settings of the learner's updates."""
        with gc_paused_import():
            from trainer.learners.model.models import LearnerOptions
        spec = self.spec
        imitates = spec.kind == "sft"
        return LearnerOptions(
            algorithm=IMITATION if imitates else spec.algorithm,
            imitates=imitates,
            optimizer=spec.optimizer,
            learner=spec.learner,
            lr_warmup_steps=spec.schedule.lr_warmup_steps,
            total_steps=spec.schedule.total_steps,
            max_sequence_length=spec.rollout.max_sequence_length,
            seed=spec.schedule.seed,
            # The tokens of a demonstration have no engine's log-prob to compare with.
            keeps_token_values=spec.learner.store_token_values and not imitates,
            tokenizer_dir=self.model_dir,
        )

    def make_rank(self, world: RankGroup | None = None) -> LearnerRank:
        """Make one rank of the learner and load its part of the model; all ranks do so at once.

        Raises:
            ModelUnavailable: the model cannot be loaded.
            LearnerError: the ranks did not all join.
        """
        with gc_paused_import():
            from trainer.inputs.model.directory import load_policy, unread_policy
            from trainer.learners.rank import LearnerRank
        unread = unread_policy(self.model_dir, self.spec.model)
        if unread is None:
            model = load_policy(self.model_dir, self.spec.model)
            return LearnerRank(model, self.learner_options(), world)
        return LearnerRank(unread[0], self.learner_options(), world, files=unread[1])

    def make_engine(self, weights: Callable[[], Weights] | None = None) -> ChosenEngine:
        """Make the spec's engine; `weights` returns those of the policy at its start.

        Raises:
            SpecError, EngineError: as `choose_engine`.
        """
        with gc_paused_import():
            from trainer.engines.choose import choose_engine
            from trainer.inputs.model.directory import load_config
        config = load_config(self.model_dir, self.spec.model)
        return choose_engine(self.spec, config, self.model_dir, weights or self._start_weights)

    def make_rollout_worker(self, engine: Engine, *, worker: int = 0) -> RolloutWorker:
        """Make the rollout worker of this number, which samples from `engine`.

        Raises:
            ModelUnavailable: there is no tokenizer.
            SpecError: the tokenizer does not fit the model, or cannot chat.
        """
        with gc_paused_import():
            from trainer.envs.choose import choose_provider
            from trainer.rollouts.styles.choose import choose_chat, choose_style
            from trainer.rollouts.worker import RolloutParts, RolloutWorker
        spec = self.spec
        provider = self.provider or choose_provider(
            spec, self.run_tag, worker=worker, num_workers=spec.placement.rollout_workers
        )
        chat = choose_chat(spec.prompt, self.model_dir, self.vocab_size)
        parts = RolloutParts(
            engine=engine,
            chat=chat,
            provider=provider,
            environment=spec.environment,
            rollout=spec.rollout,
            seed=spec.schedule.seed,
            attempt=self.attempt,
            style=choose_style(spec.prompt, chat.call_form),
            redactor=Redactor.of(os.environ),
            has_deadlines=not spec.deterministic,
            number=worker,
        )
        return RolloutWorker(parts)

    def _start_weights(self) -> Weights:
        with gc_paused_import():
            from trainer.inputs.model.directory import load_policy
        return load_policy(self.model_dir, self.spec.model).state_dict()
