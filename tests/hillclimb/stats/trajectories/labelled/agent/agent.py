"""A scripted policy in one episode of a miniature app."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation, ConversationCall
from tests.hillclimb.stats.trajectories.labelled.agent.facts import CallFacts, Facts, Refusal, Says
from tests.hillclimb.stats.trajectories.labelled.agent.plan import Plan
from tests.hillclimb.stats.trajectories.labelled.agent.record import Record
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.agent.thought import NO_THOUGHT, Thought
from tests.hillclimb.stats.trajectories.labelled.envs.dialect import Dialect
from tests.hillclimb.stats.trajectories.labelled.envs.platform import Platform
from tests.hillclimb.stats.trajectories.labelled.material.lookups import lookups
from tests.hillclimb.stats.trajectories.labelled.material.musings import Musings
from tests.hillclimb.stats.trajectories.labelled.material.replies import NO_CALL_REPLIES

_UNGRADED = (StopReason.INFRA_ERROR, StopReason.NOT_STARTED)


class Agent:
    """The policy of a script: each method is a turn or a few of them.

    Args:
        plan: the expert's.
        start: the conversation before its first turn.
        platform: the environment, which was reset.
        dialect: that of the platform.
        title: of the row that the app got for this script.
        counts_tokens: the rollout is one of ours.
        rng: decides what the script leaves open.
        thinks: share of turns with a thought where the script names none.
    """

    def __init__(
        self,
        task: Task,
        plan: Plan,
        start: Conversation,
        platform: Platform,
        dialect: Dialect,
        *,
        title: str,
        counts_tokens: bool,
        rng: random.Random,
        thinks: float,
    ) -> None:
        self.task, self.plan, self.dialect, self.rng = task, plan, dialect, rng
        self.title = title
        self.marks_errors = counts_tokens
        self._platform, self._start, self._thinks = platform, start, thinks
        seen = [start.prompt, *start.env_variables.values()]
        self._record = Record(counts_tokens, seen)
        self._musings = Musings(rng)
        self._lookups = self._fresh_lookups()
        self.last_answer: str | None = None
        self._stop: StopReason | None = None
        self._score: float | None = None

    @property
    def facts(self) -> Facts:
        """What the script knows so far."""
        return self._record.facts

    @property
    def seen(self) -> str:
        """Everything that the policy has read."""
        return "\n".join(self._record.seen)

    @property
    def num_turns(self) -> int:
        return len(self._record.turns)

    def rows(self) -> list[dict[str, JsonValue]]:
        """Return the rows of the app's answer to the last call."""
        assert self._platform.native is not None
        return [json.loads(line) for line in self._platform.native.text.splitlines()]

    def identifier(self) -> str | int:
        """Return the name of the first thing in the app's last answer, which is its first field."""
        value = next(iter(self.rows()[0].values()))
        assert isinstance(value, str | int)
        return value

    def is_unknown(self, value: object) -> bool:
        """Tell whether nothing that the policy has read contains the value, in whatever case."""
        return str(value).casefold() not in self.seen.casefold()

    def lookup(self) -> Step:
        """Return a call that reads something and was not made yet."""
        return next(self._lookups)

    def muse(self, sentences: int = 1, joint: str = " ") -> Thought:
        """Return a thought of new sentences."""
        return self._musings.thought(sentences, joint)

    async def turn(
        self,
        *steps: Step,
        thought: Thought | None = None,
        text: str = "",
        is_done: bool = False,
        says: Says = Says.NOTHING,
    ) -> None:
        """Take a turn that makes these calls; `thought` None: one or none, by chance."""
        thought = self._thought() if thought is None else thought
        calls = [await self._call(step) for step in steps]
        self._record.add_turn(thought, text, calls, is_done=is_done, says=says)
        if is_done:
            await self.stop(StopReason.DONE)

    async def say(
        self,
        text: str,
        *,
        thought: Thought | None = None,
        reply: str | None = None,
        says: Says = Says.NOTHING,
    ) -> None:
        """Take a turn without a call and without `<done>`."""
        thought = self._thought() if thought is None else thought
        reply = reply or self.rng.choice(NO_CALL_REPLIES)
        self._record.add_turn(thought, text, reply=reply, says=says)

    async def cut(self, thought: Thought, text: str = "") -> None:
        """Take a turn that uses up its own token limit, and stop."""
        self._record.add_turn(thought, text)
        await self.stop(StopReason.MAX_GENERATE_LENGTH)

    async def unreadable(self, answer: str, *, text: str = "") -> None:
        """Take a turn whose call cannot be read."""
        call = ConversationCall(name=None, answer=answer, is_error=self.marks_errors)
        facts = CallFacts(answered=True, refusal=Refusal.ARGUMENTS, is_readable=False)
        self._record.add_call(call, facts)
        self._record.add_turn(self._thought(), text, [call])

    async def look(self, times: int = 1) -> None:
        """Read something new in each turn."""
        for _ in range(times):
            await self.turn(self.lookup())

    async def advance(self, times: int = 1, *, text: str = "") -> None:
        """Make the expert's next calls, one per turn."""
        for _ in range(times):
            await self.turn(self.next_call, text=text)
            self.accept()

    async def solve(self, *, but: int = 0) -> None:
        """Make all of the expert's calls that are left, but for the last few."""
        while self.plan.left > but:
            await self.advance()

    @property
    def next_call(self) -> Step:
        """The expert's next call."""
        assert self.plan.next_call is not None
        return self.plan.next_call

    def accept(self) -> None:
        """Let the expert go on with the app's answer to the last call of its plan."""
        assert self._platform.native is not None
        self.plan.accept(self._platform.native)

    async def finish(self, text: str = "", says: Says = Says.NOTHING) -> None:
        """Say `<done>`, with a thought or without."""
        await self.turn(text=text, is_done=True, says=says)

    async def stop(self, reason: StopReason) -> None:
        """End the rollout; the app's verifier grades."""
        self._stop = reason
        if reason is StopReason.POLICY_DEADLINE:
            self._score = 0.0
        elif reason not in _UNGRADED:
            self._score = (await self._platform.score()).score

    def conversation(self) -> Conversation:
        """Return the rollout, which has stopped."""
        assert self._stop is not None
        return self._record.conversation(self._start, self._stop, self._score)

    async def _call(self, step: Step) -> ConversationCall:
        scripted = step.answer
        if scripted is not None:
            self._platform.answer_next(scripted)
        named = step.arguments if step.is_verbatim else self.dialect.write(step.arguments)
        result = await self._platform.call(step.name, named)
        native = self._platform.native
        if native is not None:
            is_refused = step.refusal is not None and scripted is None
            assert native.is_error == is_refused, f"{step}: {native.text}"
        is_silent = scripted is not None and scripted.text is None
        self.last_answer = None if is_silent else result.text
        call = ConversationCall(
            name=step.name,
            arguments=named,
            answer=self.last_answer,
            is_error=result.is_error and self.marks_errors,
        )
        facts = CallFacts(
            answered=bool((self.last_answer or "").strip()),
            refusal=step.refusal,
            invents=any(
                step.is_verbatim or self.dialect.spell(name) != name for name in step.invented
            ),
        )
        self._record.add_call(call, facts)
        return call

    def _thought(self) -> Thought:
        return self.muse() if self.rng.random() < self._thinks else NO_THOUGHT

    def _fresh_lookups(self) -> Iterator[Step]:
        for call in lookups(self.task, self.rng):
            if call not in self.plan.calls:
                yield Step.of(call)
