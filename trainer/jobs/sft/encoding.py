"""Demonstrations as tokens, in the form in which rollouts of the same run see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hillclimb.environment.base import ToolResult, ToolSpec
from hillclimb.environment.task import Task
from trainer.algo.sequences import TrainingSequence
from trainer.jobs.sft.demonstration import Demonstration, DemonstrationMessage
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import render_call
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
        for text, is_own in self._turns(demonstration.messages[first:]):
            ids = self._chat.encode_turn(text) if is_own else self._between(text)
            token_ids += ids
            mask += [is_own] * len(ids)
        return imitated(token_ids, mask, prompt_length)

    def _between(self, message: str) -> tuple[int, ...]:
        """Return the tokens after a turn, without its end marker, which the turn has drawn."""
        return self._chat.encode_reply(message)

    def _prompt(self, demonstration: Demonstration, env_key: str) -> tuple[int, ...]:
        messages = demonstration.messages
        if demonstration.has_system:
            return self._chat.encode_opening(messages[0].content or "", messages[1].content or "")
        tools = self._tools.get(env_key, ())
        if demonstration.tools is not None:
            tools = [
                ToolSpec(name=t.name, description=t.description, parameters=t.parameters)
                for t in demonstration.tools
            ]
        task = Task(
            key="demonstration",
            env_key=env_key,
            prompt=messages[0].content or "",
            template="demonstration",
            difficulty=None,
            env_variables=demonstration.env_variables,
        )
        return self._chat.encode_prompt(task, tools, self._style.wording)

    def _turns(self, messages: Sequence[DemonstrationMessage]) -> Iterator[tuple[str, bool]]:
        """Yield the texts of the turns, and whether the assistant wrote them."""
        results: list[ToolResult] = []
        for message in messages:
            if message.role == "tool":
                results.append(ToolResult(text=message.content or "", is_error=message.is_error))
                continue
            if results:
                yield self._style.rules.render_results(results), False
                results = []
            yield _text(message), message.role == "assistant"
        if results:
            yield self._style.rules.render_results(results), False


def _text(message: DemonstrationMessage) -> str:
    """Return a message as text, an assistant's calls after its words."""
    calls = [
        render_call(each.function.name, each.function.arguments) for each in message.tool_calls
    ]
    return "\n".join([*([message.content] if message.content else []), *calls])
