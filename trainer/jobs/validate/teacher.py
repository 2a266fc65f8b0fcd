"""Whether a teacher can solve a task, seeing only what the policy would see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from trainer.contract.preflight import TeacherSpec
from trainer.contract.validation import Reason, TeacherTries, TeacherUse
from trainer.envs.base import HearsConversation, ToolResult
from trainer.errors import SpecError
from trainer.types import Task
from trainer.validation.anthropic import AnthropicTeacher, anthropic_headers
from trainer.validation.conversation import Answer, Call, Message, Result, Results, Teacher, User
from trainer.validation.endpoint import NOTHING, Endpoint
from trainer.validation.errors import AnswerCut, AskingOver, NotAnswered, TeacherUnavailable
from trainer.validation.openai import OpenAITeacher, openai_headers
from trainer.validation.opening import Opened, Opener

NO_OBJECT = "the arguments are no JSON object"


@dataclass(frozen=True, slots=True)
class Lesson:
    """A teacher's tries at one task; where some are unknown, why the last of them is."""

    tries: TeacherTries
    reason: Reason | None = None
    detail: str | None = None


@dataclass(slots=True, kw_only=True)
class Lessons:
    """Gives tasks to a teacher; one per run."""

    teacher: Teacher
    spec: TeacherSpec
    opener: Opener
    pass_threshold: float
    free: asyncio.Semaphore
    """Tries at once."""
    over: AskingOver | None = None
    """Set once the teacher must not be asked any more: no environment is started for it then."""

    async def give(self, task: Task) -> Lesson:
        """Let the teacher try a task until it passes or the tries are used up.

        Raises:
            SpecError: the endpoint refuses us from the beginning.
        """
        failed = unknown = 0
        reason: Reason | None = None
        detail: str | None = None
        while failed + unknown < self.spec.n:
            try:
                async with self.free:
                    score = await self._graded(task)
            except NotAnswered as error:
                reason = _reason(error)
                unknown, detail = unknown + 1, str(error)
                continue
            if score >= self.pass_threshold:
                return Lesson(TeacherTries(passed=1, failed=failed, unknown=unknown))
            failed += 1
        return Lesson(TeacherTries(failed=failed, unknown=unknown), reason, detail)

    async def _graded(self, task: Task) -> float:
        if self.over is not None:
            raise self.over
        try:
            return await self.opener.repeated(task, self._try)
        except AskingOver as error:
            self.over = error
            raise

    async def _try(self, opened: Opened) -> float:
        """Return the grade of one episode; one that goes on for too many turns is graded 0.

        Raises:
            AnswerCut: an answer of it was not whole, and it does not pass.
        """
        conversation: list[Message] = [User(opened.task.prompt)]
        has_ended = await self._converse(opened, conversation)
        if has_ended and isinstance(opened.env, HearsConversation):
            opened.env.hear([_heard(message) for message in conversation])
        score = await opened.score() if has_ended else 0.0
        cuts = [each.cut for each in conversation if isinstance(each, Answer) and each.cut]
        if cuts and score < self.pass_threshold:
            raise AnswerCut(cuts[0])
        return score

    async def _converse(self, opened: Opened, conversation: list[Message]) -> bool:
        """Let the teacher act until it is done; False where its turns were used up before."""
        system = system_prompt(opened.task)
        for _ in range(self.spec.max_turns):
            answer = await self.teacher.answer(system, conversation, opened.tools)
            conversation.append(answer)
            results, has_ended = await _act(opened, answer)
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

    `used` is what earlier attempts of the run have asked: one budget is for all of them.

    Raises:
        SpecError: the variable that should hold the key is not set.
    """
    key = None
    if spec.api_key_env is not None:
        key = environ.get(spec.api_key_env)
        if not key:
            raise SpecError(
                f"validation.teacher.api_key_env names {spec.api_key_env}, which is not set in the"
                " runner's environment: set it there and start the runner again"
            )
    if spec.type == "anthropic":
        endpoint = Endpoint(spec=spec, headers=anthropic_headers(key), secret=key, used=used)
        return AnthropicTeacher(endpoint), endpoint
    endpoint = Endpoint(spec=spec, headers=openai_headers(key), secret=key, used=used)
    return OpenAITeacher(endpoint), endpoint


def system_prompt(task: Task) -> str:
    """Return what the teacher is told beside the task; the tools go by the protocol's own way."""
    lines = [f"You are an agent working in the app {task.env_key}."]
    lines += [f"{name}: {value}" for name, value in sorted(task.env_variables.items())]
    lines.append("Use the tools. When the task is complete, answer without a tool call.")
    return "\n".join(lines)


async def _act(opened: Opened, answer: Answer) -> tuple[list[Result], bool]:
    """Carry out the calls of an answer in order; one that ends the episode is the last."""
    results: list[Result] = []
    for call in answer.calls:
        found = await _carry_out(opened, call)
        results.append(Result(id=call.id, text=found.text, is_error=found.is_error))
        if found.ends_episode:
            return results, True
    return results, False


async def _carry_out(opened: Opened, call: Call) -> ToolResult:
    if call.arguments is None:
        return ToolResult(text=NO_OBJECT, is_error=True)
    return await opened.call(call.name, call.arguments)


def _heard(message: Message) -> dict[str, str]:
    match message:
        case User(text):
            return {"role": "user", "content": text}
        case Answer(text, _):
            return {"role": "assistant", "content": text}
        case Results(results):
            return {"role": "user", "content": "\n".join(each.text for each in results)}
