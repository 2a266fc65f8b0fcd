"""A model in training: the base with an adapter, its gradient and its optimizer.

Legend: N tokens of a datum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from trainer.algo.loss.action_tokens import ActionTokens
from trainer.learners.model.adapters import add_adapters, factors, save_adapter
from trainer.learners.model.policy import PolicyModule
from trainer.learners.packing.packing import MicroBatch, PrefixGroup
from trainer.tinker_server.errors import RequestRefused
from trainer.tinker_server.model.base import ALPHA, BaseModel
from trainer.tinker_server.model.losses import LOSSES, TARGETS, Inputs, bounds_of, inputs_of
from trainer.tinker_server.wire import Adam, Datum, Lora, LossInput

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
UNEMBED = ("lm_head",)
MAX_PACKED_TOKENS = 4096
"""Of one forward and backward pass; one datum may be longer."""
_CHUNK_TOKENS = 1024
_STATE = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of each weight."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Rank and layers of an adapter. The layers may be none but the head, unlike those of a run."""

    rank: int
    target_modules: tuple[str, ...]
    alpha: int = ALPHA


def layers_of(request: Lora, *, max_rank: int) -> Layers:
    """Return rank and layers that a request names.

    Raises:
        RequestRefused: a rank above the limit, or no layer.
    """
    if request.rank > max_rank:
        raise RequestRefused(f"this server allows ranks up to {max_rank}, not {request.rank}")
    modules = (
        (ATTENTION if request.train_attn else ())
        + (MLP if request.train_mlp else ())
        + (UNEMBED if request.train_unembed else ())
    )
    if not modules:
        raise RequestRefused("nothing would be trained: set train_attn, train_mlp or train_unembed")
    return Layers(request.rank, modules)


class Adapter:
    """One model of a client. Its methods block, and only one may run at a time."""

    def __init__(self, base: BaseModel, lora: Layers, *, seed: int) -> None:
        model = base.copy()
        # The head's adapter is the head's alone: an embedding that shares its weight stays as it
        # is, as with peft, which warns of such a pair, since merging would change both.
        model.config.tie_word_embeddings = False
        add_adapters(model, lora, seed=seed)
        self.lora = lora
        self._base = base
        self._policy = PolicyModule(model, chunk_tokens=_CHUNK_TOKENS)
        self.trained = {
            name.removeprefix("causal_lm."): each
            for name, each in self._policy.named_parameters()
            if each.requires_grad
        }
        """The factors by their names in the model, float32."""
        self._optimizer = torch.optim.AdamW(self.trained.values())

    def forward(self, request: LossInput, *, backward: bool) -> tuple[list[list[float]], float]:
        """Return log-probs of each datum's targets, and the loss; with `backward` add its gradient.

        Raises:
            RequestRefused: the data lack inputs that the loss needs, or have wrong ones.
        """
        low, high = bounds_of(request)
        inputs = [inputs_of(datum, request.loss_fn) for datum in request.data]
        self._check(request.data, inputs)
        scores: list[list[float]] = []
        total = 0.0
        for members in _packs(request.data):
            with torch.set_grad_enabled(backward):
                logprobs, _ = self._policy(_packed(request.data, inputs, members))
                lengths = [len(request.data[each].model_input.tokens) for each in members]
                parts = torch.split(logprobs, lengths)
                loss = torch.stack(
                    [
                        LOSSES[request.loss_fn](part, inputs[each], low, high)
                        for part, each in zip(parts, members, strict=True)
                    ]
                ).sum()
            if backward:
                torch.autograd.backward(loss)
            scores += [part.detach().tolist() for part in parts]
            total += loss.item()
        if not math.isfinite(total):
            # Otherwise the next step would use the gradient.
            self._optimizer.zero_grad(set_to_none=True)
            raise RequestRefused("the loss is NaN or infinite")
        return scores, total

    def step(self, adam: Adam) -> float:
        """Take a step along the gradient and reset it; return its norm before clipping.

        Without a gradient nothing changes: Adam would drift on by its momentum.
        """
        gradients = [each.grad for each in self.trained.values() if each.grad is not None]
        if not gradients:
            return 0.0
        limit = adam.grad_clip_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), limit))
        for group in self._optimizer.param_groups:
            group.update(
                lr=adam.learning_rate,
                betas=(adam.beta1, adam.beta2),
                eps=adam.eps,
                weight_decay=adam.weight_decay,
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def write_adapter(self, directory: Path) -> None:
        """Write the adapter in peft's form."""
        trained = {name: each.detach() for name, each in self.trained.items()}
        save_adapter(factors(trained), self.lora, directory)

    def write_state(self, path: Path) -> None:
        """Write weights and optimizer; a gradient that no step has used is not in it."""
        tensors = {f"weight/{name}": each.detach() for name, each in self.trained.items()}
        for name, each in self.trained.items():
            for key, value in self._optimizer.state.get(each, {}).items():
                tensors[f"{key}/{name}"] = value
        save_file({name: each.contiguous() for name, each in tensors.items()}, path)

    def read_state(self, path: Path, *, optimizer: bool) -> None:
        """Load the output of `write_state`, with or without the optimizer's part.

        Raises:
            RequestRefused: it is of another adapter.
        """
        tensors = load_file(path)
        shapes = {name: each.shape for name, each in self.trained.items()}
        saved_shapes = {
            name.removeprefix("weight/"): each.shape
            for name, each in tensors.items()
            if name.startswith("weight/")
        }
        if shapes != saved_shapes:
            raise RequestRefused("the state is of another model, rank or set of layers")
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.state.clear()
        with torch.no_grad():
            for name, each in self.trained.items():
                each.copy_(tensors[f"weight/{name}"])
                if optimizer and f"step/{name}" in tensors:
                    self._optimizer.state[each] = {key: tensors[f"{key}/{name}"] for key in _STATE}

    def _check(self, data: Sequence[Datum], inputs: Sequence[Inputs]) -> None:
        vocab_size, context = self._base.config.vocab_size, self._base.context
        for datum, row in zip(data, inputs, strict=True):
            tokens = datum.model_input.tokens
            if not 1 <= len(tokens) <= context:
                raise RequestRefused(
                    f"a datum has {len(tokens)} tokens, and the context is {context}"
                )
            every = (*tokens, *row[TARGETS].tolist())
            if not all(0 <= token < vocab_size for token in every):
                raise RequestRefused(f"a token is none of the {vocab_size} of {self._base.name}")


def _packs(data: Sequence[Datum]) -> Iterator[list[int]]:
    """Yield the indices of the data that are computed together, in order."""
    pack: list[int] = []
    size = 0
    for index, datum in enumerate(data):
        length = len(datum.model_input.tokens)
        if pack and size + length > MAX_PACKED_TOKENS:
            yield pack
            pack, size = [], 0
        pack.append(index)
        size += length
    yield pack


def _packed(data: Sequence[Datum], inputs: Sequence[Inputs], members: Sequence[int]) -> MicroBatch:
    """Return one stream of tokens, each datum a prefix group of its own, every position scored."""
    rows = [data[each].model_input.tokens for each in members]
    tokens = torch.tensor([token for row in rows for token in row])
    return MicroBatch(
        token_ids_N=tokens,
        positions_N=torch.cat([torch.arange(len(row)) for row in rows]),
        prefix_groups=tuple(PrefixGroup(prompt_length=len(row), branch_lengths=()) for row in rows),
        sources_A=torch.arange(len(tokens)),
        targets_A=torch.cat([inputs[each][TARGETS] for each in members]),
        temperatures_A=torch.ones(len(tokens)),
        actions=ActionTokens.zeros(len(tokens)),
    )
