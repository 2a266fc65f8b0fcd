"""A trial finds what is wrong with a checkpoint: each fault is planted into one that is sound."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from hillclimb.protocol.checkpoint_manifest import Manifest, ManifestFile
from hillclimb.protocol.rundir import checkpoint_name
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.jobs.train.checkpoints import read_saved
from trainer.jobs.train.qualification import trial as trials
from trainer.jobs.train.qualification.trial import Refusal, Trial, run_trial, try_checkpoint
from trainer.learners.rank import LearnerRank
from trainer.workers.factory import WorkerFactory

STATE, METADATA = "learner/rank-0.bin", "learner/learner.json"
WEIGHTS = "policy/model.safetensors"


@dataclass(frozen=True)
class Sound:
    """A finished run of two steps, each saved."""

    run: ShortRun

    def trial(self, step: int = 2) -> Trial:
        saved = read_saved(self.run.store, self.key(step))
        model_dir = Path(self.run.spec.model.source)
        return Trial(spec=self.run.spec, model_dir=model_dir, manifest=saved.manifest)

    def key(self, step: int) -> str:
        return f"runs/{self.run.run_id}/{checkpoint_name(step, 1)}"

    def copy(self, directory: Path, step: int = 2) -> Path:
        source = self.run.root / "blobs" / self.key(step)
        names = shutil.ignore_patterns("manifest.json")
        return shutil.copytree(source, directory, ignore=names)

    def rank(self) -> LearnerRank:
        factory = WorkerFactory(
            spec=self.run.spec,
            model_dir=Path(self.run.spec.model.source),
            vocab_size=0,
            attempt_dir=self.run.root,
            attempt=1,
        )
        return factory.make_rank()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    run = ShortRun(
        tmp_path_factory.mktemp("sound"),
        schedule={"total_steps": 2},
        checkpoints={"interval": 1},
        eval={"before_training": False, "interval": 0},
    )
    asyncio.run(run.train())
    return Sound(run)


def manifest_of(directory: Path, manifest: Manifest) -> Manifest:
    """The manifest as a trainer would have written it for these files."""
    files = tuple(
        ManifestFile(
            path=path.relative_to(directory).as_posix(),
            size_bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    )
    return manifest.model_copy(update={"files": files})


def refusal(trial: Trial, directory: Path) -> str:
    with pytest.raises(Refusal) as caught:
        try_checkpoint(trial, directory)
    return str(caught.value)


def test_a_sound_checkpoint_passes_and_its_files_stay_as_they_are(
    sound: Sound, tmp_path: Path
) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    directory = sound.copy(folder / "checkpoint")
    (folder / "trial.json").write_text(sound.trial().model_dump_json())
    run_trial(folder)
    assert json.loads((folder / "result.json").read_text()) == {"reason": None}
    assert manifest_of(directory, sound.trial().manifest) == sound.trial().manifest


def test_the_result_names_the_reason(sound: Sound, tmp_path: Path) -> None:
    directory = sound.copy(tmp_path / "checkpoint")
    (directory / WEIGHTS).unlink()
    (tmp_path / "trial.json").write_text(sound.trial().model_dump_json())
    run_trial(tmp_path)
    reason = json.loads((tmp_path / "result.json").read_text())["reason"]
    assert reason == f"damaged: {WEIGHTS} is missing"


def flip(directory: Path) -> None:
    file = directory / STATE
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(directory: Path) -> None:
    file = directory / WEIGHTS
    file.write_bytes(file.read_bytes()[:-1])


def add(directory: Path) -> None:
    (directory / "learner" / "rank-1.bin").write_bytes(b"another rank's")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip, f"damaged: {STATE} is not the manifest's"),
        (cut, f"damaged: {WEIGHTS} is not the manifest's"),
        (lambda directory: (directory / METADATA).unlink(), f"damaged: {METADATA} is missing"),
        (add, "damaged: learner/rank-1.bin is not in the manifest"),
    ],
)
def test_files_that_are_not_the_manifests_are_damage(
    sound: Sound, tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    directory = sound.copy(tmp_path / "checkpoint")
    damage(directory)
    assert refusal(sound.trial(), directory) == words


def planted(sound: Sound, directory: Path, fault: str) -> None:
    """Change the files as a fault of the trainer would: the manifest describes them."""
    earlier = sound.run.root / "blobs" / sound.key(1)
    if fault == "the state of another step":
        shutil.rmtree(directory / "learner")
        shutil.copytree(earlier / "learner", directory / "learner")
    elif fault == "the policy of another step":
        shutil.copy(earlier / WEIGHTS, directory / WEIGHTS)
    elif fault == "no policy":
        (directory / WEIGHTS).write_bytes(b"")
    elif fault == "no config":
        (directory / "policy" / "config.json").unlink()
    elif fault == "no tokenizer":
        (directory / "policy" / "tokenizer.json").unlink()
    elif fault == "no shard":
        (directory / STATE).unlink()
    elif fault == "half the metadata":
        file = directory / METADATA
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        poisoned(sound, directory, fault)


def poisoned(sound: Sound, directory: Path, fault: str) -> None:
    """Save a state with numbers in it that no update survives."""
    rank = sound.rank()
    rank.load(directory)
    shutil.rmtree(directory)
    weight = next(iter(rank._models.trained.values()))
    with torch.no_grad():
        if fault == "weights that are not finite":
            weight.fill_(float("inf"))
        else:
            rank._optimizer.state[weight]["exp_avg"].fill_(float("nan"))
    rank.save(directory)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("the state of another step", "not_loaded: its state is of step 1"),
        ("the policy of another step", "not_loaded: policy/ has another model."),
        ("no policy", "not_loaded: policy/ cannot be read"),
        ("no config", "not_loaded: policy/ cannot be read"),
        ("no tokenizer", "not_loaded: policy/ has no tokenizer.json"),
        ("no shard", "not_loaded: cannot load"),
        ("half the metadata", "not_loaded: cannot load"),
        ("weights that are not finite", "no_update: loss nan"),
        ("an optimizer that is not a number", "no_update: model.embed_tokens.weight is not finite"),
    ],
)
def test_a_checkpoint_that_was_saved_wrong_is_refused(
    sound: Sound, tmp_path: Path, fault: str, words: str
) -> None:
    directory = sound.copy(tmp_path / "checkpoint")
    planted(sound, directory, fault)
    trial = sound.trial()
    trial = trial.model_copy(update={"manifest": manifest_of(directory, trial.manifest)})
    assert refusal(trial, directory).startswith(words)


def test_a_model_of_another_shape_does_not_load(sound: Sound, tmp_path: Path) -> None:
    directory = sound.copy(tmp_path / "checkpoint")
    other = write_tiny_model(tmp_path / "other", hidden_size=48)
    trial = sound.trial().model_copy(update={"model_dir": other})
    assert "another architecture" in refusal(trial, directory)


def test_a_trial_that_writes_into_the_checkpoint_is_noticed(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = sound.copy(tmp_path / "checkpoint")
    update = trials._update

    def writing(rank: LearnerRank, tokens: tuple[int, ...]) -> None:
        update(rank, tokens)
        flip(directory)

    monkeypatch.setattr(trials, "_update", writing)
    assert refusal(sound.trial(), directory) == f"changed: {STATE} is not the manifest's"
