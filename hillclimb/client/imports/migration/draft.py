"""The spec that a migration fills, and the remarks on what has no place in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hillclimb.client.errors import SpecFileError
from hillclimb.hardware.presets.presets import preset
from hillclimb.spec.rules.dotted_keys import set_key
from hillclimb.spec.rules.old_names import NewPlace, OldValueRefused

Json = Any


class MigrationRefused(SpecFileError):
    """The file cannot be read, or is of no known format; the message says what is accepted."""


@dataclass(slots=True, kw_only=True)
class SpecDraft:
    """A spec under construction; every key of the old file is set in it or remarked on."""

    spec: dict[str, Json]
    remarks: list[str] = field(default_factory=list)
    """Sentences about what has no place, and what is left to do."""

    @classmethod
    def of_preset(cls, name: str) -> SpecDraft:
        """Return a draft that starts from a preset."""
        return cls(spec=preset(name).spec)

    def set(self, key: str, value: Json) -> None:
        """Set one dotted key of the spec."""
        set_key(self.spec, key, value)

    def place(self, place: NewPlace, name: str, value: Json) -> None:
        """Set the keys of an old input; a value that cannot be read is remarked on."""
        try:
            settings = place.settings(name, value)
        except OldValueRefused as refused:
            self.remark(name, str(refused))
            return
        for key, new in settings.items():
            self.set(key, new)

    def place_known(self, values: Mapping[str, Json], places: Mapping[str, NewPlace]) -> None:
        """Set the values whose names are in the table."""
        for name, value in values.items():
            if name in places:
                self.place(places[name], name, value)

    def remark(self, name: str, sentence: str) -> None:
        """Add a remark on a key of the old file."""
        self.remarks.append(f"{name}: {sentence}")

    def settle(self) -> None:
        """Make the sizes of batches agree, and let steps count where the file named them."""
        schedule = self.spec.get("schedule", {})
        batch, mini = schedule.get("train_batch_size"), schedule.get("mini_batch_size")
        if isinstance(batch, int) and (not isinstance(mini, int) or batch % mini):
            schedule["mini_batch_size"] = batch
            if mini is not None:
                self.remark(
                    "mini batch size",
                    f"{mini} does not divide the batch of {batch}: it is {batch}, one update"
                    " a step",
                )


def name_of(text: str, otherwise: str) -> str:
    """Return a text as the name of a run."""
    name = re.sub(r"[^A-Za-z0-9 ._:-]+", "-", text).strip(" ._:-")[:120]
    return name or otherwise


def refuse_wrong_type(value: Json, what: str) -> Mapping[str, Json]:
    """Return a value that is a mapping.

    Raises:
        MigrationRefused: it is something else.
    """
    if not isinstance(value, Mapping):
        raise MigrationRefused(f"{what} is not a mapping of keys to values")
    return value
