"""The trial of a checkpoint: load it, take one update, and leave its files as they are.

It runs in a process of its own, on the CPU, with a world of one: a checkpoint loads into any number
of ranks. Of the folder that it is given it reads `trial.json` and `checkpoint/`, and writes
`result.json`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file

from hillclimb.protocol.checkpoint_manifest import Manifest
from hillclimb.protocol.rundir import POLICY
from hillclimb.spec.run import RunSpec
from trainer.algo.sequences import Batch, TrainingSequence
from trainer.engines.canary import canary_tokens
from trainer.errors import CheckpointError, ModelUnavailable, NonFiniteUpdate, SpecError
from trainer.inputs.model.directory import load_config
from trainer.inputs.model.sources import read_vocab_size
from trainer.learners.model.export import HEAD
from trainer.workers.factory import WorkerFactory

if TYPE_CHECKING:
    from trainer.learners.rank import LearnerRank

TRIAL, RESULT, CHECKPOINT = "trial.json", "result.json", "checkpoint"
TOKENIZER = "tokenizer.json"
PROMPT_LENGTH = 4
"""Tokens of the trial's sequences that are not trained on."""


class Trial(BaseModel):
    """One trial: the run's spec, its starting policy, and the manifest of the checkpoint."""

    model_config = ConfigDict(frozen=True)

    spec: RunSpec
    model_dir: Path
    """Hugging Face directory of the policy that the run started from."""
    manifest: Manifest


class Refusal(Exception):
    """The checkpoint failed its trial; the text is `code: what was wrong`."""


def run_trial(folder: Path) -> None:
    """Try the checkpoint in `folder` and write the result there."""
    torch.set_num_threads(1)
    trial = Trial.model_validate_json((folder / TRIAL).read_bytes())
    try:
        try_checkpoint(trial, folder / CHECKPOINT)
    except Refusal as refusal:
        reason: str | None = str(refusal)
    else:
        reason = None
    (folder / RESULT).write_text(json.dumps({"reason": reason}))


def try_checkpoint(trial: Trial, directory: Path) -> None:
    """Load the checkpoint and take one update.

    Raises:
        Refusal: a file is not the manifest's before or after; the state cannot be loaded, is of
            another step, or is not the policy that was exported; the update gives no numbers.
        TrainerError: the learner could not be made, which says nothing about the checkpoint.
    """
    _check_files(trial.manifest, directory, "damaged")
    rank = _load(trial, directory)
    if rank.version != trial.manifest.step:
        raise Refusal(f"not_loaded: its state is of step {rank.version}")
    _check_policy(rank, directory / POLICY)
    _check_tokenizer(trial.model_dir, directory / POLICY)
    _update(rank, canary_tokens(read_vocab_size(trial.model_dir)))
    _check_files(trial.manifest, directory, "changed")


def _load(trial: Trial, directory: Path) -> LearnerRank:
    learner = trial.spec.learner.model_copy(update={"cpu_offload": False})
    factory = WorkerFactory(
        spec=trial.spec.model_copy(update={"learner": learner}),
        model_dir=trial.model_dir,
        vocab_size=0,
        attempt_dir=directory,
        attempt=trial.manifest.attempt,
        shared_dir=directory,
    )
    rank = factory.make_rank()
    try:
        rank.load(directory)
    except CheckpointError as error:
        raise Refusal(f"not_loaded: {error}") from error
    return rank


def _check_policy(rank: LearnerRank, policy: Path) -> None:
    """Compare the exported policy with the state, tensor by tensor and bit by bit."""
    weights = rank.weights()
    try:
        load_config(policy)
        exported = {
            name: tensor
            for file in sorted(policy.glob("*.safetensors"))
            for name, tensor in load_file(file).items()
        }
    except (OSError, SafetensorError, ModelUnavailable, SpecError) as error:
        raise Refusal(f"not_loaded: {POLICY}/ cannot be read: {error}") from error
    for name, tensor in weights.items():
        if name == HEAD and name not in exported:
            continue
        if name not in exported or not torch.equal(exported[name], tensor):
            raise Refusal(f"not_loaded: {POLICY}/ has another {name} than the learner's state")


def _check_tokenizer(start: Path, policy: Path) -> None:
    if (start / TOKENIZER).exists() and not (policy / TOKENIZER).exists():
        raise Refusal(f"not_loaded: {POLICY}/ has no {TOKENIZER}")


def _update(rank: LearnerRank, tokens: Sequence[int]) -> None:
    """Take one update on the halves of `tokens`, one rewarded and one not."""
    try:
        metrics = rank.step(_batch(rank, tuple(tokens)))
    except NonFiniteUpdate as error:
        raise Refusal(f"no_update: {error}") from error
    if not metrics["policy/grad_norm"] > 0.0:
        raise Refusal("no_update: its gradient is zero")
    for name, tensor in rank.weights().items():
        if not math.isfinite(tensor.float().sum().item()):
            raise Refusal(f"no_update: {name} is not finite after it")


def _batch(rank: LearnerRank, tokens: tuple[int, ...]) -> Batch:
    half = len(tokens) // 2
    sequences = (
        _sequence(rank, tokens[:half], advantage=1.0),
        _sequence(rank, tokens[half:], advantage=-1.0),
    )
    return Batch(mini_batches=(sequences,))


def _sequence(rank: LearnerRank, tokens: tuple[int, ...], *, advantage: float) -> TrainingSequence:
    logprobs = [0.0, *rank.logprobs(tokens).tolist()]
    mask = tuple(place >= PROMPT_LENGTH for place in range(len(tokens)))
    return TrainingSequence(
        token_ids=tokens,
        action_mask=mask,
        logprobs=tuple(p if trained else 0.0 for p, trained in zip(logprobs, mask, strict=True)),
        prompt_length=PROMPT_LENGTH,
        advantage=advantage,
        temperature=1.0,
    )


def _check_files(manifest: Manifest, directory: Path, code: str) -> None:
    expected = {file.path: (file.size_bytes, file.sha256) for file in manifest.files}
    present = {
        path.relative_to(directory).as_posix(): path
        for path in directory.rglob("*")
        if path.is_file()
    }
    for name in sorted(expected.keys() | present.keys()):
        if name not in present:
            raise Refusal(f"{code}: {name} is missing")
        if name not in expected:
            raise Refusal(f"{code}: {name} is not in the manifest")
        with present[name].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if (present[name].stat().st_size, digest) != expected[name]:
            raise Refusal(f"{code}: {name} is not the manifest's")
