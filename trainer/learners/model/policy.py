"""The policy as one module: a micro-batch in, log-probs of its actions out.

Embedding, final norm and head belong to this module, so that FSDP gathers them once around the
whole forward pass, chunks of the head included.
"""

from __future__ import annotations

from typing import final

import torch
from torch.nn.attention.varlen import varlen_attn

from hillclimb.hardware.model.context_parallel import why_indivisible_context
from hillclimb.hardware.model.linear_attention import NO_SHARED_SEQUENCES
from trainer.errors import SpecError
from trainer.inputs.model.families.family import CausalLM, CausalLMConfig
from trainer.inputs.model.families.registry import check_supported, experts_of, family_of
from trainer.learners.context.group import ContextGroup, OwnActions
from trainer.learners.model.attention import NAME as PREFIX_GROUP_ATTENTION
from trainer.learners.model.experts import ExpertRouters
from trainer.learners.model.kernels.varlen import Kernel, VarlenLayout, has_varlen
from trainer.learners.model.scoring import adapted_weight, token_logprobs
from trainer.learners.packing.packing import MicroBatch
from trainer.learners.recurrent.delta_net import prepare
from trainer.learners.recurrent.layout import RecurrentLayout


@final
class _Sealed:
    """A micro-batch on its way into the module.

    Before a forward pass FSDP looks for tensors with a gradient in all that its module is called
    with: in tuples and dataclasses, element by element. A micro-batch has none, and every token of
    its sequences as a Python number; it does not look into other objects.
    """

    def __init__(self, micro: MicroBatch) -> None:
        self.micro = micro


class PolicyModule(torch.nn.Module):
    """transformers' own model with the scores of its actions as output."""

    def __init__(
        self,
        causal_lm: CausalLM,
        *,
        chunk_tokens: int,
        dtype: torch.dtype = torch.float32,
        context_group: ContextGroup | None = None,
    ) -> None:
        """Take over `causal_lm`; score at most `chunk_tokens` tokens over the vocabulary at once.

        `dtype` is that of forward and backward pass, in which FSDP gathers the weights.
        `context_group` are the ranks that share each micro-batch; None: this rank has it alone.

        Raises:
            SpecError: the architecture is not supported, or its heads cannot be divided.
        """
        super().__init__()
        check_supported(causal_lm.config)
        if context_group is not None:
            refuse_indivisible(causal_lm.config, context_group.size)
        causal_lm.set_attn_implementation(PREFIX_GROUP_ATTENTION)
        family = family_of(causal_lm.config)
        layout = experts_of(causal_lm.config)
        self.routers = None if layout is None else ExpertRouters(causal_lm, layout)
        """Of a model with experts."""
        # In this form transformers builds no [N, N] mask of its own.
        self._no_masks = dict.fromkeys(family.mask_kinds)
        self._is_recurrent = family.has_linear_attention
        if self._is_recurrent:
            prepare(causal_lm)
        self.causal_lm = causal_lm
        self._chunk_tokens = chunk_tokens
        self._computes_in = dtype
        self._context_group = context_group
        self.attention_kernel: Kernel = varlen_attn
        """Of attention over packed sequences on a GPU."""

    def __call__(self, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probs (with gradient) and entropies (without) of the actions, [A] float32.

        Ranks of a context group all get the values of all actions of their micro-batch, each with
        the gradient of those that its tokens predict.
        """
        scores: tuple[torch.Tensor, torch.Tensor] = super().__call__(_Sealed(micro))
        return scores

    def forward(self, sealed: _Sealed) -> tuple[torch.Tensor, torch.Tensor]:
        """Do the work of a call, between the hooks of FSDP."""
        micro, context, own = sealed.micro, self._context_group, slice(None)
        if context is not None:
            own = context.part(len(micro.token_ids_N))
        device, dtype = micro.token_ids_N.device, self._computes_in
        layout = None
        if has_varlen(device, dtype):
            layout = VarlenLayout.of(micro.prefix_groups, device, self.attention_kernel)
        recurrent = None
        if self._is_recurrent:
            width: int = getattr(self.causal_lm.config, "linear_conv_kernel_dim")  # noqa: B009
            recurrent = RecurrentLayout.of(micro.prefix_groups, width, device)
        if self.routers is not None:
            counts = torch.is_grad_enabled() and not micro.is_empty
            routes = None if micro.routes_NLK is None else micro.routes_NLK[own]
            self.routers.begin(routes, counts=counts)
        hidden_1ND = self.causal_lm.model(
            input_ids=micro.token_ids_N[own].unsqueeze(0),
            position_ids=micro.positions_N[own].unsqueeze(0),
            attention_mask=self._no_masks,
            use_cache=False,
            prefix_groups=micro.prefix_groups,
            varlen_layout=layout,
            recurrent_layout=recurrent,
            context_group=context,
        ).last_hidden_state
        if self.routers is not None:
            self.routers.end()
        columns = (micro.sources_A, micro.targets_A, micro.temperatures_A)
        if context is None:
            return self._scores(hidden_1ND[0], *columns)
        actions = OwnActions.of(context, micro.host_sources, len(micro.token_ids_N), device)
        sources_a, targets_a, temperatures_a = (each[actions.rows_a] for each in columns)
        scores = self._scores(
            hidden_1ND[0], sources_a - actions.first_token, targets_a, temperatures_a
        )
        return actions.whole(scores[0]), actions.whole(scores[1])

    def _scores(
        self,
        hidden_ND: torch.Tensor,
        sources_A: torch.Tensor,
        targets_A: torch.Tensor,
        temperatures_A: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return token_logprobs(
            hidden_ND.index_select(0, sources_A),
            adapted_weight(self.causal_lm.lm_head),
            targets_A,
            temperatures_A,
            chunk_tokens=self._chunk_tokens,
        )


def refuse_indivisible(config: CausalLMConfig, size: int) -> None:
    """Refuse a context group of `size` ranks that cannot share the model's attention.

    Raises:
        SpecError: a sentence that names what to change.
    """
    if size > 1 and family_of(config).has_linear_attention:
        raise SpecError(NO_SHARED_SEQUENCES)
    heads: int = config.num_attention_heads
    reason = why_indivisible_context(size, heads, config.num_key_value_heads or heads)
    if reason is not None:
        raise SpecError(reason)
