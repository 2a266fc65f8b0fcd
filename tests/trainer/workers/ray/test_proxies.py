"""What one worker's silence or failure does to the whole, without processes."""

from __future__ import annotations

import asyncio
import errno
import math
import pickle
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray", reason="Ray is not installed here")

from ray.exceptions import ActorDiedError, RayTaskError

from hillclimb.environment.errors import EngineRestarted
from tests.trainer.fixtures.scripted import a_task
from trainer.engines.base import EngineStats
from trainer.engines.choose import ChosenEngine
from trainer.errors import EngineError, LearnerError, StorageFull
from trainer.rollouts.limits.liveness import Request, refuse_dead_engine
from trainer.rollouts.request import RolloutRequest
from trainer.rollouts.worker import copy_of
from trainer.workers.ray import proxies
from trainer.workers.ray.engine_actor import EngineActor
from trainer.workers.ray.learner_actor import LearnerActor
from trainer.workers.ray.proxies import RemoteLearner, RemoteRolloutWorkers, SpreadEngine
from trainer.workers.ray.replies import Reply
from trainer.workers.ray.restarts import IDLE


class Copy:
    """An engine that can draw, hangs, or is being started again."""

    def __init__(self, state: str = "there") -> None:
        self.state = state
        self.ready_since = -math.inf
        self.asked: list[str] = []

    async def health_check(self) -> bool:
        self.asked.append("look")
        return self.state != "away"

    async def score(self, token_ids: object) -> None:
        del token_ids
        self.asked.append("score")
        if self.state != "there":
            await asyncio.Event().wait()

    async def logprobs(self, token_ids: object) -> torch.Tensor:
        del token_ids
        return torch.zeros(3)

    def stats(self) -> EngineStats:
        return replace(IDLE, num_sampled_tokens=7)


@pytest.mark.parametrize(
    ("state", "error"), [("there", None), ("hangs", EngineError), ("away", EngineRestarted)]
)
async def test_the_copy_that_had_the_session_is_asked_and_no_other(
    state: str, error: type[Exception] | None
) -> None:
    """Another one that hangs, or is being started again, is no concern of its rollouts."""
    copies = [Copy("away"), Copy("hangs"), Copy("there")]
    spread = SpreadEngine(copies)  # type: ignore[arg-type]
    assert spread.stats().num_sampled_tokens == 21
    (copy,) = [each for each in copies if each.state == state]
    request = Request.to(copy_of(spread, copies.index(copy)))  # type: ignore[arg-type]
    assert request.num_drawn == 7
    with pytest.raises(error) if error else nullcontext():
        await refuse_dead_engine(request, (1, 2, 3, 4), turn_s=0.05)
    assert [each for each in copies if each.asked] == [copy]


class Worker:
    """A rollout worker that answers with the number of the engine that it was given."""

    def __init__(self) -> None:
        self.run_rollout = self

    def remote(self, _task: object, _sample: int, request: RolloutRequest) -> Any:
        async def answer() -> Reply[int]:
            await asyncio.sleep(0)
            return Reply(request.engine, "first")

        return answer()


async def test_a_group_has_one_engine_whichever_worker_runs_its_rollouts() -> None:
    """Every worker is told; none decides by itself."""
    workers = RemoteRolloutWorkers([Worker(), Worker(), Worker()], lambda _: None, num_engines=2)
    requests = RolloutRequest(
        step=1, split="train", decoding="default", n_samples_per_prompt=3, temperatures={}
    )
    tasks = [replace(a_task(), key=f"task-{number}") for number in range(4)]
    rollouts: list[Any] = await asyncio.gather(
        *(workers.run_rollout(task, sample, requests) for task in tasks for sample in range(3))
    )
    assert rollouts == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]


class Rank:
    """An actor whose every call ends with `outcome` after `delay_s`."""

    def __init__(self, outcome: object, delay_s: float = 0.0) -> None:
        self._outcome, self._delay_s = outcome, delay_s
        self.logprobs = self.take_token_values = self

    def remote(self, *_: object) -> Any:
        async def answer() -> object:
            await asyncio.sleep(self._delay_s)
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome

        return answer()


def failed(cause: Exception) -> RayTaskError:
    return RayTaskError("logprobs", "traceback", cause)


FOREVER = 3600.0
HANGS, ANSWERS = Rank(torch.zeros(1), FOREVER), Rank(torch.zeros(1))


@pytest.mark.parametrize(
    ("ranks", "error", "message"),
    [
        ([HANGS, Rank(failed(RuntimeError("out of memory")))], LearnerError, "out of memory"),
        ([Rank(failed(RuntimeError("closed by peer"))), Rank(failed(StorageFull("disk")), 0.01)],
         StorageFull, "disk"),
        ([Rank(failed(RuntimeError("closed by peer"))), Rank(ActorDiedError(), 0.01)],
         LearnerError, "a rank of the learner died"),
    ],
)  # fmt: skip
async def test_a_rank_that_fails_is_the_cause_and_those_that_wait_for_it_are_not_waited_for(
    ranks: list[Rank], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "DEATH_REPORT_S", 0.1)
    learner = RemoteLearner(ranks, 1)
    with pytest.raises(error, match=message):
        await asyncio.wait_for(learner.logprobs((1, 2)), 5.0)
    assert (await RemoteLearner([ANSWERS, ANSWERS], 1).logprobs((1, 2))).shape == (1,)


async def test_the_values_of_all_ranks_are_those_of_the_learner() -> None:
    learner = RemoteLearner([Rank(("a", "b")), Rank(()), Rank(("c",))], 1)
    assert await learner.take_token_values() == ("a", "b", "c")


@pytest.mark.parametrize("method", ["begin_save", "write_weights", "finish_save"])
def test_a_full_disk_is_named_in_the_rank_that_meets_it(method: str, tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "no space")

    class FullDisk:
        def begin_save(self, _: Path) -> Any:
            return full if method == "finish_save" else full()

        def write_weights(self, _: Path) -> None:
            full()

    worker = LearnerActor(None, 0, 1)  # type: ignore[arg-type]
    worker._rank = FullDisk()  # type: ignore[assignment]
    arguments = [tmp_path / "x"]
    if method == "finish_save":
        worker.begin_save(arguments.pop())
    with pytest.raises(StorageFull):
        getattr(worker, method)(*arguments)


@dataclass
class Scoring:
    """A factory of engines that score."""

    weights_dir: Path

    def make_engine(self) -> ChosenEngine:
        return ChosenEngine(engine=Copy(), name="copy")  # type: ignore[arg-type]


async def test_the_answer_that_an_engine_lives_has_no_tensor(tmp_path: Path) -> None:
    """A rollout worker reads it, within a deadline, and would import torch for a tensor."""
    actor = EngineActor(Scoring(tmp_path))  # type: ignore[arg-type]
    assert b"torch" in pickle.dumps(await actor.logprobs((1, 2, 3, 4)))
    reply = await actor.score((1, 2, 3, 4))
    assert reply.value.num_sampled_tokens == 7
    assert b"torch" not in pickle.dumps(reply)


class NoEngine:
    """A factory without an engine."""

    def make_engine(self) -> None:
        raise EngineError("no engine")


async def test_a_worker_computes_with_one_thread_whatever_ray_was_started_with() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        LearnerActor(None, 0, 1)  # type: ignore[arg-type]
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)
        with pytest.raises(EngineError):
            await EngineActor(NoEngine()).start()  # type: ignore[arg-type]
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
