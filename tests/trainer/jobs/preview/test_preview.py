"""What a run's agents read, told before the first rollout and in previews."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hillclimb.environment.base import EnvProvider, ToolSpec
from hillclimb.environment.deadline import remaining_s
from hillclimb.environment.errors import EnvAtCapacity
from hillclimb.environment.task import Task
from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.events import (
    EVENTS,
    PhaseStarted,
    PromptsRendered,
    RunWarning,
    TrainerStarted,
)
from hillclimb.protocol.rundir import prompts_file, run_key
from tests.trainer.fixtures.scripted import TOOLS, CountingEnv
from tests.trainer.fixtures.short_run import ShortRun
from trainer.attempt.stop_signal import StopRequested
from trainer.errors import DataError
from trainer.jobs.preview.preview import build_preview
from trainer.jobs.probe.wiring import build_prober
from trainer.jobs.train.wiring import build_trainer
from trainer.rollouts.chat.chat import Chat

MODEL = Path(__file__).parents[4] / "assets" / "tiny-qwen3-a"


class Previewed(ShortRun):
    """A short run that is only previewed, with the tokenizer of a shipped model."""

    def __init__(self, root: Path, **sections: dict[str, Any]) -> None:
        super().__init__(root, model={"source": "builtin:tiny-qwen3-a"}, **sections)
        self.spec = self.spec.model_copy(update={"kind": "preview"})

    async def preview(self, provider: EnvProvider | None = None) -> None:
        await self.finish(build_preview(self.begin(), provider))

    def told(self) -> PromptsRendered:
        (event,) = (e for e in self.events() if isinstance(e, PromptsRendered))
        return event

    def events(self) -> list[Any]:
        lines = self.dir().events.read_text().splitlines()
        return [EVENTS.validate_json(line) for line in lines]

    def texts(self) -> list[PromptText]:
        data = self.store.get(run_key(self.run_id, prompts_file(1)))
        return [PromptText.model_validate_json(line) for line in gzip.decompress(data).splitlines()]


@dataclass(slots=True)
class Unforeseen:
    """A provider that cannot tell tools without starting an environment."""

    make_env: Callable[[], CountingEnv]
    envs: list[CountingEnv]
    env_keys: tuple[str, ...] = ("booking", "github")

    def make(self, task: Task) -> CountingEnv:
        self.envs.append(self.make_env())
        return self.envs[-1]


async def test_a_preview_counts_every_task_and_keeps_those_asked_for(tmp_path: Path) -> None:
    run = Previewed(tmp_path, preview={"tasks_per_env": 2, "task_keys": ["github-eval-3"]})
    with pytest.raises(DataError, match="'github-eval-3', which is not a task of this run"):
        await run.preview()
    run = Previewed(tmp_path / "b", preview={"tasks_per_env": 2})
    await run.preview()
    told = run.told()
    assert set(told.environments) == {"booking", "github"}
    assert all(each.num_counted == each.num_tasks == 34 for each in told.environments.values())
    texts = run.texts()
    assert [text.env_key for text in texts] == ["booking", "booking", "github", "github"]
    last = texts[-1].task_key
    run = Previewed(tmp_path / "c", preview={"tasks_per_env": 0, "task_keys": [last]})
    await run.preview()
    assert [text for text in run.texts() if text.env_key == "github"] == [texts[-1]]
    assert run.told().environments == told.environments


async def test_a_preview_of_many_tasks_gives_signs_of_life_and_stops_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service gives up on a trainer that says nothing."""
    monkeypatch.setattr("trainer.jobs.prompt_preview.PROGRESS_S", 0.01)
    run = Previewed(tmp_path)
    counted = Slow(monkeypatch)
    await run.preview()
    types = [event.type for event in run.events() if event.type != "trainer.starting"]
    assert types[:2] == ["trainer.started", "phase.started"]
    assert types[-1] == "prompts.rendered"
    phases = [event for event in run.events() if isinstance(event, PhaseStarted)]
    left = [event.num_rollouts for event in phases]
    assert {event.phase for event in phases} == {"prompts"}
    assert left[0] == 68
    assert left == sorted(left, reverse=True)
    assert len(left) >= 3
    (started,) = (event for event in run.events() if isinstance(event, TrainerStarted))
    assert (started.num_train_tasks, started.num_eval_tasks, started.engine) == (60, 8, "none")

    stopped, before = Previewed(tmp_path / "b"), counted.number
    working = asyncio.create_task(stopped.preview())
    await asyncio.to_thread(counted.until, before + 5)
    stopped.stop.request_stop()
    with pytest.raises(StopRequested):
        await working
    assert counted.number < before + 68
    assert "prompts.rendered" not in [event.type for event in stopped.events()]


class Slow:
    """Lets counting a prompt take a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.counted = threading.Event()
        count = Chat.encode_message

        def slowly(chat: Chat, role: str, content: str) -> tuple[int, ...]:
            if role == "user" and content:
                self.number += 1
                self.counted.set()
                time.sleep(0.005)
            return count(chat, role, content)

        monkeypatch.setattr(Chat, "encode_message", slowly)

    def until(self, number: int) -> None:
        """Wait in another thread than that of the event loop."""
        while self.number < number:
            self.counted.wait()
            self.counted.clear()


async def test_a_preview_asks_environments_for_their_tools_and_closes_them(tmp_path: Path) -> None:
    provider = Unforeseen(lambda: CountingEnv(goal=1), [])
    run = Previewed(tmp_path)
    await run.preview(provider)
    assert [env.num_closed for env in provider.envs] == [1, 1]
    assert {each.num_tools for each in run.told().environments.values()} == {len(TOOLS)}
    assert all('"name":"add"' in text.system for text in run.texts())


async def test_a_preview_shows_the_prompts_in_the_style_of_the_spec(tmp_path: Path) -> None:
    run = Previewed(tmp_path, prompt={"style": "skyrl"})
    await run.preview(Unforeseen(lambda: CountingEnv(goal=1), []))
    assert run.told().version == "skyrl-1"
    assert all("## Available Tools\n[\n" in text.system for text in run.texts())
    chat = Chat.from_directory(MODEL)
    for text in run.texts():
        assert text.total_tokens == len(chat.encode_opening(text.system, text.task))


class Board(CountingEnv):
    """Shows its state after the reset."""

    prompt = "The count is 0."


async def test_a_preview_shows_what_the_reset_adds_to_the_prompts(tmp_path: Path) -> None:
    run = Previewed(tmp_path)
    await run.preview(Unforeseen(lambda: Board(goal=1), []))
    assert run.texts()
    assert all(text.task.endswith("\n\nThe count is 0.") for text in run.texts())
    assert {each.num_tasks for each in run.told().environments.values()} <= set(range(2, 18))


async def test_an_environment_that_does_not_start_is_left_out_with_a_warning(
    tmp_path: Path,
) -> None:
    broken = iter([CountingEnv(goal=1, unreachable=True), CountingEnv(goal=1)])
    provider = Unforeseen(lambda: next(broken), [])
    run = Previewed(tmp_path)
    await run.preview(provider)
    assert list(run.told().environments) == ["github"]
    (warning,) = (event for event in run.events() if isinstance(event, RunWarning))
    assert warning.code == "prompts_unknown"
    assert warning.message.startswith("booking did not start, so its prompts are not known yet")


async def test_training_tells_its_prompts_before_the_first_rollout(tmp_path: Path) -> None:
    run = Previewed(tmp_path, schedule={"total_steps": 1}, eval={"before_training": False})
    run.spec = run.spec.model_copy(
        update={"kind": "train", "model": ShortRun(tmp_path / "tiny").spec.model}
    )
    await run.train()
    types = [event.type for event in run.events()]
    assert types.index("trainer.started") < types.index("prompts.rendered")
    assert types.index("prompts.rendered") < types.index("phase.started")
    told = run.told()
    assert {each.num_tasks for each in told.environments.values()} == {34}
    kept = {text.env_key: text.task_key for text in run.texts()}
    assert kept == {key: each.longest_task for key, each in told.environments.items()}


@dataclass(slots=True)
class Crowded(Unforeseen):
    """All places are taken at first; a place is free again after each refusal."""

    num_refusals: int = 0
    num_held: int = 0
    most_held: int = 0

    @asynccontextmanager
    async def slot(self, task: Task) -> AsyncIterator[None]:
        self.num_held += 1
        self.most_held = max(self.most_held, self.num_held)
        try:
            yield
        finally:
            self.num_held -= 1

    def make(self, task: Task) -> CountingEnv:
        if self.num_refusals:
            self.num_refusals -= 1
            self.envs.append(Refusing(goal=1))
        else:
            self.envs.append(self.make_env())
        return self.envs[-1]


class Refusing(CountingEnv):
    """There is no room for it."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        raise EnvAtCapacity("the account holds 8 of 8 instances")


class Timed(CountingEnv):
    """Writes down how long it may try."""

    left: ClassVar[list[float]] = []

    async def reset(self) -> tuple[ToolSpec, ...]:
        self.left.append(remaining_s())
        return TOOLS


class Slowly(CountingEnv):
    """Takes for ever to start."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        await asyncio.sleep(3600)
        return TOOLS


async def test_a_full_account_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.jobs.prompt_preview.CAPACITY_PAUSE_S", 0.01)
    run, provider = Previewed(tmp_path), Crowded(lambda: CountingEnv(goal=1), [], num_refusals=5)
    await run.preview(provider)
    assert set(run.told().environments) == {"booking", "github"}
    assert [env.num_closed for env in provider.envs] == [1] * 7
    assert (provider.num_held, provider.most_held) == (0, 1)

    monkeypatch.setattr("trainer.jobs.prompt_preview.CAPACITY_WAIT_S", 0.05)
    run = Previewed(tmp_path / "b")
    await run.preview(Crowded(lambda: CountingEnv(goal=1), [], num_refusals=10**6))
    assert not run.told().environments
    warnings = [event for event in run.events() if isinstance(event, RunWarning)]
    assert len(warnings) == 2
    assert "holds 8 of 8 instances" in warnings[0].message


async def test_an_environment_knows_how_long_its_reset_may_take(tmp_path: Path) -> None:
    Timed.left.clear()
    run = Previewed(tmp_path, environment={"reset_timeout_s": 200.0})
    await run.preview(Unforeseen(lambda: Timed(goal=1), []))
    assert len(Timed.left) == 2
    assert all(195.0 < left <= 200.0 for left in Timed.left)


def until_signs_of_life(run: ShortRun, number: int) -> None:
    """Wait, in another thread than that of the event loop, at most ten seconds."""
    until = time.monotonic() + 10.0
    while len(run.events(PhaseStarted)) < number:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["train", "probe"])
async def test_a_cancellation_reaches_a_run_whose_environments_are_still_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("trainer.jobs.prompt_preview.PROGRESS_S", 0.02)
    run = ShortRun(tmp_path)
    run.spec = run.spec.model_copy(update={"kind": kind})
    provider = Unforeseen(lambda: Slowly(goal=1), [])
    build = build_trainer if kind == "train" else build_prober
    working = asyncio.create_task(run.finish(build(run.begin(), provider)))
    await asyncio.to_thread(until_signs_of_life, run, 3)
    run.stop.request_stop()
    with pytest.raises(StopRequested):
        await asyncio.wait_for(working, timeout=5.0)
    assert {event.phase for event in run.events(PhaseStarted)} == {"prompts"}
    assert [env.num_closed for env in provider.envs] == [1, 1]
