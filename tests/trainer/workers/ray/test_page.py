"""`docs/placement.md` says what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.spec.training.engine import EngineSpec
from hillclimb.spec.training.placement import PlacementSpec
from trainer.rollouts.groups.buffer import BufferOptions
from trainer.workers.ray import cluster, workers

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "placement.md").read_text()


def test_the_page_names_every_place_and_every_transport() -> None:
    places = get_args(PlacementSpec.model_fields["type"].annotation)
    transports = get_args(EngineSpec.model_fields["weight_transport"].annotation)
    for value in (*places, *transports):
        assert f"`{value}`" in PAGE


def test_the_page_has_the_numbers_and_names_of_the_code() -> None:
    assert f"(at most {workers._MAX_RESTARTS} times)" in PAGE
    assert f"`{cluster.PORT}`, {cluster.DEFAULT_PORT} if not set" in PAGE
    assert f"`{cluster.ADDRESS}`" in PAGE
    assert f"`{cluster.NODE_IPS}`" in PAGE
    for staleness in range(9):
        options = BufferOptions(batch_size=1, last_step=9, max_staleness_steps=staleness)
        assert options.ahead == -(-staleness // 2)
        assert options.slack == staleness - options.ahead
