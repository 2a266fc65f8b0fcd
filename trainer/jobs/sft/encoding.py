"""Demonstrations as tokens, in the form in which rollouts of the same run see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hillclimb.environment.base import ToolCall, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from trainer.algo.sequences import TrainingSequence
from trainer.errors import DataError
from trainer.jobs.sft.demonstration import Demonstration, DemonstrationMessage
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.styles.base import PromptStyle


def imitated(
    token_ids: Sequence[int], action_mask: Sequence[bool], prompt_length: int
) -> TrainingSequence:
    """Return tokens as a sequence to imitate, up to the last one that counts.

    Behaviour log-probs and advantage are those of nobody: cross-entropy reads neither.
    """
    end = max(index for index, counts in enumerate(action_mask) if counts) + 1
    return TrainingSequence(
        token_ids=tuple(token_ids[:end]),
        action_mask=tuple(action_mask[:end]),
        logprobs=(0.0,) * end,
        prompt_length=prompt_length,
        advantage=1.0,
        temperature=1.0,
    )


class Encoder:
    """Encodes demonstrations with a run's chat format and prompt style.

    Args:
        tools: of each environment, for demonstrations that name none.
    """

    def __init__(
        self, chat: Chat, style: PromptStyle, tools: Mapping[str, Sequence[ToolSpec]]
    ) -> None:
        self._chat = chat
        self._style = style
        self._tools = tools

    def encode(self, demonstration: Demonstration, env_key: str) -> TrainingSequence:
        """Return a demonstration's tokens: those of the assistant count, its end markers too."""
        token_ids = list(self._prompt(demonstration, env_key))
        prompt_length, mask = len(token_ids), [False] * len(token_ids)
        first = 2 if demonstration.has_system else 1
        for ids, is_own in self._turns(demonstration.messages[first:]):
            token_ids += ids
            mask += [is_own] * len(ids)
        return imitated(token_ids, mask, prompt_length)

    def _prompt(self, demonstration: Demonstration, env_key: str) -> tuple[int, ...]:
        messages = demonstration.messages
        tools: Sequence[ToolSpec] = [
            ToolSpec(name=t.name, description=t.description, parameters=t.parameters)
            for t in demonstration.tools or ()
        ]
        if demonstration.has_system:
            system, prompt = (message.content or "" for message in messages[:2])
            return self._chat.encode_opening(system, prompt, tools)
        if demonstration.tools is None:
            tools = self._tools.get(env_key, ())
        task = Task(
            key="demonstration",
            env_key=env_key,
            prompt=messages[0].content or "",
            template="demonstration",
            difficulty=None,
            env_variables=demonstration.env_variables,
        )
        return self._chat.encode_prompt(task, tools, self._style.wording)

    def _turns(
        self, messages: Sequence[DemonstrationMessage]
    ) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Yield the ids of the turns and of what is between, and whether they are the assistant's.

        The end marker of a turn is a part of it.
        """
        results: list[ToolResult] = []
        for message in messages:
            if message.role == "tool":
                results.append(ToolResult(text=message.content or "", is_error=message.is_error))
                continue
            if results:
                yield self._results(results), False
                results = []
            if message.role == "assistant":
                yield self._chat.encode_turn(self._text(message)), True
            else:
                yield self._chat.encode_reply(message.content or ""), False
        if results:
            yield self._results(results), False

    def _results(self, results: Sequence[ToolResult]) -> tuple[int, ...]:
        return self._chat.encode_results(self._style.rules.render_results(results))

    def _text(self, message: DemonstrationMessage) -> str:
        """Return an assistant's message as text, its calls after its words.

        Raises:
            DataError: the chat template has no such turn.
        """
        functions = (each.function for each in message.tool_calls)
        calls = [ToolCall(name=each.name, arguments=each.arguments) for each in functions]
        try:
            return self._chat.turn_text(message.content or "", calls)
        except ValueError as fault:
            raise DataError(
                f"a demonstration has a turn that cannot be written: {fault}"
            ) from fault
