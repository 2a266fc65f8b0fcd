"""The tensors of a Hugging Face directory by name, of which any rows can be read alone.

Files of published models name some tensors otherwise than the module does: experts one by one, and
in a checkpoint that holds more than text the text model's behind a prefix. Legend: E experts, I
width of an expert, D hidden size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from trainer.inputs.model.families.experts import MATRICES, STACKED

_TEXT = "model.language_model."
"""What the names of the text model begin with in a checkpoint that holds more than text."""
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
        """Tell whether every parameter is a tensor of the files, and of the same shape."""
        return all(self.shape(name) == tuple(parameter.shape) for name, parameter in parameters)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of the module's tensor of this name; None if the files have none."""
        if (stored := self._stored(name)) is not None:
            return self._shape(stored)
        experts = self._experts(name)
        shapes = [[self._shape(each) for each in matrices] for matrices in experts]
        if not shapes or any(each != shapes[0] for each in shapes):
            return None
        height = sum(rows for rows, _ in shapes[0])
        return (len(experts), height, shapes[0][0][1])

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Read these rows of a tensor, in the precision of the file: of stacked ones experts."""
        stored = self._stored(name)
        if stored is not None:
            rows: torch.Tensor = self._places[stored].get_slice(stored)[start:stop]
            return rows
        return torch.stack(
            [
                torch.cat([self._places[each].get_tensor(each) for each in matrices])
                for matrices in self._experts(name)[start:stop]
            ]
        )

    def _stored(self, name: str) -> str | None:
        """Return the files' name of a tensor that they have as it is."""
        names = (name, name.replace("model.", _TEXT, 1))
        return next((each for each in names if each in self._places), None)

    def _experts(self, name: str) -> list[list[str]]:
        """Return the matrices of each expert of a stacked tensor; none of any other tensor.

        Those are `mlp.experts.gate_up_proj`, [E, 2 I, D], and `mlp.experts.down_proj`, [E, D, I].
        """
        prefix, stacked, part = name.rpartition(STACKED)
        if not stacked:
            return []
        experts: list[list[str]] = []
        while True:
            own = f"{prefix}{STACKED}{len(experts)}."
            matrices = [self._stored(f"{own}{each}.weight") for each in MATRICES.get(part, (part,))]
            stored = [each for each in matrices if each is not None]
            if not stored or len(stored) < len(matrices):
                return experts
            experts.append(stored)

    def _shape(self, stored: str) -> tuple[int, ...]:
        return tuple(self._places[stored].get_slice(stored).get_shape())


def weight_files(directory: Path) -> WeightFiles | None:
    """Return the files of a directory; None if they are none that can be read in parts."""
    try:
        return WeightFiles(directory)
    except (OSError, ValueError, KeyError, SafetensorError):
        return None
