"""The experts of every cached token, in rows like those of the cache.

Legend: N packed tokens, L layers, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from trainer.engines.torch.cache import Span
from trainer.engines.torch.sessions import CachedSession
from trainer.errors import EngineError
from trainer.inputs.model.families.family import CausalLMConfig
from trainer.inputs.model.families.registry import experts_of
from trainer.types import Routes

_BYTE = 256
"""Experts that one byte can number."""


class RouteStore:
    """Storage beside the cache: prefix rows and own rows of `length` tokens."""

    def __init__(self, config: CausalLMConfig, num_rows: int, length: int) -> None:
        """Reserve the storage; the operating system commits pages when they are written.

        Raises:
            EngineError: the model has no experts.
        """
        experts = experts_of(config)
        if experts is None:
            raise EngineError("the model has no experts: there are no routes to record")
        self._shape = (config.num_hidden_layers, experts.per_token)
        dtype = np.uint8 if experts.num <= _BYTE else np.uint16
        self._rows: Routes = np.zeros((2 * num_rows, length, *self._shape), dtype=dtype)

    def blank(self, num_tokens: int, device: torch.device) -> torch.Tensor:
        """Return a tensor for the routes of a pass, [N, L, K] int32; layers without experts: 0."""
        return torch.zeros((num_tokens, *self._shape), dtype=torch.int32, device=device)

    def record(self, spans: Sequence[Span], routes_NLK: torch.Tensor) -> None:
        """Store the routes of a pass, whose tokens are packed in the order of `spans`."""
        routes, first = routes_NLK.cpu().numpy(), 0
        for span in spans:
            end = first + span.length
            self._rows[span.row, span.start : span.start + span.length] = routes[first:end]
            first = end

    def read(self, session: CachedSession, num_tokens: int) -> Routes:
        """Return a copy of the routes of a session's first tokens, [num_tokens, L, K]."""
        prefix = len(session.prefix.token_ids)
        shared = self._rows[session.prefix.row, :prefix]
        own = self._rows[session.row, : num_tokens - prefix]
        return np.concatenate((shared, own))
