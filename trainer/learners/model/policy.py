"""The policy as one module: a micro-batch in, log-probs of its actions out.

Embedding, final norm and head belong to this module, so that FSDP gathers them once around the
whole forward pass, chunks of the head included.
"""

from __future__ import annotations

import torch

from trainer.inputs.model.families.family import CausalLM
from trainer.inputs.model.families.registry import check_supported, experts_of, family_of
from trainer.learners.model.adapters import adapted_weight
from trainer.learners.model.attention import NAME as PREFIX_GROUP_ATTENTION
from trainer.learners.model.experts import ExpertRouters
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.model.varlen import VarlenLayout, has_varlen
from trainer.learners.packing.packing import MicroBatch
from trainer.learners.recurrent.delta_net import prepare
from trainer.learners.recurrent.layout import RecurrentLayout


class PolicyModule(torch.nn.Module):
    """transformers' own model with the scores of its actions as output."""

    def __init__(
        self,
        causal_lm: CausalLM,
        *,
        chunk_tokens: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take over `causal_lm`; score at most `chunk_tokens` tokens over the vocabulary at once.

        `dtype` is that of forward and backward pass, in which FSDP gathers the weights.

        Raises:
            SpecError: the architecture is not supported.
        """
        super().__init__()
        check_supported(causal_lm.config)
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

    def forward(self, micro: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probs (with gradient) and entropies (without) of the actions, [A] float32."""
        device, dtype = micro.token_ids_N.device, self._computes_in
        layout = VarlenLayout.of(micro.prefix_groups, device) if has_varlen(device, dtype) else None
        recurrent = None
        if self._is_recurrent:
            width: int = getattr(self.causal_lm.config, "linear_conv_kernel_dim")  # noqa: B009
            recurrent = RecurrentLayout.of(micro.prefix_groups, width, device)
        if self.routers is not None:
            counts = torch.is_grad_enabled() and not micro.is_empty
            self.routers.begin(micro.routes_NLK, counts=counts)
        hidden_1ND = self.causal_lm.model(
            input_ids=micro.token_ids_N.unsqueeze(0),
            position_ids=micro.positions_N.unsqueeze(0),
            attention_mask=self._no_masks,
            use_cache=False,
            prefix_groups=micro.prefix_groups,
            varlen_layout=layout,
            recurrent_layout=recurrent,
        ).last_hidden_state
        if self.routers is not None:
            self.routers.end()
        return token_logprobs(
            hidden_1ND[0].index_select(0, micro.sources_A),
            adapted_weight(self.causal_lm.lm_head),
            micro.targets_A,
            micro.temperatures_A,
            chunk_tokens=self._chunk_tokens,
        )
