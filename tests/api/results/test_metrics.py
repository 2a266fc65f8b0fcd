"""A long series is thinned in the database: stored points, its ends among them."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import text

from api.results.metrics import MetricFilters, read_metrics
from api.tables import Metric
from api.tables.bulk import upsert_rows
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


def fill(
    story: Story,
    run_id: str,
    name: str,
    *,
    steps: Iterable[int],
    value: Callable[[int], float] = float,
    **more: Any,
) -> None:
    key = {"run_id": run_id, "name": name, "decoding": "train", "attempt": 1} | more
    with story.database.transaction() as session:
        upsert_rows(session, Metric, [{**key, "step": s, "value": value(s)} for s in steps])


@pytest.fixture
def run_id(story: Story) -> str:
    made = story.running()
    fill(story, made, "loss", steps=range(5, 1005), value=lambda step: step / 7)
    fill(story, made, "loss", steps=(7, 1004), value=lambda _: -1.0, attempt=2)
    fill(story, made, "kl", steps=(1, 2, 900), decoding="greedy")
    fill(story, made, "kl", steps=(3,))
    return made


def read(story: Story, run_id: str, **filters: Any) -> dict[tuple[str, str], list[dict[str, Any]]]:
    with story.database.transaction() as session:
        series = read_metrics(session, run_id, MetricFilters(**filters))
    return {(each["name"], each["decoding"]): each["points"] for each in series}


@pytest.mark.parametrize("most", [2, 3, 10, 999, 1000, 10_000])
def test_a_series_has_at_most_so_many_stored_points(story: Story, run_id: str, most: int) -> None:
    every, thinned = read(story, run_id), read(story, run_id, max_points=most)
    assert thinned.keys() == every.keys()
    points, stored = thinned["loss", "train"], every["loss", "train"]
    assert len(points) == min(most, 1000)
    assert all(point in stored for point in points)
    assert (points[0], points[-1]) == (stored[0], stored[-1])
    assert points[-1] == {"step": 1004, "attempt": 2, "value": -1.0}
    gaps = [after["step"] - before["step"] for before, after in pairwise(points)]
    assert max(gaps) - min(gaps) <= 1
    assert thinned["kl", "train"] == every["kl", "train"]
    if most >= 3:
        assert thinned["kl", "greedy"] == every["kl", "greedy"]


def test_a_part_of_the_steps_is_thinned_by_itself(story: Story, run_id: str) -> None:
    part = read(story, run_id, names=("loss",), from_step=100, to_step=900, max_points=3)
    assert [point["step"] for point in part["loss", "train"]] == [100, 500, 900]
    assert read(story, run_id, names=("loss",), from_step=2_000, max_points=3) == {}
    assert read(story, run_id, names=("x*",), max_points=3) == {}
    between = read(story, run_id, names=("kl",), from_step=4, to_step=20, max_points=3)
    assert between == read(story, run_id, names=("kl",), from_step=4, to_step=20) == {}


def test_the_time_does_not_grow_with_the_points_between(story: Story, run_id: str) -> None:
    """Buffers that PostgreSQL reads for 10 points of 1,000 and of 20,000."""

    def buffers() -> int:
        with story.database.transaction() as session:
            session.execute(text("SELECT pg_stat_force_next_flush()"))
        with story.database.transaction() as session:
            before = session.scalar(text(BLOCKS))
        read(story, run_id, names=("loss",), max_points=10)
        with story.database.transaction() as session:
            session.execute(text("SELECT pg_stat_force_next_flush()"))
        with story.database.transaction() as session:
            return int(session.scalar(text(BLOCKS)) or 0) - int(before or 0)

    few = buffers()
    fill(story, run_id, "loss", steps=range(1005, 20_000))
    assert buffers() <= 2 * few


BLOCKS = "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relname = 'metrics'"


def test_the_route_takes_the_number(story: Story, served: Served, run_id: str) -> None:
    path = f"/v1/runs/{run_id}/metrics"
    with served.client() as client:
        answer = client.get(path, params={"names": "loss", "max_points": 500})
        (series,) = answer.json()["data"]
        assert len(series["points"]) == 500
        assert client.get(path, params={"max_points": 1}).status_code == 422
        assert client.get(path, params={"max_points": 10_001}).status_code == 422
