"""Filter for vLLM's log messages that would mislead the reader of a run's log."""

from __future__ import annotations

import logging

RELOADING = "vllm.model_executor.model_loader.reload.layerwise"
"""The logger that names every layer into which a weight sync loaded nothing."""


class _Computed(logging.Filter):
    """Drops messages about rotary embeddings: their tables are computed, no model file has them.

    Any other layer stays, although the comparison after the sync names it too.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is about a layer that has weights."""
        args = record.args if isinstance(record.args, tuple) else ()
        return not any(str(each).endswith("RotaryEmbedding") for each in args)


def leave_out_computed_layers() -> None:
    """Warn of layers without new weights only where there are weights; once per process."""
    logger = logging.getLogger(RELOADING)
    if not any(isinstance(each, _Computed) for each in logger.filters):
        logger.addFilter(_Computed())
