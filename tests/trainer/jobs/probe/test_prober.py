"""Probes: a tiny random model, counting worlds, real everything else."""

from __future__ import annotations

import gzip
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trainer.jobs.probe.prober as prober_module
import trainer.rollouts.request as request_module
from hillclimb.environment.base import EnvProvider
from hillclimb.environment.task import Task
from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.events import (
    CheckpointSaved,
    ProbeCompleted,
    PromptsRendered,
    RunWarning,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.protocol.rundir import run_key
from hillclimb.stats.probe_report import ProbeVerdict, report_rows
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider, solved_by_done
from tests.trainer.fixtures.short_run import ShortRun, saying_done_is_right
from tests.trainer.workers.ray.test_workers import workers
from trainer.attempt.stop_signal import StopRequested
from trainer.jobs.probe.prober import Prober
from trainer.jobs.probe.wiring import build_prober
from trainer.jobs.train.checkpoints import complete_checkpoints, find_latest
from trainer.learners.rank import LearnerRank
from trainer.rollouts.records.dump import read_trajectories

K = 3
PROBE: dict[str, dict[str, Any]] = {
    "environment": {"max_turns": 1},
    "probe": {"tasks_per_env": 4, "n_samples_per_prompt": K},
}


class Probe(ShortRun):
    """A short run that only probes."""

    def __init__(self, root: Path, run_id: str | None = None, **sections: dict[str, Any]) -> None:
        merged = {
            name: {**PROBE.get(name, {}), **sections.get(name, {})} for name in {*PROBE, *sections}
        }
        super().__init__(root, run_id, **merged)
        self.spec = self.spec.model_copy(update={"kind": "probe"})

    def prober(
        self,
        provider: EnvProvider | None = None,
        *,
        attempt: int = 1,
        resume_from: str | None = None,
    ) -> Prober:
        parts = self.begin(attempt, resume_from=resume_from)
        return build_prober(parts, provider or saying_done_is_right())

    async def run(
        self,
        provider: EnvProvider | None = None,
        *,
        attempt: int = 1,
        resume_from: str | None = None,
    ) -> ProbeCompleted:
        work = self.prober(provider, attempt=attempt, resume_from=resume_from)
        await self.finish(work)
        (event,) = self.events(ProbeCompleted, attempt)
        found: ProbeCompleted = event
        return found


@pytest.fixture
def no_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a probe has no learner")

    monkeypatch.setattr(LearnerRank, "__init__", refuse)


class HalfBroken(CountingProvider):
    """The environments of github do not start."""

    def make(self, task: Task) -> CountingEnv:
        env = super().make(task)
        env.unreachable = task.env_key == "github"
        return env


@pytest.mark.usefixtures("no_learner")
async def test_a_probe_reports_every_environment_and_trains_nothing(tmp_path: Path) -> None:
    run = Probe(tmp_path, data={"train_tasks_by_env": {"github": 3}})
    found = await run.run(HalfBroken(solved_by_done))
    assert found.complete
    assert (found.step, found.n_samples_per_prompt, found.group_size) == (0, K, 4)
    assert Counter(row.env_key for row in found.outcomes) == {"booking": 4 * K, "github": 3 * K}
    assert {(row.split, row.decoding) for row in found.outcomes} == {("train", "probe")}

    booking, github = found.environments["booking"], found.environments["github"]
    assert (booking.num_tools, booking.reset.num, booking.reset.num_failed) == (2, 4 * K, 0)
    assert booking.prompt_tokens_max is not None
    tries = 3 * K * (1 + run.spec.environment.max_infra_retries)
    assert (github.num_tools, github.reset.num, github.reset.num_failed) == (None, tries, tries)
    assert github.infra_errors == {"unexpected_ConnectionError": tries}

    report = report_rows(found.outcomes, pass_threshold=1.0, group_size=4)
    assert report.environments["github"].verdict is ProbeVerdict.UNHEALTHY
    assert report.environments["github"].pass_rate.value is None
    assert report.environments["booking"].begun.num_troubled == 0

    path = tmp_path / "trajectories.gz"
    run.store.get_file(f"runs/{run.run_id}/attempt-1/{found.outcomes[0].trajectory}", path)
    records = read_trajectories(path)
    assert [record["rollout_id"] for record in records] == [r.rollout_id for r in found.outcomes]
    assert run.events(StepCompleted) == run.events(CheckpointSaved) == []
    assert complete_checkpoints(run.store, run.run_id) == ()
    (started,) = run.events(TrainerStarted)
    assert (started.total_steps, started.num_train_tasks, started.num_eval_tasks) == (0, 7, 0)


async def test_what_had_ended_by_a_stop_is_reported_and_the_rest_is_missing(tmp_path: Path) -> None:
    run = Probe(tmp_path, environment={"max_turns": 1, "max_concurrent_rollouts": 1})
    provider = CountingProvider(solved_by_done)
    work = run.prober(provider)

    def stop_at_the_eighth(number: int) -> CountingEnv:
        if number == 7:
            run.stop.request_stop()
        return solved_by_done(number)

    provider.make_env = stop_at_the_eighth
    with pytest.raises(StopRequested):
        await run.finish(work)
    (found,) = run.events(ProbeCompleted)
    assert not found.complete
    stops = Counter(row.stop_reason is StopReason.NOT_STARTED for row in found.outcomes)
    assert stops[False] in (7, 8)
    assert sum(stops.values()) == 8 * K
    missing = [row for row in found.outcomes if row.stop_reason is StopReason.NOT_STARTED]
    assert {(row.status, row.score) for row in missing} == {(OutcomeStatus.UNGRADED, None)}
    assert sum(env.num_closed for env in provider.envs) == len(provider.envs)
    assert (
        found.environments["booking"].reset.num + found.environments["github"].reset.num
        == (stops[False])
    )

    again = await run.run(attempt=2)
    assert again.complete
    assert {row.task_key for row in again.outcomes} == {row.task_key for row in found.outcomes}


async def test_a_probe_out_of_time_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        leap_s = 0.0

        def time(self) -> float:
            return time.time() + self.leap_s

    clock = Clock()
    monkeypatch.setattr(request_module, "time", clock)

    def env(number: int) -> CountingEnv:
        clock.leap_s = 3600.0 if number == 9 else 0.0
        return solved_by_done(number)

    run = Probe(
        tmp_path,
        environment={"max_turns": 1, "max_concurrent_rollouts": 1},
        probe={"budget_minutes": 10.0},
    )
    found = await run.run(CountingProvider(env))
    assert found.complete
    begun = [row for row in found.outcomes if row.stop_reason is not StopReason.NOT_STARTED]
    assert Counter(row.env_key for row in begun) == {"booking": 6, "github": 4}
    (warning,) = [event for event in run.events(RunWarning) if event.code == "probe_budget"]
    assert "14 of 24 rollouts were not started" in warning.message
    assert warning.message.endswith("raise probe.budget_minutes")


@pytest.mark.parametrize(("step_timeout_s", "last_start_s"), [(1500.0, 1070.0), (424.0, 2.0)])
async def test_a_probe_without_a_budget_begins_what_still_fits_its_step(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step_timeout_s: float,
    last_start_s: float,
) -> None:
    """A rollout may take 420 s, and closing its environment 10 s more; some start in any case."""
    begun_at = time.time()
    leap_s = [0.0]

    class Clock:
        def time(self) -> float:
            return begun_at + leap_s[0]

    monkeypatch.setattr(request_module, "time", Clock())
    fixed = SimpleNamespace(time=lambda: begun_at, perf_counter=time.perf_counter)
    monkeypatch.setattr(prober_module, "time", fixed)

    def env(number: int) -> CountingEnv:
        leap_s[0] = {9: last_start_s - 1.0, 10: last_start_s + 1.0}.get(number, leap_s[0])
        return solved_by_done(number)

    run = Probe(
        tmp_path,
        environment={"max_turns": 1, "max_concurrent_rollouts": 1},
        schedule={"step_timeout_s": step_timeout_s},
    )
    assert run.spec.environment.longest_rollout_s == 420.0
    found = await run.run(CountingProvider(env))
    assert found.complete
    begun = [row for row in found.outcomes if row.stop_reason is not StopReason.NOT_STARTED]
    assert len(begun) == 11
    (warning,) = [event for event in run.events(RunWarning) if event.code == "probe_budget"]
    assert warning.message.endswith("raise schedule.step_timeout_s")


async def test_a_probe_says_what_its_agents_read(tmp_path: Path) -> None:
    run = Probe(tmp_path)
    found = await run.run()
    (told,) = run.events(PromptsRendered)
    assert {key: each.num_tasks for key, each in told.environments.items()} == {
        "booking": 4,
        "github": 4,
    }
    assert told.environments["booking"].total_tokens.max == (
        found.environments["booking"].prompt_tokens_max
    )
    lines = gzip.decompress(run.store.get(run_key(run.run_id, told.file))).splitlines()
    texts = [PromptText.model_validate_json(line) for line in lines]
    assert {text.task_key for text in texts} <= {row.task_key for row in found.outcomes}
    same, other = Probe(tmp_path, "run_same"), Probe(tmp_path, "run_other", data={"seed": 5})
    await same.run()
    await other.run()
    assert same.events(PromptsRendered)[0].environments == told.environments
    digests = [run.events(PromptsRendered)[0].environments["github"].digest for run in (run, other)]
    assert digests[0] != digests[1]


async def test_a_checkpoints_policy_is_the_one_that_is_probed(tmp_path: Path) -> None:
    trained = ShortRun(
        tmp_path,
        environment={"max_turns": 1},
        schedule={"total_steps": 1},
        eval={"before_training": False, "interval": 0},
    )
    await trained.train()
    probe = Probe(tmp_path, "run_probe")
    found = await probe.run(resume_from=find_latest(trained.store, trained.run_id))
    assert found.step == 1
    (started,) = probe.events(TrainerStarted)
    assert (started.total_steps, started.resumed_from_step) == (1, 1)

    same = Probe(tmp_path, "run_same", model={"source": str(trained.policy(1))})
    base = Probe(tmp_path, "run_base")

    def drawn(run: Probe) -> list[Any]:
        path = next((run.dir().trajectories).glob("*.gz"))
        return [record["logprobs"] for record in read_trajectories(path)]

    await base.run()
    assert drawn(probe) != drawn(base)
    first = probe.dir().path / "resume" / "policy" / "model.safetensors"
    assert first.read_bytes() == (trained.policy(1) / "model.safetensors").read_bytes()
    assert not (probe.dir().path / "resume" / "learner").exists()
    assert (await same.run()).outcomes[0].num_tokens > 0
    (started_base,) = base.events(TrainerStarted)
    (started_trained,) = trained.events(TrainerStarted)
    assert started_base.num_parameters == started_trained.num_parameters


@pytest.mark.long
async def test_on_ray_there_is_no_learner_and_the_rollouts_are_the_same(tmp_path: Path) -> None:
    here = await Probe(tmp_path, "run_here").run(CountingProvider(solved_by_done))
    run = Probe(tmp_path, "run_there", placement={"type": "ray"})
    work = run.prober(CountingProvider(solved_by_done))
    assert [len(workers(name)) for name in ("Engine", "Learner", "Rollout")] == [1, 0, 1]
    await run.finish(work)
    assert workers("") == []
    (there,) = run.events(ProbeCompleted)

    def what_happened(event: ProbeCompleted) -> list[tuple[Any, ...]]:
        return [(row.task_key, row.score, row.num_tokens) for row in event.outcomes]

    assert what_happened(there) == what_happened(here)
    assert there.environments["booking"].reset.num == here.environments["booking"].reset.num
