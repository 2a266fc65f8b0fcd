"""The OpenEnv servers of a spec: where they are and what their episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from trainer.contract.data import DataSpec
from trainer.contract.fleet import MAX_OUTPUT_CHARS
from trainer.contract.hosts import SecretVariable, refuse_overheard
from trainer.contract.section import Seconds, Section

NUM_TRAIN_SEEDS = 1_000_000
"""Tasks of one split at the most: training takes seeds below, evaluation takes them from here."""

_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class OpenEnvServer(Section):
    """One server of the OpenEnv protocol; one episode is one session (a WebSocket) of it."""

    url: Annotated[str, Field(pattern=r"^(http|ws)s?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)]
    """Where the server is, without `/ws`: `http://127.0.0.1:8765`. Anything but a server on the
    runner's machine needs `experimental: true`, and https where `headers` are sent."""
    headers: dict[_HeaderName, SecretVariable] = Field(default_factory=dict)
    """HTTP headers of every request, each taken from the variable named of the runner's
    environment, which begins with `RUN_SECRET_`: secrets stay out of specs, and those that are not
    for runs on their machine."""
    reset: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of every `reset`, beside `seed`; a task's own come on top."""
    eval_reset: dict[str, JsonValue] = Field(default_factory=dict)
    """Laid over `reset` for eval tasks."""
    reward: Literal["last", "sum"] = "last"
    """What an episode's score is: the `last` reward that the server sent, or the `sum` of all of
    them. It must lie in [0, 1]; an episode with another one stays without a grade."""
    text_field: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Field of the observations that is shown to the model; null: the only one, where that is a
    text, else all of them as JSON."""
    connect_timeout_s: Seconds = 10.0
    """Longest wait for a connection (seconds); passing it is an infra error."""
    max_message_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest message accepted from the server (MiB)."""
    max_output_chars: Annotated[int, Field(ge=100, le=10_000_000)] = MAX_OUTPUT_CHARS
    """Longest answer to a call that the model sees (characters); a longer one is cut, and says by
    how much."""

    @model_validator(mode="after")
    def _nobody_overhears_the_headers(self) -> Self:
        if self.headers:
            refuse_overheard("url", self.url, "the values of headers travel")
        return self


def refuse_unserved(servers: Mapping[str, OpenEnvServer], data: DataSpec) -> None:
    """Refuse environments without a server, servers without an environment, and idle knobs.

    Raises:
        ValueError: a sentence that names what to change.
    """
    for key in data.env_keys:
        if key not in servers:
            raise ValueError(
                f"environment.openenv has no server for {key!r}, which data.env_keys lists: add"
                f" environment.openenv.{key}.url or remove the key"
            )
    strangers = sorted(set(servers) - set(data.env_keys))
    if strangers and data.env_keys:
        raise ValueError(
            f"environment.openenv has a server for {strangers[0]!r}, which data.env_keys does not"
            " list: add it there or remove the server"
        )
    share = DataSpec.model_fields["held_out_template_share"].default
    if data.dataset is None and data.held_out_template_share != share:
        raise ValueError(
            "data.held_out_template_share is read for minifleet alone: an OpenEnv server has no"
            " templates, so leave it out"
        )
