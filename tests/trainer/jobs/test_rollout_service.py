import gzip
import json
import threading
from pathlib import Path

import pytest

import trainer.jobs.rollout_service as service_module
from hillclimb.blobs.base import StoreError, StoreFull
from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.base import Grade
from hillclimb.protocol.events import EVENTS, EnvDegraded, Event, RunWarning
from hillclimb.protocol.rundir import AttemptDir
from hillclimb.spec.environment.environment import EnvironmentSpec
from tests.trainer.fixtures.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_request,
    a_task,
    byte_tokenizer,
)
from tests.trainer.fixtures.short_run import short_spec
from trainer.algo.sequences import Batch
from trainer.attempt.context import AttemptContext
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.stop_signal import StopSignal
from trainer.attempt.timing import Clock
from trainer.errors import EnvironmentOutage, StorageFull
from trainer.jobs.rollout_service import RolloutService
from trainer.rollouts.groups.buffer import RolloutBatch, RolloutBuffer
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.records.skipped import skipped_rollout

TASKS = [a_task(f"t{i}") for i in range(4)]


class Failing(DiskStore):
    """A store that refuses every file."""

    error: StoreError = StoreError("no answer")

    def put_file(self, key: str, path: Path) -> None:
        raise self.error


def collector(*, broken: int = 0) -> Collector:
    """Rollouts of which the first `broken` tries meet a call without answer."""
    return a_collector(
        ScriptedEngine(lambda turn, _: (ADD, DONE)[turn]),
        CountingProvider(lambda n: CountingEnv(goal=1, call_errors=int(n < broken))),
    )


class Service:
    def __init__(self, root: Path, store: DiskStore | None = None, rate: float = 0.5) -> None:
        self.where = AttemptDir(root / "runs" / "run_1", 1)
        self.store = store or DiskStore(root / "blobs")
        self.journal = EventJournal(JsonlFile(self.where.events))
        self.rate = rate
        self.model_dir = root / "model"
        self.model_dir.mkdir(parents=True, exist_ok=True)
        byte_tokenizer().save(str(self.model_dir / "tokenizer.json"))

    def rollout_service(self, made: Collector) -> RolloutService:
        context = AttemptContext(
            spec=short_spec(self.where.path),
            dir=self.where,
            store=self.store,
            journal=self.journal,
            stop=StopSignal(),
            clock=Clock(),
            resume_from=None,
        )
        return RolloutService(
            context=context,
            collector=made,
            max_infra_error_rate=self.rate,
            model_dir=self.model_dir,
        )

    def events(self, kind: type[Event]) -> list[Event]:
        self.journal.close(drain_s=0.0)
        lines = self.where.events.read_bytes().splitlines()
        return [e for e in map(EVENTS.validate_json, lines) if isinstance(e, kind)]


async def test_an_environment_that_errs_is_reported_although_its_rollouts_were_saved(
    tmp_path: Path,
) -> None:
    here = Service(tmp_path)
    result = await here.rollout_service(collector(broken=1)).run(TASKS, a_request())
    assert [row.score for row in result.rows] == [1.0] * 4
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.env_key, event.infra_error_rate) == ("counting", 0.25)
    assert event.reasons == {"tool_transport": 1}


async def test_an_environment_that_errs_rarely_is_not_reported(tmp_path: Path) -> None:
    here = Service(tmp_path)
    await here.rollout_service(collector(broken=1)).run(
        [a_task(f"t{i}") for i in range(11)], a_request()
    )
    assert here.events(EnvDegraded) == []


async def test_rollouts_that_were_never_begun_do_not_hide_an_environment_in_trouble(
    tmp_path: Path,
) -> None:
    here = Service(tmp_path, rate=1.0)
    rollout_service, tasks = (
        here.rollout_service(collector(broken=1)),
        [a_task(f"t{i}") for i in range(40)],
    )
    rolled = await rollout_service.collector.collect(tasks[:1], a_request())
    late = tuple(
        (skipped_rollout(task, 0, a_request(), attempt=1, why="late"),) for task in tasks[1:]
    )
    await rollout_service.record((*rolled, *late), a_request())
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.infra_error_rate, event.reasons) == (1.0, {"tool_transport": 1})


async def test_a_verifier_that_gives_no_score_is_trouble(tmp_path: Path) -> None:
    class Scoreless(CountingEnv):
        async def score(self) -> Grade:
            return Grade(score=None, reason="judge_error", detail="the site said 503")

    here = Service(tmp_path, rate=1.0)
    provider = CountingProvider(lambda n: Scoreless(goal=0) if n == 0 else CountingEnv(goal=0))
    made = a_collector(ScriptedEngine(lambda *_: DONE), provider)
    await here.rollout_service(made).run(TASKS, a_request())
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.infra_error_rate, event.reasons) == (0.25, {"no_score": 1})
    assert event.detail == "the site said 503"


async def test_slow_sampling_is_no_trouble_of_the_environment(tmp_path: Path) -> None:
    here = Service(tmp_path, rate=1.0)
    late = a_collector(
        ScriptedEngine(lambda *_: DONE, delay_s=60.0),
        CountingProvider(),
        environment=EnvironmentSpec(call_timeout_s=0.02, trajectory_timeout_s=0.04),
    )
    results = await here.rollout_service(late).run(TASKS[:1], a_request())
    assert [row.reason for row in results.rows] == ["sampling_late"]
    assert here.events(EnvDegraded) == []


async def test_an_outage_is_a_share_of_missing_grades_above_the_limit(tmp_path: Path) -> None:
    here = Service(tmp_path, rate=0.0)
    await here.rollout_service(collector()).run(TASKS, a_request())
    with pytest.raises(EnvironmentOutage, match=r"4 of 4 .* counting: tool_transport"):
        await here.rollout_service(collector(broken=99)).run(TASKS, a_request(step=2))
    here.rate = 1.0
    await here.rollout_service(collector(broken=99)).run(TASKS, a_request(step=3))
    here.journal.close(drain_s=0.0)


async def test_a_store_that_does_not_answer_is_warned_about_once(tmp_path: Path) -> None:
    here = Service(tmp_path, Failing(tmp_path))
    rollout_service = here.rollout_service(collector())
    for step in (1, 2):
        await rollout_service.run(TASKS[:1], a_request(step=step))
    (warning,) = here.events(RunWarning)
    assert isinstance(warning, RunWarning)
    assert warning.code == "trajectories_not_stored"
    assert len(list(here.where.trajectories.iterdir())) == 2


class Away(DiskStore):
    """A store that refuses every file while it `is_away`."""

    is_away = True

    def put_file(self, key: str, path: Path) -> None:
        if self.is_away:
            raise StoreError("no answer")
        super().put_file(key, path)


@pytest.mark.parametrize("again", ["after the next request", "at the end", "never: superseded"])
async def test_trajectories_that_the_store_missed_are_sent_once_it_is_back(
    tmp_path: Path, again: str
) -> None:
    store = Away(tmp_path / "blobs")
    here = Service(tmp_path, store)
    rollout_service = here.rollout_service(collector())
    for step in (1, 2):
        await rollout_service.run(TASKS[:1], a_request(step=step))
    await rollout_service.close()
    assert store.list("runs") == ()
    store.is_away = False
    num_stored = 2
    if again == "after the next request":
        await rollout_service.run(TASKS[:1], a_request(step=3))
        num_stored = 3
    elif again == "never: superseded":
        rollout_service.context.stop.fence()
        num_stored = 0
    if again != "after the next request":
        await rollout_service.close()
    assert len(store.list("runs/run_1/attempt-1/trajectories")) == num_stored
    here.journal.close(drain_s=0.0)


async def test_a_store_that_hangs_at_the_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "CLOSE_S", 0.05)
    store, gate = Away(tmp_path / "blobs"), threading.Event()
    here = Service(tmp_path, store)
    rollout_service = here.rollout_service(collector())
    await rollout_service.run(TASKS[:1], a_request())
    monkeypatch.setattr(Away, "put_file", lambda *_: gate.wait())
    await rollout_service.close()
    assert not gate.is_set()
    assert all(thread.daemon for thread in threading.enumerate() if "_send" in thread.name)
    gate.set()
    here.journal.close(drain_s=0.0)


class Slow(DiskStore):
    """A store that takes no file before it may."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may = threading.Event()

    def put_file(self, key: str, path: Path) -> None:
        assert self.may.wait(30.0)
        super().put_file(key, path)


class OneBatch(RolloutBuffer):
    """A buffer whose next batch is there already."""

    def __init__(self, batch: RolloutBatch) -> None:
        self._batch = batch

    @property
    def batch_size(self) -> int:
        return len(self._batch.groups)

    async def next_batch(self, step: int) -> RolloutBatch:
        return self._batch


async def test_a_step_learns_while_its_trajectories_are_stored(tmp_path: Path) -> None:
    store = Slow(tmp_path / "blobs")
    here = Service(tmp_path, store)
    service = here.rollout_service(collector())
    groups = await service.collector.collect(TASKS[:1], a_request())
    buffer = OneBatch(RolloutBatch(groups=groups, dropped=()))
    _, results = await service.next_batch(buffer, a_request())
    assert [row.score for row in results.rows] == [1.0], "known before anything is in the store"
    assert list(store.list("")) == []
    store.may.set()
    await service.settle()
    assert any("trajectories" in key for key in store.list(""))
    here.journal.close(drain_s=0.0)


async def test_a_full_store_ends_the_run(tmp_path: Path) -> None:
    store = Failing(tmp_path)
    store.error = StoreFull("quota")
    here = Service(tmp_path, store)
    with pytest.raises(StorageFull):
        await here.rollout_service(collector()).run(TASKS[:1], a_request())
    here.journal.close(drain_s=0.0)


async def test_the_texts_of_tokens_are_stored_once_with_the_first_trajectories(
    tmp_path: Path,
) -> None:
    here = Service(tmp_path)
    rollout_service = here.rollout_service(collector())
    await rollout_service.run(TASKS[:1], a_request(step=1))
    texts = json.loads(gzip.decompress(here.store.get("runs/run_1/attempt-1/vocabulary.json.gz")))
    assert texts[byte_tokenizer().token_to_id("<done>")] == "<done>"
    here.store.delete_prefix("runs/run_1/attempt-1/vocabulary.json.gz")
    await rollout_service.run(TASKS[:1], a_request(step=2))
    assert not here.store.exists("runs/run_1/attempt-1/vocabulary.json.gz")
    here.journal.close(drain_s=0.0)


async def test_values_of_tokens_stand_beside_the_trajectories_under_the_same_name(
    tmp_path: Path,
) -> None:
    here = Service(tmp_path)
    rollout_service = here.rollout_service(collector())
    result = await rollout_service.run(TASKS, a_request(step=3))
    nothing = Batch(mini_batches=())
    await rollout_service.store_token_values(result, a_request(step=3), nothing, (), version=2)
    place = "runs/run_1/attempt-1"
    (key,) = here.store.list(f"{place}/token-values")
    assert here.store.exists(key.replace("token-values", "trajectories"))
    lines = gzip.decompress(here.store.get(key)).splitlines()
    found = [json.loads(line) for line in lines]
    assert [line["rollout_id"] for line in found] == [row.rollout_id for row in result.rows]
    assert {line["state"] for line in found} == {"not_learned"}
    here.journal.close(drain_s=0.0)


class RefusesValues(DiskStore):
    """A store that takes everything but values of tokens."""

    error: StoreError = StoreError("no answer")

    def put_file(self, key: str, path: Path) -> None:
        if "token-values" in key:
            raise self.error
        super().put_file(key, path)


@pytest.mark.parametrize("error", [StoreError("no answer"), StoreFull("quota")])
async def test_a_store_that_refuses_the_values_costs_no_step(
    tmp_path: Path, error: StoreError
) -> None:
    store = RefusesValues(tmp_path / "blobs")
    store.error = error
    here = Service(tmp_path, store)
    rollout_service = here.rollout_service(collector())
    for step in (1, 2):
        request = a_request(step=step)
        result = await rollout_service.run(TASKS, request)
        nothing = Batch(mini_batches=())
        await rollout_service.store_token_values(result, request, nothing, (), version=0)
    (warning,) = here.events(RunWarning)
    assert isinstance(warning, RunWarning)
    is_full = isinstance(error, StoreFull)
    assert warning.code == ("token_values_not_stored" if is_full else "trajectories_not_stored")
    assert str(error) in warning.message
