"""Tokens of one rollout: its trajectory, the learner's values and the tokens' texts, as one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from api.results.artifacts.errors import ArtifactNotFound
from api.results.artifacts.trajectories import read_trajectory
from api.tables import OutcomeRecord
from hillclimb.blobs.archive.gzip_file import GzipLimit, stored_lines
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.payloads.results.rollouts import (
    StoredTokenValues,
    StoredTrajectory,
    TokenState,
)
from hillclimb.protocol.rundir import run_key, token_values_file, vocabulary_file
from hillclimb.stats.trajectories.tokens import RolloutTokens, Text, tokens_of

MAX_FILE_BYTES = 128 << 20
"""Longest unpacked file that is read: a trainer writes 64 MiB of values, a third more in base64."""
NUM_LARGEST = 20
"""Largest gaps that are listed."""
_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReport:
    """The tokens of a rollout, and what is known of the learner."""

    tokens: RolloutTokens
    values: StoredTokenValues | None
    """None: there is no file, or it is damaged."""
    sentence: str
    """Which values the learner has, or why it has none."""

    @property
    def state(self) -> TokenState:
        """As `TokenLearner.state`."""
        return "not_stored" if self.values is None else self.values.state


def read_tokens(store: BlobStore, outcome: OutcomeRecord, spec: Mapping[str, Any]) -> TokenReport:
    """Return the tokens of an outcome's trajectory; `spec` is that of its run.

    Raises:
        ArtifactNotFound: as `read_trajectory`.
    """
    trajectory = read_trajectory(store, outcome)
    vocabulary = _read_vocabulary(store, outcome)
    try:
        values = _read_values(store, outcome)
        tokens = tokens_of(trajectory, values, vocabulary)
    except ValueError:
        return TokenReport(
            tokens=_own(trajectory, outcome, vocabulary),
            values=None,
            sentence="The file of the learner's values is damaged: no gaps and no entropies.",
        )
    sentence = _why_not(outcome, spec) if values is None else _sentence(outcome, values)
    return TokenReport(tokens=tokens, values=values, sentence=sentence)


def _own(
    trajectory: StoredTrajectory, outcome: OutcomeRecord, vocabulary: Sequence[Text] | None
) -> RolloutTokens:
    """Return the tokens without the learner; raises ArtifactNotFound for a damaged trajectory."""
    try:
        return tokens_of(trajectory, vocabulary=vocabulary)
    except ValueError as error:
        raise ArtifactNotFound(f"The file of {outcome.rollout_id} is damaged: {error}.") from error


def _sentence(outcome: OutcomeRecord, values: StoredTokenValues) -> str:
    if values.state == "not_learned":
        return (
            "The learner took no gradient from this rollout, so it computed no log-probs and no"
            " entropies for it."
        )
    if values.state == "left_out":
        return (
            "The learner learned from this rollout, and its values were not stored: the file of"
            f" step {outcome.step} was full."
        )
    updates = values.num_updates
    after = f", after {updates} update{'s' if updates != 1 else ''} of the step" if updates else ""
    entropies = "" if values.entropies else " A Tinker server has the learner: no entropies."
    return (
        f"The learner scored the drawn tokens in step {outcome.step}, which began with weights of"
        f" version {values.version}{after}.{entropies}"
    )


def _why_not(outcome: OutcomeRecord, spec: Mapping[str, Any]) -> str:
    if outcome.split == "eval":
        return "The learner never scores rollouts of an evaluation: no gaps and no entropies."
    if spec["kind"] != "train":
        return f"In a run of kind {spec['kind']} no learner scores rollouts: no gaps, no entropies."
    stores = spec.get("learner", {}).get("store_token_values")
    if stores is None:
        return "The run is of before trainers stored the learner's values: no gaps, no entropies."
    if not stores:
        return "The run has learner.store_token_values: false, so there are no gaps and entropies."
    return (
        "The learner's values of this step are not in the store: they were not uploaded yet, or"
        " deleted."
    )


def _read_values(store: BlobStore, outcome: OutcomeRecord) -> StoredTokenValues | None:
    """Return the learner's values of the rollout; None without a file.

    Raises:
        ValueError: the file is damaged.
    """
    name = PurePosixPath(outcome.trajectory).name.removesuffix(_SUFFIX)
    key = run_key(outcome.run_id, token_values_file(outcome.attempt, name))
    try:
        line = next(islice(_lines(store, key), outcome.trajectory_line, None), b"")
    except BlobMissing:
        return None
    values = StoredTokenValues.model_validate_json(line)
    if values.rollout_id != outcome.rollout_id:
        raise ValueError("the line is about another rollout")
    return values


def _read_vocabulary(store: BlobStore, outcome: OutcomeRecord) -> list[Text] | None:
    """Return the texts of all tokens; None without a file, or with a damaged one."""
    try:
        text = b"".join(_lines(store, run_key(outcome.run_id, vocabulary_file(outcome.attempt))))
        entries = json.loads(text)
        return [_text(entry) for entry in entries] if isinstance(entries, list) else None
    except (BlobMissing, ValueError, TypeError):
        return None


def _text(entry: str | list[int]) -> Text:
    """Return an entry of the vocabulary; raises TypeError or ValueError for anything else."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, list):
        return bytes(entry)
    raise TypeError(f"no text: {entry!r}")


def _lines(store: BlobStore, key: str) -> Iterator[bytes]:
    """Yield the lines of a file of gzip; raises ValueError for a damaged or too large one."""
    limit = GzipLimit(unpacked_bytes=MAX_FILE_BYTES, line_bytes=MAX_FILE_BYTES)
    return stored_lines(store, key, limit)
