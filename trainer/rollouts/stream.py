"""Groups for one training step after another, rolled out ahead of the learner within a bound.

Every group has a slot, numbered 0, 1, 2 ... over the life of the run; step t (from 1) takes
`batch_size` of them. With a bound of S steps slots are opened ahead of the step that takes them,
and a slow one may be taken later than others; no trajectory that is trained on was begun more than
S versions before. With S = 0 a step's slots are opened when it begins and all are waited for: the
synchronous algorithm is this code, not another one.

The bound: A = ceil(S / 2) batches are opened ahead and D = S - A steps are left to a slow group.
Slot j opens at version j // batch_size - A at the earliest and is taken by step j // batch_size +
1 + D at the latest, so what is trained on at step t (version t - 1) is at most A + D = S old. A
step never has to take more than `batch_size`: all slots before its window were taken in time.

Source: bounded staleness over a buffer of groups, as in AReaL (arXiv:2505.24298, section 5.1).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from trainer.errors import CheckpointError
from trainer.rollouts.collect import Collector
from trainer.rollouts.wave import Rollout, Wave
from trainer.types import Task

DrawnGroup = tuple[Rollout, ...]
"""All rollouts of one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How groups are streamed."""

    batch_size: int
    """Groups per step."""
    max_staleness_steps: int = 0
    """Versions between the weights that began a trajectory and those that learn from it."""
    keeps: Callable[[DrawnGroup], bool] = lambda _group: True
    """Whether a group is worth a place in a batch; where not, its slot draws another task."""
    max_draws: int = 1
    """Tasks that one slot may draw; the last one is kept as it is."""

    @property
    def ahead(self) -> int:
        """Batches opened before the step that takes them."""
        return -(-self.max_staleness_steps // 2)

    @property
    def slack(self) -> int:
        """Steps by which a slow group may be late."""
        return self.max_staleness_steps - self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a step takes from the stream."""

    groups: tuple[DrawnGroup, ...]
    """To learn from, in the order of their slots."""
    dropped: tuple[DrawnGroup, ...] = ()
    """Rolled out for these slots too, and not kept."""
    num_ahead: int = 0
    """Groups that later steps will take, finished or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """A task with the ordinal of the draw that it came in: with it goes every seed of its group."""

    task: Task
    ordinal: int


@dataclass(slots=True)
class _Slot:
    draw: _Draw
    dropped: list[DrawnGroup] = field(default_factory=list)
    filling: asyncio.Task[DrawnGroup] | None = None

    @property
    def is_filled(self) -> bool:
        """Raises what the rollouts met."""
        done = self.filling is not None and self.filling.done()
        return done and self.group is not None

    @property
    def group(self) -> DrawnGroup:
        if self.filling is None:
            raise AssertionError("a slot is filled from its first moment on")
        return self.filling.result()


class GroupStream:
    """Opens slots, keeps their rollouts going, and hands out a batch per step."""

    def __init__(
        self,
        collector: Collector,
        draw_tasks: Callable[[], Sequence[Task]],
        wave_of: Callable[[int], Wave],
        options: StreamOptions,
    ) -> None:
        """`draw_tasks` gives one batch of tasks; `wave_of` the wave of such a draw."""
        self._collector = collector
        self._draw_tasks = draw_tasks
        self._wave_of = wave_of
        self._options = options
        self._drawn: deque[_Draw] = deque()
        self._slots: dict[int, _Slot] = {}
        self._num_opened = 0
        self._num_draws = 0

    @property
    def batch_size(self) -> int:
        """Groups per step."""
        return self._options.batch_size

    async def take(self, step: int) -> Taken:
        """Return the groups of a step; the rollouts of later steps go on meanwhile.

        Raises:
            TrainerError: a rollout met a failure that is not its environment's.
        """
        options = self._options
        self._open_until((step + options.ahead) * options.batch_size)
        window = (step - options.slack) * options.batch_size
        overdue = {number for number in self._slots if number < window}
        while True:
            filled = [number for number, slot in self._slots.items() if slot.is_filled]
            if len(filled) >= options.batch_size and overdue.issubset(filled):
                break
            filling = [slot.filling for slot in self._slots.values() if slot.filling is not None]
            under_way = [each for each in filling if not each.done()]
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        # A step's overdue slots are its oldest ones, so they are among the chosen.
        chosen = [self._slots.pop(number) for number in sorted(filled)[: options.batch_size]]
        return Taken(
            groups=tuple(slot.group for slot in chosen),
            dropped=tuple(group for slot in chosen for group in slot.dropped),
            num_ahead=len(self._slots),
        )

    def state(self) -> dict[str, JsonValue]:
        """Return the draws and the tasks drawn that no step has taken; `restore` goes on there."""
        drawn = [slot.draw for _, slot in sorted(self._slots.items())] + list(self._drawn)
        pending: list[JsonValue] = [[draw.ordinal, draw.task.key] for draw in drawn]
        return {"num_draws": self._num_draws, "pending": pending}

    def restore(self, step: int, state: Mapping[str, JsonValue], tasks: Mapping[str, Task]) -> None:
        """Go on after `step`; the groups that were pending are rolled out again.

        Raises:
            CheckpointError: the state is malformed, or its tasks are not among `tasks`.
        """
        num_draws, pending = state.get("num_draws"), state.get("pending")
        if not isinstance(num_draws, int) or not isinstance(pending, list):
            raise CheckpointError("the state of the rollout stream is malformed")
        for entry in pending:
            match entry:
                case [int(ordinal), str(key)] if key in tasks:
                    self._drawn.append(_Draw(task=tasks[key], ordinal=ordinal))
                case _:
                    raise CheckpointError(f"the checkpoint's pending task {entry!r} is not known")
        self._num_opened = step * self._options.batch_size
        self._num_draws = num_draws

    async def close(self) -> None:
        """Cancel what is under way."""
        filling = [slot.filling for slot in self._slots.values() if slot.filling is not None]
        for each in filling:
            each.cancel()
        await asyncio.gather(*filling, return_exceptions=True)
        self._slots.clear()

    def _open_until(self, end: int) -> None:
        while self._num_opened < end:
            slot = _Slot(self._next_draw())
            slot.filling = asyncio.create_task(self._fill(slot))
            self._slots[self._num_opened] = slot
            self._num_opened += 1

    async def _fill(self, slot: _Slot) -> DrawnGroup:
        while True:
            draw = slot.draw
            group = await self._collector.group(draw.task, self._wave_of(draw.ordinal))
            if len(slot.dropped) + 1 >= self._options.max_draws or self._options.keeps(group):
                return group
            slot.dropped.append(group)
            slot.draw = self._next_draw()

    def _next_draw(self) -> _Draw:
        if not self._drawn:
            self._num_draws += 1
            tasks = self._draw_tasks()
            self._drawn.extend(_Draw(task=task, ordinal=self._num_draws) for task in tasks)
        return self._drawn.popleft()
