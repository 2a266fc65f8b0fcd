"""Tries of a teacher model at a task, with the same information as the policy."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from hillclimb.environment.base import SupportsTranscript, ToolResult
from hillclimb.environment.task import Task
from hillclimb.protocol.validation import Reason, TeacherTries, TeacherUse
from hillclimb.spec.hosts import OPERATORS_HOSTS
from hillclimb.spec.preflight.preflight import TeacherSpec
from trainer.attempt.destinations import allowed_hosts
from trainer.errors import SpecError
from trainer.jobs.validate.anthropic import AnthropicTeacher, anthropic_headers
from trainer.jobs.validate.conversation import (
    Call,
    Message,
    Result,
    Results,
    Teacher,
    TeacherReply,
    User,
)
from trainer.jobs.validate.endpoint import NOTHING, Endpoint
from trainer.jobs.validate.episodes import EpisodeRunner, OpenEpisode
from trainer.jobs.validate.errors import (
    AnswerCut,
    NotAnswered,
    TeacherBudgetExhausted,
    TeacherUnavailable,
)
from trainer.jobs.validate.openai import OpenAITeacher, openai_headers

NO_OBJECT = "the arguments are no JSON object"


@dataclass(frozen=True, slots=True)
class TeacherResult:
    """A teacher's tries at one task, and the reason of the last unknown one."""

    tries: TeacherTries
    reason: Reason | None = None
    detail: str | None = None


@dataclass(slots=True, kw_only=True)
class TeacherSolver:
    """Lets a teacher try tasks; one per run."""

    teacher: Teacher
    spec: TeacherSpec
    episodes: EpisodeRunner
    pass_threshold: float
    slots: asyncio.Semaphore
    """Bounds concurrent tries."""
    exhausted: TeacherBudgetExhausted | None = None
    """Set once no more requests may be sent: no environment is started for the teacher then."""

    async def solve(self, task: Task) -> TeacherResult:
        """Let the teacher try a task until it passes or the tries are used up.

        Raises:
            SpecError: the endpoint rejects the first request.
        """
        failed = unknown = 0
        reason: Reason | None = None
        detail: str | None = None
        while failed + unknown < self.spec.n:
            try:
                async with self.slots:
                    score = await self._run_episode(task)
            except NotAnswered as error:
                reason = _reason(error)
                unknown, detail = unknown + 1, str(error)
                continue
            if score >= self.pass_threshold:
                return TeacherResult(TeacherTries(passed=1, failed=failed, unknown=unknown))
            failed += 1
        return TeacherResult(TeacherTries(failed=failed, unknown=unknown), reason, detail)

    async def _run_episode(self, task: Task) -> float:
        if self.exhausted is not None:
            raise self.exhausted
        try:
            return await self.episodes.run(task, self._try)
        except TeacherBudgetExhausted as error:
            self.exhausted = error
            raise

    async def _try(self, episode: OpenEpisode) -> float:
        """Return the score of one episode; 0 if it exceeds `max_turns`.

        Raises:
            AnswerCut: an answer was cut off, and the episode does not pass.
        """
        conversation: list[Message] = [User(episode.task.prompt)]
        has_ended = await self._converse(episode, conversation)
        if has_ended and isinstance(episode.env, SupportsTranscript):
            episode.env.set_transcript([_transcript_entry(message) for message in conversation])
        score = await episode.score() if has_ended else 0.0
        cuts = [m.cut for m in conversation if isinstance(m, TeacherReply) and m.cut]
        if cuts and score < self.pass_threshold:
            raise AnswerCut(cuts[0])
        return score

    async def _converse(self, episode: OpenEpisode, conversation: list[Message]) -> bool:
        """Let the teacher act until it is done; False if its turns are used up before."""
        system = system_prompt(episode.task)
        for _ in range(self.spec.max_turns):
            answer = await self.teacher.answer(system, conversation, episode.tools)
            conversation.append(answer)
            results, has_ended = await _act(episode, answer)
            if has_ended or not answer.calls:
                return True
            conversation.append(Results(tuple(results)))
        return False


def _reason(error: NotAnswered) -> Reason:
    if isinstance(error, AnswerCut):
        return Reason.TEACHER_CUT_OFF
    is_endpoint = isinstance(error, TeacherUnavailable)
    return Reason.TEACHER_UNAVAILABLE if is_endpoint else Reason.NOT_ANSWERED


def make_teacher(
    spec: TeacherSpec, environ: Mapping[str, str], used: TeacherUse = NOTHING
) -> tuple[Teacher, Endpoint]:
    """Make the teacher of a spec, and the endpoint to close at the end.

    `used` is the use of earlier attempts of the run: they share one budget.

    Raises:
        SpecError: the variable with the key is not set, or that of allowed hosts not readable.
    """
    key = None
    if spec.api_key_env is not None:
        key = environ.get(spec.api_key_env)
        if not key:
            raise SpecError(
                f"validation.teacher.api_key_env names {spec.api_key_env}, which is not set in the"
                f" runner's environment: set it there, and its host in {OPERATORS_HOSTS}, and start"
                " the runner again, or name a secret of the project for it"
            )
    headers = anthropic_headers(key) if spec.type == "anthropic" else openai_headers(key)
    allowed = allowed_hosts(environ)
    endpoint = Endpoint(spec=spec, headers=headers, secret=key, used=used, allowed=allowed)
    teacher = AnthropicTeacher if spec.type == "anthropic" else OpenAITeacher
    return teacher(endpoint), endpoint


def system_prompt(task: Task) -> str:
    """Return the teacher's system prompt; the tools are sent by the protocol's own field."""
    lines = [f"You are an agent working in the app {task.env_key}."]
    lines += [f"{name}: {value}" for name, value in sorted(task.env_variables.items())]
    lines.append("Use the tools. When the task is complete, answer without a tool call.")
    return "\n".join(lines)


async def _act(episode: OpenEpisode, answer: TeacherReply) -> tuple[list[Result], bool]:
    """Make the calls of an answer in order, up to one that ends the episode."""
    results: list[Result] = []
    for call in answer.calls:
        result = await _make_call(episode, call)
        results.append(Result(id=call.id, text=result.text, is_error=result.is_error))
        if result.ends_episode:
            return results, True
    return results, False


async def _make_call(episode: OpenEpisode, call: Call) -> ToolResult:
    if call.arguments is None:
        return ToolResult(text=NO_OBJECT, is_error=True)
    return await episode.call(call.name, call.arguments)


def _transcript_entry(message: Message) -> dict[str, str]:
    match message:
        case User(text):
            return {"role": "user", "content": text}
        case TeacherReply(text, _):
            return {"role": "assistant", "content": text}
        case Results(results):
            return {"role": "user", "content": "\n".join(result.text for result in results)}
