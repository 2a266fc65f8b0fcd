"""The times of a rollout: every turn, call and verification, in order and without overlap."""

import gzip
import time
from itertools import pairwise
from pathlib import Path

from hillclimb.protocol.payloads.results.rollouts import StoredTimes
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
)
from trainer.rollouts.records.skipped import skipped_rollout
from trainer.rollouts.records.times import write_times


async def test_every_part_of_a_rollout_and_of_its_failed_tries_has_a_span(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda turn, _: (ADD, DONE)[turn])
    provider = CountingProvider(lambda n: CountingEnv(goal=1, call_errors=int(n == 0)))
    began = time.time()
    (group,) = await a_collector(engine, provider).collect([a_task()], a_request(n=1))
    skipped = skipped_rollout(a_task(), 1, a_request(n=2), attempt=1, why="no time")
    write_times(tmp_path / "times.jsonl.gz", [*group, skipped])
    lines = gzip.decompress((tmp_path / "times.jsonl.gz").read_bytes()).splitlines()
    (times,) = map(StoredTimes.model_validate_json, lines)
    assert times.rollout_id == group[0].trajectory.rollout_id
    assert began - 0.001 <= times.began_at <= time.time()
    first = [("reset", False), ("sample", False), ("call", True)]
    second = [("reset", False), ("sample", False), ("call", False), ("sample", False)]
    parts = [(span.kind, span.failed) for span in times.spans]
    assert parts == [*first, *second, ("verification", False)]
    assert [span.label for span in times.spans if span.kind == "call"] == ["add", "add"]
    for one, following in pairwise(times.spans):
        assert one.began_s + one.seconds <= following.began_s + 2e-6
