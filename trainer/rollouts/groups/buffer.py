"""Rollout buffer: rolls groups out ahead of the learner, within a bound of staleness.

Every group has a slot, numbered 0, 1, 2 ... over the life of the run; step t (from 1) takes
`batch_size` of them. With a bound of S steps slots are opened ahead of the step that takes them,
and a slow one may be taken later than others; no trajectory that is trained on was begun more than
S versions before. With S = 0 a step opens its slots when it begins and waits for all of them: the
synchronous algorithm is this code, not another one.

The bound: A = ceil(S / 2) batches are opened ahead, and a slow group may be D = S - A steps late.
Slot j opens at version j // batch_size - A at the earliest and is taken by step j // batch_size +
1 + D at the latest, so what is trained on at step t (version t - 1) is at most A + D = S old. A
step never has to take more than `batch_size`: all slots before its window were taken in time.
No slot is opened for a step after the run's last one.

Source: bounded staleness over a buffer of groups, as in AReaL (arXiv:2505.24298, section 5.1).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pydantic import JsonValue

from hillclimb.environment.task import Task
from trainer.errors import CheckpointError
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.groups.resampling import ResamplePolicy, RolloutGroup
from trainer.rollouts.request import RolloutRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferOptions:
    """Batch size, staleness bound and resampling of a rollout buffer."""

    batch_size: int
    """Groups per step."""
    last_step: int
    """The run's last step: no slot is opened for a later one."""
    max_staleness_steps: int = 0
    """Versions between the weights that began a trajectory and those that learn from it."""
    resampling: ResamplePolicy = field(default_factory=ResamplePolicy)
    """The groups that are resampled; the bound holds for these too, since they begin later."""

    @property
    def ahead(self) -> int:
        """Batches opened before the step that takes them."""
        return -(-self.max_staleness_steps // 2)

    @property
    def slack(self) -> int:
        """Steps by which a slow group may be late."""
        return self.max_staleness_steps - self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """The groups that a training step takes from the buffer."""

    groups: tuple[RolloutGroup, ...]
    """In the order of their slots."""
    dropped: tuple[RolloutGroup, ...] = ()
    """Groups that were rolled out for this step and replaced by resampling."""
    num_in_flight: int = 0
    """Groups that later steps will take, finished or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """A task with the ordinal of its draw, from which the group's seeds are derived."""

    task: Task
    ordinal: int


@dataclass(slots=True)
class _Slot:
    draws: list[_Draw]
    """The last one is rolled out now or finished, the groups of the others are in `dropped`."""
    dropped: list[RolloutGroup] = field(default_factory=list)
    filling: asyncio.Task[RolloutGroup] | None = None

    @property
    def is_filled(self) -> bool:
        """True once the slot has its group. Raises the error that ended its rollouts."""
        done = self.filling is not None and self.filling.done()
        return done and self.group is not None

    @property
    def group(self) -> RolloutGroup:
        if self.filling is None:
            raise AssertionError("a slot gets its task of rollouts when it is opened")
        return self.filling.result()


class RolloutBuffer:
    """Opens slots, runs their rollouts in the background, and returns a batch per step."""

    def __init__(
        self,
        collector: Collector,
        draw_tasks: Callable[[], Sequence[Task]],
        request_of: Callable[[int], RolloutRequest],
        options: BufferOptions,
    ) -> None:
        """`draw_tasks` draws one batch of tasks; `request_of` returns the request of a draw."""
        self._collector = collector
        self._draw_tasks = draw_tasks
        self._request_of = request_of
        self._options = options
        self._drawn: deque[_Draw] = deque()
        self._slots: dict[int, _Slot] = {}
        self._num_opened = 0
        self._num_draws = 0

    @property
    def batch_size(self) -> int:
        """Groups per step."""
        return self._options.batch_size

    async def next_batch(self, step: int) -> RolloutBatch:
        """Return the groups of a step; rollouts of later steps continue in the background.

        Raises:
            TrainerError: a rollout failed for a reason other than its environment.
        """
        options = self._options
        self._open_until(min(step + options.ahead, options.last_step) * options.batch_size)
        dropped: list[RolloutGroup] = []
        for num_draws in count(1):
            numbers = await self._batch(step)
            slots = [self._slots.pop(number) for number in numbers]
            groups = tuple(slot.group for slot in slots)
            dropped += [group for slot in slots for group in slot.dropped]
            resampling = options.resampling
            if num_draws >= resampling.max_draws or resampling.accepts(groups):
                break
            dropped += groups
            for number in numbers:
                self._open(number)
        return RolloutBatch(groups=groups, dropped=tuple(dropped), num_in_flight=len(self._slots))

    async def _batch(self, step: int) -> list[int]:
        """Wait for the slots that the step takes, and return their numbers in order."""
        options = self._options
        window = (step - options.slack) * options.batch_size
        overdue = {number for number in self._slots if number < window}
        while True:
            filled = [number for number, slot in self._slots.items() if slot.is_filled]
            if len(filled) >= options.batch_size and overdue.issubset(filled):
                # Overdue slots are the oldest ones, so they are among the first.
                return sorted(filled)[: options.batch_size]
            filling = [slot.filling for slot in self._slots.values() if slot.filling is not None]
            unfinished = [task for task in filling if not task.done()]
            await asyncio.wait(unfinished, return_when=asyncio.FIRST_COMPLETED)

    def state(self) -> dict[str, JsonValue]:
        """Return the number of draws and the drawn tasks that no step has taken, for `restore`.

        Tasks that a slot has dropped are included: no step has reported their rollouts.
        """
        draws = [draw for _, slot in sorted(self._slots.items()) for draw in slot.draws]
        draws += self._drawn
        pending: list[JsonValue] = [[draw.ordinal, draw.task.key] for draw in draws]
        return {"num_draws": self._num_draws, "pending": pending}

    def restore(self, step: int, state: Mapping[str, JsonValue], tasks: Mapping[str, Task]) -> None:
        """Resume after `step`; pending groups are rolled out again.

        Raises:
            CheckpointError: the state is malformed, or its tasks are not among `tasks`.
        """
        num_draws, pending = state.get("num_draws"), state.get("pending")
        if not isinstance(num_draws, int) or not isinstance(pending, list):
            raise CheckpointError("the state of the rollout buffer is malformed")
        for entry in pending:
            match entry:
                case [int(ordinal), str(key)] if key in tasks:
                    self._drawn.append(_Draw(task=tasks[key], ordinal=ordinal))
                case _:
                    raise CheckpointError(f"the checkpoint's pending task {entry!r} is not known")
        self._num_opened = step * self._options.batch_size
        self._num_draws = num_draws

    async def close(self) -> None:
        """Cancel all rollouts."""
        filling = [slot.filling for slot in self._slots.values() if slot.filling is not None]
        for task in filling:
            task.cancel()
        await asyncio.gather(*filling, return_exceptions=True)
        self._slots.clear()

    def _open_until(self, end: int) -> None:
        while self._num_opened < end:
            self._open(self._num_opened)
            self._num_opened += 1

    def _open(self, number: int) -> None:
        slot = self._slots[number] = _Slot([self._next_draw()])
        slot.filling = asyncio.create_task(self._fill(slot))

    async def _fill(self, slot: _Slot) -> RolloutGroup:
        resampling = self._options.resampling
        while True:
            draw = slot.draws[-1]
            group = await self._collector.group(draw.task, self._request_of(draw.ordinal))
            if len(slot.draws) >= resampling.max_draws or resampling.keeps(group):
                return group
            slot.dropped.append(group)
            slot.draws.append(self._next_draw())

    def _next_draw(self) -> _Draw:
        if not self._drawn:
            self._num_draws += 1
            tasks = self._draw_tasks()
            self._drawn.extend(_Draw(task=task, ordinal=self._num_draws) for task in tasks)
        return self._drawn.popleft()
