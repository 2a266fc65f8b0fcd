"""A whole training run in a second: random tiny model, counting world, real everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainer.scripted import CountingEnv, CountingProvider
from tests.trainer.tiny_model import write_tiny_model
from trainer.attempt import Attempt, Work
from trainer.contract.events import EVENTS, Event
from trainer.contract.rundir import AttemptDir, checkpoint_name
from trainer.contract.spec import RunSpec
from trainer.envs.base import EnvProvider
from trainer.loop import Trainer
from trainer.sinks.journal import Journal
from trainer.sinks.jsonl import JsonlFile
from trainer.stopping import Stop
from trainer.stores.disk import DiskStore
from trainer.timing import Clock
from trainer.wiring import build_trainer


def short_spec(
    source: Path,
    *,
    experimental: bool = False,
    deterministic: bool = False,
    **sections: dict[str, Any],
) -> RunSpec:
    """A spec of seconds; `sections` are laid over it, key by key."""
    base: dict[str, dict[str, Any]] = {
        "model": {"source": str(source)},
        "data": {
            "env_keys": ["booking", "github"],
            "train_tasks_per_env": 30,
            "eval_tasks_per_env": 4,
        },
        "environment": {"max_turns": 2},
        "rollout": {
            "n_samples_per_prompt": 4,
            "max_input_length": 1500,
            "max_generate_length": 16,
            "max_sequence_length": 1600,
        },
        "engine": {"type": "torch"},
        "placement": {"type": "inline"},
        "optimizer": {"lr": 0.01},
        "schedule": {"total_steps": 4, "train_batch_size": 4, "mini_batch_size": 2},
        "eval": {"interval": 2},
        "checkpoints": {"interval": 2, "keep_last": 4},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section}
    flags = {"experimental": experimental, "deterministic": deterministic}
    return RunSpec.model_validate({"name": "short", **flags, **base})


def saying_done_is_right() -> CountingProvider:
    """Worlds whose task is solved by doing nothing and saying so."""
    return CountingProvider(lambda _: CountingEnv(goal=0))


class ShortRun:
    """One run in `root`; attempts of it share the blob store."""

    def __init__(
        self,
        root: Path,
        run_id: str | None = None,
        *,
        experimental: bool = False,
        deterministic: bool = False,
        positions: int = 1600,
        **sections: dict[str, Any],
    ) -> None:
        self.root = root
        self.run_id = run_id or f"run_{root.name}"
        """Like the folder's: weights of runs with other names pass through other files."""
        self.store = DiskStore(root / "blobs")
        model = write_tiny_model(root / "model", positions=positions)
        self.spec = short_spec(
            model, experimental=experimental, deterministic=deterministic, **sections
        )
        self.stop: Stop
        self.journal: Journal

    def dir(self, attempt: int = 1) -> AttemptDir:
        return AttemptDir(self.root / "runs" / self.run_id, attempt)

    def build(
        self,
        attempt: int = 1,
        *,
        resume_from: str | None = None,
        provider: EnvProvider | None = None,
    ) -> Trainer:
        """Make an attempt's trainer; needs a running event loop."""
        parts = self.begin(attempt, resume_from=resume_from)
        try:
            return build_trainer(parts, provider or saying_done_is_right())
        except BaseException:
            self.journal.abandon()
            raise

    def begin(self, attempt: int = 1, *, resume_from: str | None = None) -> Attempt:
        """Open an attempt's journal and say what its process would be given."""
        self.stop = Stop()
        self.journal = Journal(JsonlFile(self.dir(attempt).events))
        return Attempt(
            spec=self.spec,
            dir=self.dir(attempt),
            store=self.store,
            journal=self.journal,
            stop=self.stop,
            clock=Clock(),
            resume_from=resume_from,
        )

    async def train(
        self,
        attempt: int = 1,
        *,
        resume_from: str | None = None,
        provider: EnvProvider | None = None,
    ) -> None:
        """Run an attempt to its end."""
        await self.finish(self.build(attempt, resume_from=resume_from, provider=provider))

    async def finish(self, trainer: Work) -> None:
        """Do all of it and close what was opened."""
        try:
            await trainer.train()
        finally:
            await trainer.close()
            self.journal.close(drain_s=0.0)

    async def finish_without_training(self, trainer: Trainer) -> None:
        """Close what was opened."""
        await trainer.close()
        self.journal.close(drain_s=0.0)

    def policy(self, step: int, attempt: int = 1) -> Path:
        """The Hugging Face directory in the store that a checkpoint exported."""
        path = checkpoint_name(step, attempt)
        return self.root / "blobs" / "runs" / self.run_id / path / "policy"

    def events(self, kind: type, attempt: int = 1) -> list[Any]:
        """Events of one kind, in order."""
        lines = self.dir(attempt).events.read_bytes().splitlines()
        found: list[Event] = [EVENTS.validate_json(line) for line in lines]
        return [event for event in found if isinstance(event, kind)]
