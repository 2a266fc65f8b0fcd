"""Rule that a context-parallel size divides the model's attention heads."""

from __future__ import annotations

LARGEST = 64
"""Largest `learner.context_parallel_size`."""


def why_indivisible_context(size: int, num_heads: int, num_kv_heads: int) -> str | None:
    """Return why the learner refuses `learner.context_parallel_size`; None if it would not."""
    if _divides(size, num_heads, num_kv_heads):
        return None
    sizes = range(1, LARGEST + 1)
    others = ", ".join(str(each) for each in sizes if _divides(each, num_heads, num_kv_heads))
    return (
        f"learner.context_parallel_size {size} does not divide the model's attention heads into"
        f" equal parts (it has {num_heads}, and {num_kv_heads} of keys and values): use one of"
        f" {others}"
    )


def _divides(size: int, num_heads: int, num_kv_heads: int) -> bool:
    """Tell whether a size divides the heads; key/value heads are copied if there are fewer."""
    fewer, more = sorted((size, num_kv_heads))
    return num_heads % size == more % fewer == 0
