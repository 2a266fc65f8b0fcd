"""Splits that the tests make, and what they read of them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st

from hillclimb.datasets.format.lineage import Lineage, SplitRow
from hillclimb.datasets.format.rows import TaskRow, fingerprint
from hillclimb.datasets.split.policies import Md5ThresholdPolicy, PublishedPolicy, RankPolicy
from hillclimb.datasets.split.splits import make_split

Policy = RankPolicy | Md5ThresholdPolicy | PublishedPolicy
ENVS = ["booking", "fira", "github", "outlook", "zillow"]
quick = settings(max_examples=60, deadline=None)


def split(
    rows: list[TaskRow],
    policy: Policy,
    *versions: tuple[SplitRow, ...],
    excluded: Mapping[str, str] | None = None,
) -> tuple[SplitRow, ...]:
    prints = {row.key: fingerprint(row) for row in rows}
    lineage = Lineage.of(versions)
    return make_split(rows, prints, policy, excluded=excluded or {}, lineage=lineage)


def keys(made: tuple[SplitRow, ...], name: str) -> set[str]:
    return {each.key for each in made if each.split == name}


def reasons(made: tuple[SplitRow, ...]) -> dict[str, str | None]:
    return {each.key: each.reason for each in made if each.split == "excluded"}


def by_env(rows: list[TaskRow], made: tuple[SplitRow, ...], name: str) -> dict[str, int]:
    chosen = keys(made, name)
    return {
        env: sum(row.key in chosen for row in rows if row.env_key == env)
        for env in {row.env_key for row in rows}
    }


SIZES = st.dictionaries(st.sampled_from(ENVS), st.integers(1, 70), min_size=1)
