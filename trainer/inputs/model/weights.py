"""The tensors of a Hugging Face directory by name, of which any rows can be read alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


class WeightFiles:
    """Open files of safetensors; nothing of a tensor is in memory before it is read."""

    def __init__(self, directory: Path) -> None:
        """Open the directory's files.

        Raises:
            OSError, ValueError, SafetensorError: there are none, or they cannot be read.
        """
        self._places: dict[str, Any] = {}
        index = directory / INDEX
        names = [SINGLE]
        if index.is_file():
            named: dict[str, str] = json.loads(index.read_text())["weight_map"]
            names = sorted({Path(each).name for each in named.values()})
        for name in names:
            file: Any = safe_open(directory / name, framework="pt")
            self._places |= dict.fromkeys(file.keys(), file)

    def cover(self, parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> bool:
        """Tell whether every parameter is a tensor of the same name and shape."""
        return all(
            name in self._places and self.shape(name) == tuple(parameter.shape)
            for name, parameter in parameters
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self._slices(name).get_shape())

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Read these rows of a tensor, in the precision of the file."""
        rows: torch.Tensor = self._slices(name)[start:stop]
        return rows

    def _slices(self, name: str) -> Any:  # noqa: ANN401 - safetensors' own, without a type
        return self._places[name].get_slice(name)


def weight_files(directory: Path) -> WeightFiles | None:
    """Return the files of a directory; None if they are none that can be read in parts."""
    try:
        return WeightFiles(directory)
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
