import threading
from pathlib import Path

import pytest

import trainer.waves as waves_module
from tests.trainer.scripted import (
    ADD,
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_collector,
    a_task,
    a_wave,
)
from trainer.contract.events import EVENTS, EnvDegraded, Event, RunWarning
from trainer.contract.rundir import AttemptDir
from trainer.envs.base import Grade
from trainer.errors import EnvironmentOutage, StorageFull
from trainer.rollouts.collect import Collector
from trainer.rollouts.unstarted import unstarted
from trainer.sinks.journal import Journal
from trainer.sinks.jsonl import JsonlFile
from trainer.stopping import Stop
from trainer.stores.base import StoreError, StoreFull
from trainer.stores.disk import DiskStore
from trainer.waves import Waves

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


class Here:
    def __init__(self, root: Path, store: DiskStore | None = None, rate: float = 0.5) -> None:
        self.where = AttemptDir(root / "runs" / "run_1", 1)
        self.store = store or DiskStore(root / "blobs")
        self.journal = Journal(JsonlFile(self.where.events))
        self.rate = rate

    def waves(self, made: Collector) -> Waves:
        return Waves(
            collector=made,
            journal=self.journal,
            stop=Stop(),
            store=self.store,
            attempt_dir=self.where,
            max_infra_error_rate=self.rate,
        )

    def events(self, kind: type[Event]) -> list[Event]:
        self.journal.close(drain_s=0.0)
        lines = self.where.events.read_bytes().splitlines()
        return [e for e in map(EVENTS.validate_json, lines) if isinstance(e, kind)]


async def test_an_environment_that_errs_is_reported_although_its_rollouts_were_saved(
    tmp_path: Path,
) -> None:
    here = Here(tmp_path)
    result = await here.waves(collector(broken=1)).run(TASKS, a_wave())
    assert [row.score for row in result.rows] == [1.0] * 4
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.env_key, event.infra_error_rate) == ("counting", 0.25)
    assert event.reasons == {"tool_transport": 1}


async def test_an_environment_that_errs_rarely_is_not_reported(tmp_path: Path) -> None:
    here = Here(tmp_path)
    await here.waves(collector(broken=1)).run([a_task(f"t{i}") for i in range(11)], a_wave())
    assert here.events(EnvDegraded) == []


async def test_rollouts_that_were_never_begun_do_not_hide_an_environment_in_trouble(
    tmp_path: Path,
) -> None:
    here = Here(tmp_path, rate=1.0)
    waves, tasks = here.waves(collector(broken=1)), [a_task(f"t{i}") for i in range(40)]
    rolled = await waves.collector.collect(tasks[:1], a_wave())
    late = tuple((unstarted(task, 0, a_wave(), attempt=1, why="late"),) for task in tasks[1:])
    await waves.keep((*rolled, *late), a_wave())
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.infra_error_rate, event.reasons) == (1.0, {"tool_transport": 1})


async def test_a_verifier_that_gives_no_score_is_trouble(tmp_path: Path) -> None:
    class Scoreless(CountingEnv):
        async def score(self) -> Grade:
            return Grade(score=None, reason="the site said 503")

    here = Here(tmp_path, rate=1.0)
    provider = CountingProvider(lambda n: Scoreless(goal=0) if n == 0 else CountingEnv(goal=0))
    made = a_collector(ScriptedEngine(lambda *_: DONE), provider)
    await here.waves(made).run(TASKS, a_wave())
    (event,) = here.events(EnvDegraded)
    assert isinstance(event, EnvDegraded)
    assert (event.infra_error_rate, event.reasons) == (0.25, {"no_score": 1})


async def test_an_outage_is_a_share_of_missing_grades_above_the_limit(tmp_path: Path) -> None:
    here = Here(tmp_path, rate=0.0)
    await here.waves(collector()).run(TASKS, a_wave())
    with pytest.raises(EnvironmentOutage, match=r"4 of 4 .* counting: tool_transport"):
        await here.waves(collector(broken=99)).run(TASKS, a_wave(step=2))
    here.rate = 1.0
    await here.waves(collector(broken=99)).run(TASKS, a_wave(step=3))
    here.journal.close(drain_s=0.0)


async def test_a_store_that_does_not_answer_is_warned_about_once(tmp_path: Path) -> None:
    here = Here(tmp_path, Failing(tmp_path))
    waves = here.waves(collector())
    for step in (1, 2):
        await waves.run(TASKS[:1], a_wave(step=step))
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


@pytest.mark.parametrize("again", ["after the next wave", "at the end", "never: superseded"])
async def test_trajectories_that_the_store_missed_are_sent_once_it_is_back(
    tmp_path: Path, again: str
) -> None:
    store = Away(tmp_path / "blobs")
    here = Here(tmp_path, store)
    waves = here.waves(collector())
    for step in (1, 2):
        await waves.run(TASKS[:1], a_wave(step=step))
    await waves.close()
    assert store.list("runs") == ()
    store.is_away = False
    num_stored = 2
    if again == "after the next wave":
        await waves.run(TASKS[:1], a_wave(step=3))
        num_stored = 3
    elif again == "never: superseded":
        waves.stop.supersede()
        num_stored = 0
    if again != "after the next wave":
        await waves.close()
    assert len(store.list("runs/run_1/attempt-1/trajectories")) == num_stored
    here.journal.close(drain_s=0.0)


async def test_a_store_that_hangs_at_the_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waves_module, "CLOSE_S", 0.05)
    store, gate = Away(tmp_path / "blobs"), threading.Event()
    here = Here(tmp_path, store)
    waves = here.waves(collector())
    await waves.run(TASKS[:1], a_wave())
    monkeypatch.setattr(Away, "put_file", lambda *_: gate.wait())
    await waves.close()
    assert not gate.is_set()
    assert all(thread.daemon for thread in threading.enumerate() if "_send" in thread.name)
    gate.set()
    here.journal.close(drain_s=0.0)


async def test_a_full_store_ends_the_run(tmp_path: Path) -> None:
    store = Failing(tmp_path)
    store.error = StoreFull("quota")
    here = Here(tmp_path, store)
    with pytest.raises(StorageFull):
        await here.waves(collector()).run(TASKS[:1], a_wave())
    here.journal.close(drain_s=0.0)
