"""The section `environment.openenv`: addresses and episodes of OpenEnv servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from hillclimb.spec.data import DataSpec
from hillclimb.spec.environment.fleet import MAX_OUTPUT_CHARS
from hillclimb.spec.hosts import SecretVariable, refuse_overheard
from hillclimb.spec.section import Seconds, Section

NUM_TRAIN_SEEDS = 1_000_000
"""Limit of tasks per split: training uses seeds below it, evaluation seeds from it on."""

_Reward = Annotated[float, Field(ge=-1e9, le=1e9)]
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class OpenEnvServer(Section):
    """A server of the OpenEnv protocol; each episode is a session (a WebSocket)."""

    url: Annotated[str, Field(pattern=r"^(http|ws)s?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)]
    """Address of the server without `/ws`: `http://127.0.0.1:8765`. Anything but a server on the
    runner's machine needs `experimental: true`, and https if `headers` are sent."""
    headers: dict[_HeaderName, SecretVariable] = Field(default_factory=dict)
    """HTTP headers of every request; each value is a variable of the trainer's environment, which
    must begin with `RUN_SECRET_`. So secrets stay out of specs, and other secrets of the machine
    stay on it. Secret or operator must allow the server's host (docs/secrets.md)."""
    reset: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of every `reset` besides `seed`; a task's own arguments take precedence."""
    eval_reset: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments that take precedence over `reset` for eval tasks."""
    reward: Literal["last", "sum"] = "last"
    """Reward of an episode: the `last` one that the server sent, or the `sum` of all."""
    reward_range: tuple[_Reward, _Reward] = (0.0, 1.0)
    """Lowest and highest reward that an episode can have. It is mapped linearly onto scores: the
    lowest is 0, the highest 1."""
    reward_outside: Literal["refuse", "clip"] = "refuse"
    """What happens at a reward outside of `reward_range`. `refuse`: the run ends, with the rewards
    seen and this key; without those episodes its figures would be biased. `clip`: the score is 0 or
    1, and the outcome's `detail` has the reward."""
    text_field: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Field of the observations that the model sees; null: the only field if that is a text, else
    all fields as JSON."""
    connect_timeout_s: Seconds = 10.0
    """Deadline of connecting (seconds); exceeding it is an infra error."""
    max_message_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest message accepted from the server (MiB)."""
    max_output_chars: Annotated[int, Field(ge=100, le=10_000_000)] = MAX_OUTPUT_CHARS
    """Longest tool result that the model sees (characters); a longer one is truncated, with a note
    of how much is missing."""

    @model_validator(mode="after")
    def _range_has_a_width(self) -> Self:
        low, high = self.reward_range
        if not low < high:
            raise ValueError(
                f"reward_range is [{low:g}, {high:g}]: write the lowest reward of an episode, then"
                " the highest"
            )
        return self

    @model_validator(mode="after")
    def _address_is_that_of_the_server(self) -> Self:
        if self.url.rstrip("/").endswith("/ws"):
            raise ValueError(
                f"url ends in /ws, which is added to it: write {self.url.rstrip('/')[:-3]}"
            )
        return self

    @model_validator(mode="after")
    def _nobody_overhears_the_headers(self) -> Self:
        if self.headers:
            refuse_overheard("url", self.url, "the values of headers travel")
        return self


def refuse_unserved(servers: Mapping[str, OpenEnvServer], data: DataSpec) -> None:
    """Refuse environments without a server, servers without an environment, and unused settings.

    Raises:
        ValueError: a sentence that names what to change.
    """
    for key in data.env_keys:
        if key not in servers:
            raise ValueError(
                f"environment.openenv has no server for {key!r}, which data.env_keys lists: add"
                f" environment.openenv.{key}.url or remove the key"
            )
    unused = sorted(set(servers) - set(data.env_keys))
    if unused and data.env_keys:
        raise ValueError(
            f"environment.openenv has a server for {unused[0]!r}, which data.env_keys does not"
            " list: add it there or remove the server"
        )
    share = DataSpec.model_fields["held_out_template_share"].default
    if data.dataset is None and data.held_out_template_share != share:
        raise ValueError(
            "data.held_out_template_share is read for minifleet only: an OpenEnv server has no"
            " templates, so leave it out"
        )
