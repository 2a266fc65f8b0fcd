"""Named arrays that a loss reads of the tokens that the policy drew.

An algorithm writes them, packing carries them, the loss reads them by name: the learner knows none.
Legend: T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Alignment = Literal["action", "sequence"]
Values: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Declaration of an array that each sequence of a batch has."""

    name: str
    alignment: Alignment
    """`action`: [T, ...], a row per token, of which the loss reads those of drawn tokens as
    [A, ...]. `sequence`: any shape, of which it reads one per sequence of a micro-batch, [S, ...].
    """
    dtype: Literal["float32", "int64", "int32", "bool"] = "float32"

    def values(self, values: ArrayLike, length: int) -> Values:
        """Return the values of a sequence of `length` tokens in the stream's type.

        Raises:
            ValueError: an `action` stream does not have a row per token.
        """
        array = np.asarray(values, dtype=self.dtype)
        if self.alignment == "action" and array.shape[:1] != (length,):
            raise ValueError(
                f"stream {self.name} has shape {array.shape} for a sequence of {length} tokens"
            )
        return array

    def until(self, values: Values, end: int) -> Values:
        """Return what belongs to the first `end` tokens."""
        return values[:end] if self.alignment == "action" else values


Streams: TypeAlias = Mapping[Stream, Values]
"""What one sequence has of each stream."""
