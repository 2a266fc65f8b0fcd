"""The record of a rollout: turns, what the policy has seen, and the facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import (
    Conversation,
    ConversationCall,
    ConversationTurn,
)
from tests.hillclimb.stats.trajectories.labelled.agent.facts import CallFacts, Facts, Says
from tests.hillclimb.stats.trajectories.labelled.agent.seen import identifiers, is_seen
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.agent.tokens import count, count_call


@dataclass(slots=True)
class Record:
    """Turns and facts so far."""

    counts_tokens: bool
    seen: list[str]
    """Prompt and variables, then answers and replies."""
    turns: list[ConversationTurn] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)

    def add_call(self, call: ConversationCall, facts: CallFacts) -> None:
        """Add the facts of a call; check what the script says about its identifiers."""
        unseen = [value for value in identifiers(call.arguments) if not is_seen(value, self.seen)]
        assert bool(unseen) == facts.invents, f"{call}: {unseen} not seen"
        self.facts.calls.append(facts)

    def add_turn(
        self,
        thought: Thought,
        text: str,
        calls: Sequence[ConversationCall] = (),
        *,
        says: Says = Says.NOTHING,
        is_done: bool = False,
        reply: str | None = None,
    ) -> None:
        """Add a turn, and see the answers to it."""
        thinking = count(thought.text) + 2 if thought.sentences else 0
        sampled = thinking + count(text) + sum(map(count_call, calls)) + is_done + 1
        turn = ConversationTurn(
            thinking=thought.text,
            text=text,
            calls=tuple(calls),
            says_done=is_done,
            reply=reply,
            num_tokens=sampled if self.counts_tokens else None,
            num_thinking_tokens=thinking if self.counts_tokens else None,
        )
        self.turns.append(turn)
        self.facts.thoughts.append(thought)
        self.facts.says = says
        self.seen += [call.answer for call in calls if call.answer]
        self.seen += [reply] if reply else []

    def conversation(
        self, start: Conversation, stop: StopReason, score: float | None
    ) -> Conversation:
        """Return the finished rollout that began with the prompt of `start`."""
        return Conversation(
            task_key=start.task_key,
            env_key=start.env_key,
            prompt=start.prompt,
            env_variables=start.env_variables,
            turns=tuple(self.turns),
            stop_reason=stop,
            score=score,
            passed=None if score is None else score >= 1.0,
        )
