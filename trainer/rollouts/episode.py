"""Episode: the policy acts in one environment until a stop reason, then the verifier grades.

After too many turns or tokens `environment.grade_unfinished` decides between the verifier and 0.0.
A rollout that ran out of time while the policy was sampled has no grade, or 0.0
(`environment.grade_late`): by the verifier its score would depend on the clock. A failure of the
environment is raised as a `RolloutError`, which only `worker.py` turns into data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.environment.base import (
    Env,
    Grade,
    SupportsTranscript,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from hillclimb.environment.errors import (
    EnvUnavailable,
    NoPrompt,
    PromptTooLong,
    RolloutDeadline,
    RolloutError,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.environment.prompt import with_prompt_of
from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import StopReason
from trainer.engines.admission import AdmitsRollouts, CacheClaim
from trainer.engines.base import Engine
from trainer.errors import EngineError, TrainerError
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.parsing import MalformedCall, ParsedTurn
from trainer.rollouts.chat.stop_text import cut_at
from trainer.rollouts.chat.thinking import count_thinking_tokens
from trainer.rollouts.limits.budget import PolicyTimeUp, TimeBudget
from trainer.rollouts.limits.liveness import Request, refuse_dead_engine
from trainer.rollouts.seeds import derive_seed
from trainer.rollouts.styles.base import EpisodeCrash, PromptStyle
from trainer.rollouts.styles.own import OWN_STYLE
from trainer.rollouts.transcript import Transcript
from trainer.types import Sample, SamplingParams, Turn

_FAILED = Grade(score=0.0)
SAMPLING_LATE = "sampling_late"
"""Reason of a missing grade: the engines were too slow for the rollout's time."""
_FINISHED = (StopReason.DONE, StopReason.ENV_ENDED)
"""Stop reasons after which the verifier always grades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSampling:
    """Sampling parameters of one rollout's turns."""

    temperature: float
    seed: int
    """Seed of the rollout; each turn derives its own from it."""
    session: str
    prefix_key: str
    top_p: float = 1.0
    is_evaluation: bool = False
    returns_routes: bool = False
    """Record the experts of every token; see `RolloutRequest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParts:
    """The policy's side of an episode: engine, chat format and prompt style."""

    engine: Engine
    chat: Chat
    style: PromptStyle = OWN_STYLE


class Episode:
    """One episode; `transcript` has its turns and tokens also after an error."""

    def __init__(
        self,
        task: Task,
        env: Env,
        budget: TimeBudget,
        policy: PolicyParts,
        transcript: Transcript,
    ) -> None:
        self._transcript = transcript
        self._budget = budget
        self._env = env
        self._engine = policy.engine
        self._chat = policy.chat
        self._wording, self._rules = policy.style.wording, policy.style.rules
        self._task = task
        self._tools: Sequence[ToolSpec] = ()
        self._limits = budget.limits
        self._num_granted = 0

    async def run(self, draw: TurnSampling) -> tuple[Grade, StopReason]:
        """Run the episode to its end and grade it.

        Raises:
            RolloutError: the environment or its verifier failed, or the prompt is missing or above
                the input limit.
            EngineError: sampling failed, or the engine no longer responds.
        """
        try:
            self._tools = await self._reset()
            self._start()
            stop = self._transcript.stop_reason = await self._turns(draw)
            return (await self._grade() if self._may_grade(stop) else _FAILED), stop
        except PolicyTimeUp:
            return self._grade_of_late(), StopReason.POLICY_DEADLINE
        except EpisodeCrash as crash:
            grade = Grade(score=0.0, reason=crash.code, detail=str(crash))
            return grade, StopReason.ENV_ENDED

    def _start(self) -> None:
        self._add_environments_prompt()
        tools, limit = self._tools, self._limits.max_input_length
        prompt = self._chat.encode_prompt(self._task, tools, self._wording)
        # A prompt that is too long is recorded too, for whoever looks into the trajectory.
        self._transcript.start(prompt)
        self._transcript.num_tools = len(tools)
        if len(prompt) > limit:
            raise PromptTooLong(
                f"the prompt of {self._task.key} has {len(prompt)} tokens, more than"
                f" rollout.max_input_length ({limit})"
            )

    def _add_environments_prompt(self) -> None:
        task = with_prompt_of(self._env, self._task)
        if not task.prompt:
            raise NoPrompt(f"{task.key} has no prompt, and its environment provided none")
        if task is not self._task:
            self._transcript.prompt = task.prompt
        self._task = task

    async def _turns(self, draw: TurnSampling) -> StopReason:
        for turn in range(self._limits.max_turns):
            if len(self._transcript.token_ids) > self._limits.max_input_length:
                return StopReason.MAX_INPUT_LENGTH
            with self._budget.turn():
                stop = await self._take_turn(draw, turn)
                if stop is None:
                    self._budget.refuse_late()
            if stop is not None:
                return stop
        return StopReason.MAX_TURNS

    async def _take_turn(self, draw: TurnSampling, turn: int) -> StopReason | None:
        sample = await self._sample(draw, turn)
        text = self._chat.decode(sample.token_ids)
        if not sample.stopped and not self._rules.plays_cut_turns:
            self._transcript.turns.append(_turn(text))
            return StopReason.MAX_GENERATE_LENGTH
        is_closed = sample.token_ids[-1:] == (self._chat.end_of_turn_id,)
        return await self._act(text, is_closed=is_closed)

    async def _act(self, text: str, *, is_closed: bool) -> StopReason | None:
        """Execute the calls of a turn and append the results; None if the episode continues.

        `is_closed`: the policy drew the end of the turn.
        """
        parsed = self._parse(text)
        results = await self._call_all(text, parsed)
        if any(result.ends_episode for result in results):
            return StopReason.ENV_ENDED
        if parsed.done:
            if not parsed.calls:
                self._transcript.turns.append(_turn(text))
            return StopReason.DONE
        if not results:
            answer = ToolResult(text=self._rules.no_call, is_error=True)
            self._transcript.turns.append(_turn(text, result=answer))
        messages = self._rules.render_results(results)
        self._transcript.append_text(self._chat.encode_results(messages, turn_closed=is_closed))
        return None

    def _parse(self, text: str) -> ParsedTurn:
        try:
            return self._rules.parse(text, self._tools)
        except EpisodeCrash:
            self._transcript.turns.append(_turn(text))
            raise

    async def _call_all(self, text: str, parsed: ParsedTurn) -> list[ToolResult]:
        """Execute the calls of one turn in order, up to one that ends the episode."""
        results: list[ToolResult] = []
        for index, call in enumerate(parsed.calls):
            result = await self._call(call)
            results.append(result)
            self._transcript.turns.append(
                _turn("" if index else text, call=call, result=result, call_index=index)
            )
            if result.ends_episode:
                break
        return results

    async def _reset(self) -> Sequence[ToolSpec]:
        late = EnvUnavailable("the reset took too long")
        async with self._budget.environment("reset", late, at_most_s=self._limits.reset_timeout_s):
            tools = await self._env.reset()
            if not tools:
                raise EnvUnavailable(f"{self._task.env_key} offers no tools")
        return tools

    async def _sample(self, draw: TurnSampling, turn: int) -> Sample:
        room = self._limits.max_sequence_length - len(self._transcript.token_ids)
        params = SamplingParams(
            temperature=draw.temperature,
            top_p=draw.top_p,
            max_new_tokens=min(self._limits.max_generate_length, room),
            stop_token_ids=self._chat.stop_ids(self._rules.stop_text),
            seed=derive_seed(draw.seed, turn),
            routes_from=self._transcript.num_routed if draw.returns_routes else None,
        )
        token_ids = tuple(self._transcript.token_ids)
        self._budget.refuse_late()
        await self._be_admitted(draw, len(token_ids) + params.max_new_tokens)
        request = Request.to(self._engine)
        try:
            async with self._budget.policy(lambda: request.was_restarted):
                sample = await self._sample_engine(token_ids, params, draw)
        except (PolicyTimeUp, RolloutDeadline):
            # A slow policy is graded 0.0; a turn lost by a hanging or restarted engine must not be.
            turn_s = self._limits.turn_timeout_s
            await refuse_dead_engine(request, token_ids, turn_s=turn_s)
            raise
        sample = cut_at(sample, self._rules.stop_text, self._chat)
        num_thinking = count_thinking_tokens(sample.token_ids, self._chat)
        self._transcript.append_sample(sample, num_thinking_tokens=num_thinking)
        return sample

    async def _be_admitted(self, draw: TurnSampling, num_tokens: int) -> None:
        """Wait until the engine's cache has room for `num_tokens` of this rollout."""
        num_shared = self._transcript.prompt_length if draw.prefix_key else 0
        num_own = num_tokens - num_shared
        if num_own <= self._num_granted or not isinstance(self._engine, AdmitsRollouts):
            return
        claim = CacheClaim(
            session=draw.session,
            group=draw.prefix_key,
            num_shared=num_shared,
            num_own=num_own,
            is_evaluation=draw.is_evaluation,
        )
        with self._budget.queued():
            self._num_granted = await self._engine.admit(claim)

    async def _sample_engine(
        self, token_ids: tuple[int, ...], params: SamplingParams, draw: TurnSampling
    ) -> Sample:
        """Sample one turn; an unexpected error is the engine's fault, never the environment's."""
        try:
            return await self._engine.sample(
                token_ids, params, session=draw.session, prefix_key=draw.prefix_key
            )
        except (TrainerError, RolloutError):
            raise
        except Exception as fault:
            raise EngineError(f"sampling failed: {type(fault).__name__}: {fault}") from fault

    async def _call(self, call: ToolCall | MalformedCall) -> ToolResult:
        if isinstance(call, MalformedCall):
            return ToolResult(text=call.problem, is_error=True)
        refusal = self._rules.refusal(call, self._tools)
        if refusal is not None:
            return refusal
        late = ToolTransport(f"{call.name} did not answer in time")
        limit_s = self._limits.call_timeout_s
        is_known = any(tool.name == call.name for tool in self._tools)
        async with self._budget.environment(
            "call", late, at_most_s=limit_s, label=call.name, reaches_server=is_known
        ):
            return await self._env.call(call.name, call.arguments)

    def _grade_of_late(self) -> Grade:
        """No grade: time in an engine's queue and beside other requests is no fault of the policy.

        Its own tokens are limited, and a zero for the rest would punish long answers just when the
        engines are overloaded.
        """
        if self._limits.zero_if_late:
            return _FAILED
        num_sampled = sum(self._transcript.action_mask)
        detail = (
            f"{self._budget.policy_s:.1f} s of sampling gave {num_sampled} tokens in time: raise"
            " environment.trajectory_timeout_s or turn_timeout_s, or lower"
            " environment.max_concurrent_rollouts"
        )
        return Grade(score=None, reason=SAMPLING_LATE, detail=detail)

    def _may_grade(self, stop: StopReason) -> bool:
        if stop in _FINISHED:
            return True
        turns = self._transcript.turns
        return self._limits.grades_unfinished and self._rules.grades_unfinished(stop, turns)

    async def _grade(self) -> Grade:
        """Grade the state, even after the deadline: the episode itself ended in time."""
        if isinstance(self._env, SupportsTranscript) and self._rules.shows_transcript:
            self._env.set_transcript(self._transcript.conversation(self._task.prompt))
        async with self._budget.grading(VerifierUnavailable("the verifier took too long")):
            grade = self._rules.grade(await self._env.score())
        if grade.score is None:
            self._budget.record_missing_grade()
        return grade


def _turn(
    text: str,
    *,
    call: ToolCall | MalformedCall | None = None,
    result: ToolResult | None = None,
    call_index: int = 0,
) -> Turn:
    named = call if isinstance(call, ToolCall) else None
    return Turn(
        response=text,
        tool_name=named.name if named else None,
        tool_arguments=named.arguments if named else None,
        observation=result.text if result else None,
        is_error=result.is_error if result else False,
        call_index=call_index,
    )
