"""What the parts of a run are made from, in whichever process they are to work.

A recipe is small and can be pickled; models, caches and environments cannot, or should not. Each
method imports what it makes (`trainer.loading` says why).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.contract.rundir import WEIGHTS, run_tag
from trainer.contract.spec import RunSpec
from trainer.engines.base import Engine
from trainer.envs.base import EnvProvider
from trainer.loading import importing
from trainer.weights.file import shared_directory

if TYPE_CHECKING:
    from trainer.engines.choose import ChosenEngine, Weights
    from trainer.learners.models import LearnerOptions
    from trainer.learners.rank import LearnerRank
    from trainer.learners.sharding import World
    from trainer.rollouts.roller import Roller


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make learner, engine and rollouts of one attempt."""

    spec: RunSpec
    model_dir: Path
    """Hugging Face directory of the policy that the run starts from."""
    vocab_size: int
    """Embeddings of that policy (count)."""
    attempt_dir: Path
    attempt: int
    provider: EnvProvider | None = None
    """Serves the environments instead of the one that the spec names."""
    shared_dir: Path = field(default_factory=shared_directory)
    """The attempt's part of the shared memory of the trainer's machine."""

    @property
    def weights_dir(self) -> Path:
        """Where weights pass from learner to engines, if they pass through a file."""
        if self.spec.engine.weight_transport == "disk":
            return self.attempt_dir / WEIGHTS
        return self.shared_dir

    @property
    def run_tag(self) -> str:
        """The attempt's name with platforms that hold something for it."""
        return run_tag(self.attempt_dir.parent.name, self.attempt)

    def learner_options(self) -> LearnerOptions:
        """How the learner updates."""
        with importing():
            from trainer.learners.models import LearnerOptions
        spec = self.spec
        return LearnerOptions(
            algorithm=spec.algorithm,
            optimizer=spec.optimizer,
            learner=spec.learner,
            lr_warmup_steps=spec.schedule.lr_warmup_steps,
            total_steps=spec.schedule.total_steps,
            max_sequence_length=spec.rollout.max_sequence_length,
            seed=spec.schedule.seed,
            tokenizer_dir=self.model_dir,
        )

    def make_rank(self, world: World | None = None) -> LearnerRank:
        """Load the model and make one rank of the learner; all ranks do so at once.

        Raises:
            ModelUnavailable: the model cannot be loaded.
            LearnerError: the ranks did not meet.
        """
        with importing():
            from trainer.learners.rank import LearnerRank
            from trainer.models import load_policy
        model = load_policy(self.model_dir, self.spec.model)
        return LearnerRank(model, self.learner_options(), world)

    def make_engine(self, weights: Callable[[], Weights] | None = None) -> ChosenEngine:
        """Make the engine that the spec asks for; `weights` are those of the policy at its start.

        Raises:
            SpecError, EngineError: as `choose_engine`.
        """
        with importing():
            from trainer.engines.choose import choose_engine
            from trainer.models import load_config
        config = load_config(self.model_dir, self.spec.model)
        return choose_engine(self.spec, config, self.model_dir, weights or self._start_weights)

    def make_roller(self, engine: Engine, *, worker: int = 0) -> Roller:
        """Make what rolls out on `engine`, in the rollout worker of this number.

        Raises:
            ModelUnavailable: there is no tokenizer.
            SpecError: the tokenizer does not fit the model, or cannot chat.
        """
        with importing():
            from trainer.envs.choose import choose_provider
            from trainer.rollouts.chat import load_chat
            from trainer.rollouts.roller import Roller, RolloutParts
        spec = self.spec
        provider = self.provider or choose_provider(
            spec, self.run_tag, worker=worker, num_workers=spec.placement.rollout_workers
        )
        parts = RolloutParts(
            engine=engine,
            chat=load_chat(self.model_dir, self.vocab_size),
            provider=provider,
            environment=spec.environment,
            rollout=spec.rollout,
            seed=spec.schedule.seed,
            attempt=self.attempt,
            has_deadlines=not spec.deterministic,
        )
        return Roller(parts)

    def _start_weights(self) -> Weights:
        with importing():
            from trainer.models import load_policy
        return load_policy(self.model_dir, self.spec.model).state_dict()
