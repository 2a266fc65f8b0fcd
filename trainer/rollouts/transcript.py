"""The growing record of one rollout: exact tokens for training, turns for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, StopReason
from trainer.rollouts.chat.prompts import render_observation
from trainer.rollouts.operation import EnvOperation
from trainer.types import Routes, Sample, Trajectory, Turn, TurnTokens


@dataclass(slots=True)
class Transcript:
    """Token list and turns of a rollout in progress; `token_ids` is what the engine sees next."""

    token_ids: list[int] = field(default_factory=list)
    action_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    weight_versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    prompt_length: int = 0
    prompt: str = ""
    """The task's prompt, if the environment provided it or a part of it."""
    turn_tokens: list[TurnTokens] = field(default_factory=list)
    """One for each model turn begun; `turns` has one entry per call, so it may be longer."""
    num_tools: int = 0
    """Tools that the environment offered."""
    stop_reason: StopReason | None = None
    """The reason for the end of the turns, known before the grade."""
    operations: list[EnvOperation] = field(default_factory=list)
    """The operations on the environment, in order."""
    num_routed: int = 0
    """Tokens whose experts are known, from the first."""
    routes: list[Routes] = field(default_factory=list)
    """The experts of these tokens, sample by sample."""

    def start(self, prompt_ids: Sequence[int]) -> None:
        """Begin with the prompt."""
        self.append_text(prompt_ids)
        self.prompt_length = len(prompt_ids)

    def append_text(self, token_ids: Sequence[int]) -> None:
        """Append tokens the policy did not draw."""
        self.token_ids += token_ids
        self.action_mask += [False] * len(token_ids)
        self.logprobs += [0.0] * len(token_ids)
        self.weight_versions += [-1] * len(token_ids)

    @property
    def num_turns(self) -> int:
        """Model turns begun."""
        return len(self.turn_tokens)

    def append_sample(self, sample: Sample, *, num_thinking_tokens: int = 0) -> None:
        """Append exactly the tokens that were drawn; begins a model turn."""
        self.token_ids += sample.token_ids
        self.action_mask += [True] * len(sample.token_ids)
        self.logprobs += sample.logprobs
        self.weight_versions += sample.weight_versions
        self.turn_tokens.append(TurnTokens(len(sample.token_ids), num_thinking_tokens))
        if sample.routes is not None:
            # Of a sample that was cut at a text the engine knows more tokens than there are now.
            self.routes.append(sample.routes[: len(self.token_ids) - self.num_routed])
            self.num_routed += len(self.routes[-1])

    def conversation(self, prompt: str) -> list[dict[str, JsonValue]]:
        """Return the messages: the task, then model turns and observations in turn."""
        messages: list[dict[str, JsonValue]] = [{"role": "user", "content": prompt}]
        for turn in self.turns:
            if turn.response:
                messages.append({"role": "assistant", "content": turn.response})
            if turn.observation is not None:
                content = render_observation(turn.observation, is_error=turn.is_error)
                messages.append({"role": "user", "content": content})
        return messages

    def trajectory(
        self, task: Task, outcome: Outcome, stop_reason: StopReason, identity: RolloutIdentity
    ) -> Trajectory:
        """Return the finished trajectory.

        Environment text after the last drawn token is left out of the tokens (it teaches nothing,
        and may be longer than the model's positions); the turns still show it.
        """
        end = max(self.prompt_length, _end_of_actions(self.action_mask))
        return Trajectory(
            task=replace(task, prompt=self.prompt) if self.prompt else task,
            token_ids=tuple(self.token_ids[:end]),
            action_mask=tuple(self.action_mask[:end]),
            logprobs=tuple(self.logprobs[:end]),
            weight_versions=tuple(self.weight_versions[:end]),
            prompt_length=self.prompt_length,
            turns=tuple(self.turns),
            stop_reason=stop_reason,
            outcome=outcome,
            rollout_id=identity.rollout_id,
            sample_index=identity.sample_index,
            num_infra_retries=identity.num_infra_retries,
            turn_tokens=tuple(self.turn_tokens),
            routes=np.concatenate(self.routes) if self.routes else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutIdentity:
    """Identity of a rollout: id, sample index and number of retries."""

    rollout_id: str
    sample_index: int
    num_infra_retries: int


def _end_of_actions(action_mask: Sequence[bool]) -> int:
    for index in range(len(action_mask) - 1, -1, -1):
        if action_mask[index]:
            return index + 1
    return 0
