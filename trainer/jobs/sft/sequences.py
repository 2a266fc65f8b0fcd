"""Sequences of a warm start: read, encoded, cut to what fits, and divided."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.blobs.base import BlobMissing, StoreError, StoreRefused
from hillclimb.blobs.locate import open_store
from hillclimb.spec.hosts import S3
from trainer.algo.sequences import TrainingSequence
from trainer.errors import DataError, StoreUnavailable
from trainer.jobs.sft.demonstration import MAX_LINE_BYTES, Demonstration, read_demonstrations


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """Sequences to imitate, and others whose loss is only reported."""

    train: tuple[TrainingSequence, ...]
    held_out: tuple[TrainingSequence, ...]
    num_too_long: int

    @classmethod
    def of(
        cls,
        candidates: Sequence[TrainingSequence],
        *,
        max_length: int,
        held_out_share: float,
        seed: int,
    ) -> Sequences:
        """Leave out what is longer than `max_length` (tokens), and hold a share out by `seed`.

        Raises:
            DataError: nothing is left to train on.
        """
        fitting = [each for each in candidates if len(each.token_ids) <= max_length]
        if not fitting:
            longest = max((len(each.token_ids) for each in candidates), default=0)
            raise DataError(
                "there is nothing to imitate"
                + (
                    f": all {len(candidates)} conversations are longer than"
                    " rollout.max_sequence_length"
                    f" ({max_length} tokens; the longest has {longest})"
                    if candidates
                    else ""
                )
            )
        order = list(range(len(fitting)))
        random.Random(f"{seed}/held-out").shuffle(order)
        held_out = set(order[: min(int(held_out_share * len(fitting)), len(fitting) - 1)])
        return cls(
            train=tuple(each for i, each in enumerate(fitting) if i not in held_out),
            held_out=tuple(fitting[i] for i in sorted(held_out)),
            num_too_long=len(candidates) - len(fitting),
        )

    def batch(self, step: int, size: int, seed: int) -> list[TrainingSequence]:
        """Return the sequences of a step (from 1): each epoch has all of them, in an own order.

        The order depends on the numbers alone, so a resumed run goes on where it was.
        """
        places = range((step - 1) * size, step * size)
        number = len(self.train)
        orders = {epoch: self._order(epoch, seed) for epoch in {each // number for each in places}}
        return [self.train[orders[each // number][each % number]] for each in places]

    def _order(self, epoch: int, seed: int) -> list[int]:
        order = list(range(len(self.train)))
        random.Random(f"{seed}/epoch/{epoch}").shuffle(order)
        return order


def demonstrations_of(source: str, downloads: Path) -> Iterator[Demonstration]:
    """Yield the demonstrations of a file, or of an object that is fetched to `downloads`.

    Raises:
        DataError: there is no such file, or a line is no demonstration.
        StoreUnavailable: the store does not answer.
    """
    path = _fetched(source, downloads) if source.startswith(S3) else Path(source)
    if path.exists() and not path.is_file():
        raise DataError(f"sft.demonstrations {source} is no regular file")
    try:
        with path.open("rb") as file:
            # A line without an end does not fill the memory: the reader refuses it by its length.
            yield from read_demonstrations(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""))
    except OSError as fault:
        raise DataError(f"sft.demonstrations {source}: {fault.strerror}") from fault
    except DataError as fault:
        raise DataError(f"sft.demonstrations {source}: {fault}") from fault


def _fetched(source: str, downloads: Path) -> Path:
    folder, _, name = source.rpartition("/")
    target = downloads / name
    try:
        open_store(folder).get_file(name, target)
    except (BlobMissing, StoreRefused) as fault:
        raise DataError(f"sft.demonstrations {source}: {fault}") from fault
    except StoreError as fault:
        raise StoreUnavailable(f"sft.demonstrations {source}: {fault}") from fault
    return target


def encoded(
    demonstrations: Sequence[Demonstration],
    encode: Callable[[Demonstration, str], TrainingSequence],
    env_keys: Sequence[str],
) -> list[TrainingSequence]:
    """Return the sequences of demonstrations of the run's environments.

    Raises:
        DataError: one names no environment of the run, or none where there are several.
    """
    return [encode(each, env_of(each, env_keys)) for each in demonstrations]


def env_of(demonstration: Demonstration, env_keys: Sequence[str]) -> str:
    """Return a demonstration's environment.

    Raises:
        DataError: it is none of the run's, or not clear.
    """
    key = demonstration.env_key
    if key is None and len(env_keys) == 1:
        return env_keys[0]
    if key is None:
        raise DataError(
            f"a demonstration has no env_key, and the run has several: {', '.join(env_keys)}"
        )
    if key not in env_keys:
        raise DataError(
            f"a demonstration is of {key}, and the run has {', '.join(env_keys)}: add it to"
            " data.env_keys, or leave the demonstration out"
        )
    return key
