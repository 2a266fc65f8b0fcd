"""The sections of the run kinds that come before training, and train nothing themselves."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.contract.hosts import SecretVariable, refuse_overheard
from trainer.contract.section import Seconds, Section


class ProbeSpec(Section):
    """What a run of kind `probe` tries; other kinds only keep it.

    It rolls out training tasks at the temperatures of training and takes no step.
    """

    tasks_per_env: Annotated[int, Field(ge=1, le=5_000)] = 40
    """Training tasks tried per environment, drawn by `data.seed`; all of them where there are
    fewer (count). Fewer than 35 cannot show that there is nothing to learn (docs/preflight.md)."""
    n_samples_per_prompt: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per task. Groups up to this size are judged by counting, larger ones by a fitted
    distribution."""
    budget_minutes: Annotated[float, Field(gt=0.0, le=1440.0)] | None = None
    """Minutes in which rollouts are begun. Those in flight then end; those not begun have no
    outcome, and are missing in the coverage. Environments take turns. null: as long as one rollout
    still fits before `schedule.step_timeout_s`; a deterministic run has no limit."""


class TeacherSpec(Section):
    """A model that shows whether tasks can be solved, at an endpoint that speaks chat with tools.

    What it answers is never trained on.
    """

    type: Literal["openai", "anthropic"] = "openai"
    """`openai`: chat completions with tool calls, which most servers speak. `anthropic`:
    messages."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)]
    """Where it is: `/chat/completions` or `/v1/messages` is put behind it. Anything but a server on
    the runner's machine needs `experimental: true`, and https where a key is sent."""
    model: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the model, as the endpoint knows it."""
    api_key_env: SecretVariable | None = None
    """Variable of the runner's environment that holds the key, which begins with `RUN_SECRET_`;
    null sends none. The key itself never stands in a spec."""
    n: Annotated[int, Field(ge=1, le=32)] = 1
    """Tries per task; the first one that passes is enough (count)."""
    max_turns: Annotated[int, Field(ge=1, le=200)] = 20
    """Turns of one try (count)."""
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Longest answer of one turn (tokens). A try in which one was cut off there says nothing of the
    task, unless it passes."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Temperature it is asked with; null leaves it to the endpoint."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    """Tries at once (count)."""
    request_timeout_s: Seconds = 120.0
    """Longest single request (seconds); it is then tried again."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 5
    """How often a request is tried again after 429, 5xx or no answer; `Retry-After` is honoured.
    After 32 requests in a row that got none all the same, the teacher is asked no more."""
    max_requests: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Requests of the whole run, all its attempts, retries included; then tasks stay unknown.
    null: no limit."""
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """Tokens of the whole run, all its attempts, read and written, as the endpoint counts them.
    null: no limit."""
    required: bool = True
    """Exclude tasks that it never solves even where their recorded calls pass: the prompt may not
    say what the verifier wants. False: recorded calls that pass are proof enough."""

    @model_validator(mode="after")
    def _nobody_overhears_the_key(self) -> Self:
        if self.api_key_env is not None:
            key = "the key of api_key_env travels"
            refuse_overheard("validation.teacher.base_url", self.base_url, key)
        return self


class ValidationSpec(Section):
    """What a run of kind `validate` checks; other kinds only keep it."""

    tasks_per_env: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks checked per environment, training tasks first; null: all of them."""
    teacher: TeacherSpec | None = None
    """Ask a teacher too; null: only recorded calls show that a task can be solved."""
    exclude: bool = False
    """When the run has ended, leave the tasks that failed out of the dataset's later versions: each
    becomes an exclusion with its reason and source `validation`. A run that was stopped early
    excludes what it had found."""
