"""A run whose environments cannot have its tasks is refused when it is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from api.admission.dataset.env_keys import refuse_foreign_keys
from api.datasets.errors import DatasetUnusable
from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.table import count_by_env
from hillclimb.spec.data import DatasetRef
from tests.fixtures.factories import make_spec
from tests.hillclimb.datasets.tasks import task

FLEET = DatasetRef(name="fleet", version=3)
KEYS = {"booking/train/hotel_cheapest/000007": "train", "booking/eval/x/000001": "eval"}


def table(keys: dict[str, Any]) -> dict[str, Any]:
    rows = [task(key) for key in keys]
    split = {key: SplitRow(key=key, split=name, fingerprint=key) for key, name in keys.items()}
    return {each.env_key: each.model_dump(mode="json") for each in count_by_env(rows, split)}


def test_keys_that_minifleet_cannot_have_are_refused_for_it_and_for_it_alone() -> None:
    spec = make_spec()
    refuse_foreign_keys(spec, FLEET, table(KEYS | {"task_9f": "excluded"}))
    for strange in (
        "task_9f",
        "github/train/x/000001",
        "booking/train/x/1",
        "booking/test/x/000001",
    ):
        with pytest.raises(
            DatasetUnusable, match="1 of 3 tasks of booking in fleet@3 are not mini"
        ):
            refuse_foreign_keys(spec, FLEET, table(KEYS | {strange: "train"}))
    elsewhere = {"provider": "fleet", "fleet": {"base_url": "http://127.0.0.1:9"}}
    refuse_foreign_keys(make_spec(environment=elsewhere), FLEET, table({"task_9f": "train"}))
    refuse_foreign_keys(spec, FLEET, {"booking": {"train": 3, "eval": 2}})
