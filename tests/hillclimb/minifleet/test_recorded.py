"""What must never change: a task is a function of its key, and runs are compared by keys."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields

import pytest

from hillclimb.minifleet.framework.pools import POOLS, Pools
from hillclimb.minifleet.tasks import minifleet_tasks

RECORDED: Mapping[str, str] = {
    "booking": "7b16ef754fd0e9d6bb55208c697e93e5560827b284b43f336035a0febc766195",
    "github": "7426435e64f859f94e6ba18237fb3a6c9f09eeab8834a26692d2b2edfaae81b3",
    "outlook": "45d3ad06db911075364b319fe32cd248d9ae86c1a5f2ea09b1a8341faffb42dd",
    "reddit": "84f6a1e003b35a6b4ae79ca28fb8f3e45dd80353551913ae14827c148b9acfac",
    "ticketmaster": "794366f5d5bed01d71ac8f33b2e46f373199bcf0ffafd161c51503f397f9bd63",
}
"""SHA-256 of 120 tasks of each app: recorded before minifleet had any other."""


@pytest.mark.parametrize("env_key", RECORDED)
def test_a_task_is_to_the_byte_what_it_was(env_key: str) -> None:
    train = minifleet_tasks((env_key,), "train", 60, 0)
    digest = hashlib.sha256()
    for task in train + minifleet_tasks((env_key,), "eval", 60, 1, 0.25):
        facts = dataclasses.asdict(task)
        assert facts.pop("modality") == "tool_use"  # a field younger than the record
        digest.update(json.dumps(facts, separators=(",", ":")).encode())
    assert digest.hexdigest() == RECORDED[env_key]


def test_later_pools_share_no_word_with_earlier_ones() -> None:
    """A shared word would stay on the side of the earlier pool, and the later one would shrink."""
    names = [field.name for field in fields(Pools)]
    later = names[names.index("animals") + 1 :]

    def words(pools: list[str]) -> list[str]:
        entries = [getattr(side, pool) for side in POOLS.values() for pool in pools]
        return [word.casefold() for pool in entries for word in pool]

    assert len(words(later)) == len(set(words(later)))
    assert not set(words(later)) & set(words(names[: -len(later)]))
