"""The sections `probe` and `validation`, of run kinds that precede training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.hosts import SecretVariable, refuse_overheard
from hillclimb.spec.section import Seconds, Section


class ProbeSpec(Section):
    """Size of a run of kind `probe`; other kinds ignore it.

    A probe rolls out training tasks at the temperatures of training and takes no step.
    """

    tasks_per_env: Annotated[int, Field(ge=1, le=5_000)] = 40
    """Training tasks per environment (count), drawn by `data.seed`; all of them if there are fewer.
    Fewer than 35 cannot show that there is nothing to learn (docs/preflight.md)."""
    n_samples_per_prompt: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per task (count). The share of groups with signal is counted for groups up to this
    size and unknown for larger ones: use at least `rollout.n_samples_per_prompt`."""
    budget_minutes: Annotated[float, Field(gt=0.0, le=1440.0)] | None = None
    """Minutes during which rollouts are started. Those in flight then finish; those not started
    have no outcome, and count as missing in the coverage. Environments take turns. null: as long as
    a rollout still fits before `schedule.step_timeout_s`; a deterministic run has no limit."""


class TeacherSpec(Section):
    """A model that shows whether tasks can be solved, at a chat endpoint with tool calls.

    Its answers are never trained on.
    """

    type: Literal["openai", "anthropic"] = "openai"
    """`openai`: chat completions with tool calls, which most servers support. `anthropic`:
    messages."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)]
    """Address of the endpoint, to which `/chat/completions` or `/v1/messages` is appended. Anything
    but a server on the runner's machine needs `experimental: true`, and https if a key is sent."""
    model: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the model at the endpoint."""
    api_key_env: SecretVariable | None = None
    """Variable of the trainer's environment that holds the API key, which must begin with
    `RUN_SECRET_` and be for the endpoint's host (docs/secrets.md); null: no key. The key itself is
    never part of a spec."""
    n: Annotated[int, Field(ge=1, le=32)] = 1
    """Tries per task; the first one that passes is enough (count)."""
    max_turns: Annotated[int, Field(ge=1, le=200)] = 20
    """Model turns of one try (count)."""
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Longest answer of one turn (tokens). A try with a truncated answer counts only if it passes.
    """
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Sampling temperature of requests; null: the endpoint's default."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    """Concurrent tries (count)."""
    request_timeout_s: Seconds = 120.0
    """Deadline of a single request (seconds), which is then retried."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 5
    """Retries of a request after 429, 5xx or no response (count); `Retry-After` is honoured. After
    32 requests in a row that failed with all their retries, no more requests are made."""
    max_requests: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Limit of requests of the run (count), over all its attempts, retries included; the remaining
    tasks are then UNKNOWN. null: no limit."""
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """Limit of tokens of the run (count), over all its attempts, input and output, as the endpoint
    counts them. null: no limit."""
    required: bool = True
    """Exclude tasks that the teacher never solves even if their recorded calls pass: the prompt may
    not state what the verifier checks. False: passing recorded calls are sufficient."""

    @model_validator(mode="after")
    def _key_is_sent_in_private(self) -> Self:
        if self.api_key_env is not None:
            key = "the key of api_key_env travels"
            refuse_overheard("validation.teacher.base_url", self.base_url, key)
        return self


class ValidationSpec(Section):
    """Checks of a run of kind `validate`; other kinds ignore it."""

    tasks_per_env: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Tasks checked per environment, training tasks first (count); null: all of them."""
    teacher: TeacherSpec | None = None
    """A teacher model that tries the tasks; null: only recorded calls show that a task can be
    solved."""
    exclude: bool = False
    """After the run, exclude the tasks that failed from the dataset's later versions: each becomes
    an exclusion with its reason and source `validation`. A run that was stopped early excludes the
    tasks that had failed until then."""
