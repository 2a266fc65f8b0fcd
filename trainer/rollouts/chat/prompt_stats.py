"""Statistics of an environment's prompts: digest, token counts, and some prompts in full."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task
from hillclimb.protocol.environments import EnvPrompts, PromptText, TokenSpread
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import prompt_hash
from trainer.rollouts.chat.wording import OWN_WORDING, Wording

LOOK_AHEAD = 6
"""First characters of the tools' text, which may decide whether a tokenizer cuts before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStats:
    """The prompts of one environment, and some of them in full."""

    prompts: EnvPrompts
    texts: tuple[PromptText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """Wording of the prompts, number of tasks whose tokens are counted, and a callback for each."""

    number: int | None = None
    """None: all."""
    on_counted: Callable[[], None] = lambda: None
    """Called after each task; its exceptions end the counting."""
    wording: Wording = OWN_WORDING
    """The text around tools and task."""


EVERY_TASK = CountOptions()


def compute_prompt_stats(
    tasks: Sequence[Task],
    tools: Sequence[ToolSpec],
    chat: Chat,
    *,
    limit: int,
    counting: CountOptions = EVERY_TASK,
    text_keys: Iterable[str] = (),
) -> PromptStats:
    """Render the prompts of all `tasks` of one environment, which share their tools.

    `limit`: longest prompt (tokens). `counting`: number of tasks whose tokens are counted, spread
    evenly. `text_keys`: tasks whose prompts are returned in full; if empty, the longest of those
    counted.
    """
    made = _TemplateReader if chat.lists_tools else _Reader
    reader = made(chat=chat, tools=tools, wording=counting.wording, limit=limit)
    in_order = sorted(tasks, key=lambda task: task.key)
    digest = hashlib.sha256()
    for task in in_order:
        digest.update(reader.hash(task).encode())
    counted: list[_Counts] = []
    for task in _spread(in_order, counting.number):
        counted.append(reader.count(task))
        counting.on_counted()
    longest = max(counted, key=lambda each: each.total)
    keys = set(text_keys) or {longest.task.key}
    prompts = EnvPrompts(
        digest=digest.hexdigest(),
        num_tasks=len(in_order),
        num_tools=len(tools),
        num_counted=len(counted),
        num_too_long=sum(each.total > limit for each in counted),
        system_tokens=_spread_of([each.system - each.tools for each in counted]),
        tools_tokens=_spread_of([each.tools for each in counted]),
        task_tokens=_spread_of([each.prompt for each in counted]),
        total_tokens=_spread_of([each.total for each in counted]),
        longest_task=longest.task.key,
    )
    texts = tuple(reader.show(task) for task in in_order if task.key in keys)
    return PromptStats(prompts=prompts, texts=texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Tokens of one task's prompt; `system` includes `tools`."""

    task: Task
    system: int
    tools: int
    prompt: int
    total: int


class _Reader:
    """Reads prompts as the agents of one environment do.

    Nearly all of a prompt are the lines that describe the tools, and tasks share them: they are
    encoded once, where the tokenizer cuts between them and a task's own lines, and else once for
    each system message.
    """

    def __init__(
        self, *, chat: Chat, tools: Sequence[ToolSpec], wording: Wording, limit: int
    ) -> None:
        self._chat = chat
        self._wording = wording
        self._tools = tools
        self._tools_text = wording.render_tools(tools)
        self._num_tools = chat.num_tokens(self._tools_text)
        self._limit = limit
        self._shared = wording.shared_part(self._tools_text)
        """Of every system message."""
        self._num_ending: int | None = None
        self._cuts: dict[tuple[str, str], bool] = {}
        """Whether the tokenizer cuts between a beginning, by its hash, and the start of a text."""
        self._systems: dict[bytes, int] = {}
        """Tokens of whole system messages, by their hash."""

    def system(self, task: Task) -> str:
        return self._wording.compose_system(task, self._tools_text)

    def hash(self, task: Task) -> str:
        return prompt_hash(self.system(task), task.prompt, self._wording.version)

    def count(self, task: Task) -> _Counts:
        system = self._count_system(self.system(task))
        prompt = self._count_message("user", task.prompt)
        return _Counts(
            task=task,
            system=system - self._count_message("system", ""),
            tools=self._num_tools,
            prompt=prompt - self._count_message("user", ""),
            total=system + prompt + len(self._chat.open_turn_ids),
        )

    def _count_system(self, text: str) -> int:
        beginning, shared, rest = text.partition(self._shared)
        if rest.startswith("\n"):
            return self._count_after(beginning + shared + "\n", rest[1:])
        if rest or not shared or not self._chat.cuts_between(beginning, shared[:LOOK_AHEAD]):
            return self._count_whole(text)
        own = self._count_message("system", beginning)
        if self._num_ending is None:
            self._num_ending = self._count_whole(text) - own
        return own + self._num_ending

    def _count_after(self, beginning: str, own: str) -> int:
        """Count a message whose lines of the task's own come last."""
        key = (hashlib.sha256(beginning.encode()).hexdigest(), own[:LOOK_AHEAD])
        if key not in self._cuts:
            self._cuts[key] = self._chat.cuts_between(beginning, own[:LOOK_AHEAD])
        if not self._cuts[key]:
            return self._count_whole(beginning + own)
        return self._count_whole(beginning) + self._chat.num_tokens(own)

    def _count_whole(self, text: str) -> int:
        key = hashlib.sha256(text.encode()).digest()
        if key not in self._systems:
            self._systems[key] = self._count_message("system", text)
        return self._systems[key]

    def _count_message(self, role: str, text: str) -> int:
        return len(self._chat.encode_message(role, text))

    def show(self, task: Task) -> PromptText:
        counts = self.count(task)
        ids = self._chat.encode_prompt(task, self._tools, self._wording)
        return PromptText(
            env_key=task.env_key,
            task_key=task.key,
            system=self.system(task),
            task=self._wording.compose_first(task),
            text=self._chat.decode(ids),
            system_tokens=counts.system - counts.tools,
            tools_tokens=counts.tools,
            task_tokens=counts.prompt,
            total_tokens=counts.total,
            is_too_long=counts.total > self._limit,
        )


class _TemplateReader(_Reader):
    """Reads prompts whose tools the chat template lists: `NativeChat` encodes long parts once."""

    def hash(self, task: Task) -> str:
        system = f"{self._around[0]}\0{self.system(task)}"
        return prompt_hash(system, self._wording.compose_first(task), self._wording.version)

    def count(self, task: Task) -> _Counts:
        tools = self._around[1]
        return _Counts(
            task=task,
            system=self._chat.num_tokens(self.system(task)) + tools,
            tools=tools,
            prompt=self._chat.num_tokens(self._wording.compose_first(task)),
            total=len(self._chat.encode_prompt(task, self._tools, self._wording)),
        )

    @cached_property
    def _around(self) -> tuple[str, int]:
        """The prompt of nothing, as text, and how many of its tokens the tools are."""
        with_tools, without = (
            self._chat.encode_opening("", "", each) for each in (self._tools, ())
        )
        return self._chat.decode(with_tools), len(with_tools) - len(without)


def _spread(tasks: Sequence[Task], number: int | None) -> Sequence[Task]:
    """Return so many tasks, evenly spread; all of them for None."""
    if number is None or number >= len(tasks):
        return tasks
    return [tasks[index * len(tasks) // number] for index in range(number)]


def _spread_of(numbers: Sequence[int]) -> TokenSpread:
    return TokenSpread(min=min(numbers), median=median(numbers), max=max(numbers))
