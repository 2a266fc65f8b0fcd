"""The requests of the protocol as the SDK 0.24.1 sends them: the fields that this server reads.

Answers are written where they are made. Keys that are not named here are ignored, as a newer SDK
may send some.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Ttl = Annotated[int, Field(ge=1, le=10**9)]
"""Lifetime of a checkpoint (seconds)."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
LossName = Literal["cross_entropy", "importance_sampling", "ppo", "cispo"]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class TextChunk(_Request):
    """Tokens; chunks of images have other types and are refused."""

    type: Literal["encoded_text"]
    tokens: tuple[int, ...]


class ModelInput(_Request):
    """Input of a model."""

    chunks: tuple[TextChunk, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of them, in order."""
        return tuple(token for chunk in self.chunks for token in chunk.tokens)


class Tensor(_Request):
    """One row of numbers."""

    data: tuple[float, ...]
    shape: tuple[int, ...] | None = None
    sparse_crow_indices: tuple[int, ...] | None = None


class Datum(_Request):
    """A sequence and what its loss needs for each token."""

    model_input: ModelInput
    loss_fn_inputs: dict[str, Tensor]


class LossInput(_Request):
    """Data and a loss."""

    data: Annotated[tuple[Datum, ...], Field(min_length=1)]
    loss_fn: LossName
    loss_fn_config: dict[str, float] | None = None


class CreateSession(_Request):
    """Create a session."""

    sdk_version: str
    user_metadata: dict[str, str] | None = None


class SessionHeartbeat(_Request):
    """Heartbeat of a session."""

    session_id: str


class Lora(_Request):
    """An adapter."""

    rank: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class CreateModel(_Request):
    """Make an adapter to train."""

    session_id: str
    model_seq_id: int
    base_model: str
    user_metadata: dict[str, str] | None = None
    lora_config: Lora | None = None


class OfModel(_Request):
    """Something about a model: `get_info`, `unload_model`."""

    model_id: str


class Forward(_Request):
    """Log-probs without a gradient."""

    model_id: str
    seq_id: int | None = None
    forward_input: LossInput


class ForwardBackward(_Request):
    """A gradient, added to those since the last step."""

    model_id: str
    seq_id: int | None = None
    forward_backward_input: LossInput


class Adam(_Request):
    """AdamW's settings of one step."""

    learning_rate: Finite
    beta1: Beta
    beta2: Beta
    eps: Finite
    weight_decay: Finite = 0.0
    grad_clip_norm: Finite = 0.0
    """0 clips nothing."""


class OptimStep(_Request):
    """Take a step along the gradient."""

    model_id: str
    seq_id: int | None = None
    adam_params: Adam


class SaveWeights(_Request):
    """Save weights and optimizer."""

    model_id: str
    seq_id: int | None = None
    path: Name
    ttl_seconds: Ttl | None = None
    overwrite: bool = False


class SaveForSampler(_Request):
    """Save sampler weights: under a name, or for a new sampling session."""

    model_id: str
    seq_id: int | None = None
    path: Name | None = None
    sampling_session_seq_id: int | None = None
    ttl_seconds: Ttl | None = None


class LoadWeights(_Request):
    """Load a checkpoint."""

    model_id: str
    seq_id: int | None = None
    path: str
    optimizer: bool


class CreateSampler(_Request):
    """Create a sampling session on the base model or a checkpoint."""

    session_id: str
    sampling_session_seq_id: int
    base_model: str | None = None
    model_path: str | None = None


class SampleRequest(_Request):
    """Sampling parameters."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """0 draws nothing; None: as many as the context has room for."""
    seed: int | None = None
    stop: str | tuple[int, ...] | tuple[str, ...] | None = None
    temperature: Finite = 1.0
    top_k: int = -1
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class AskSample(_Request):
    """Sample continuations of a prompt; on request score the prompt."""

    sampling_session_id: str
    seq_id: int
    num_samples: Annotated[int, Field(ge=1, le=1024)] = 1
    prompt: ModelInput
    sampling_params: SampleRequest
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = 0


class RetrieveFuture(_Request):
    """Fetch the result of a job."""

    request_id: str


class WeightsInfo(_Request):
    """Describe a checkpoint."""

    tinker_path: str


class SetTtl(_Request):
    """Let a checkpoint expire; None: no longer."""

    ttl_seconds: Ttl | None


class Page(_Request):
    """Query of a listing."""

    limit: Annotated[int, Field(ge=0)] = 20
    offset: Annotated[int, Field(ge=0)] = 0

    @property
    def rows(self) -> slice:
        """Its part of all rows."""
        return slice(self.offset, self.offset + self.limit)

    def cursor(self, total: int) -> dict[str, int]:
        """Return where it stands among all rows."""
        return {"offset": self.offset, "limit": self.limit, "total_count": total}
