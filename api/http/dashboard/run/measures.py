"""Measures by which the page of tokens marks each token: levels, and their legend.

A level is drawn as a background and as an underline of its own, so that colour is not the only
sign; from level 4 on it is also written for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hillclimb.stats.trajectories.tokens import TokenFacts

Measure: TypeAlias = Literal["gap", "entropy", "probability", "mask", "version"]
NUM_VERSION_LEVELS = 5
"""Levels that versions of weights share in turn."""
MASK_LEVEL = 3
"""Level of a token in the loss."""
SPOKEN_LEVEL = 4
"""Lowest level of a number that a screen reader hears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A measure whose value has bounds between its levels, from 0 up."""

    label: str
    """Name of the measure in a list."""
    value: Callable[[TokenFacts], float | None]
    bounds: tuple[float, ...]
    """Lowest value of each level from 1 on."""
    levels: tuple[str, ...]
    """What each level means; one more than bounds."""

    def level(self, token: TokenFacts) -> int | None:
        """Return the level of a token; None where the value is not known."""
        value = self.value(token)
        return None if value is None else sum(value >= bound for bound in self.bounds)


def _gap(token: TokenFacts) -> float | None:
    return None if token.gap is None else abs(token.gap)


def _surprise(token: TokenFacts) -> float | None:
    return None if token.engine_logprob is None else -token.engine_logprob


SCALES: dict[str, Scale] = {
    "gap": Scale(
        label="log-prob gap of learner and engine",
        value=_gap,
        bounds=(0.001, 0.01, 0.1, 0.5, 1.0),
        levels=(
            "below 0.001 nats",
            "from 0.001",
            "from 0.01",
            "from 0.1",
            "from 0.5",
            "from 1 nat",
        ),
    ),
    "entropy": Scale(
        label="entropy of the learner",
        value=lambda token: token.entropy,
        bounds=(0.01, 0.1, 0.5, 1.0, 2.0),
        levels=("below 0.01 nats", "from 0.01", "from 0.1", "from 0.5", "from 1", "from 2 nats"),
    ),
    "probability": Scale(
        label="probability by the engine",
        value=_surprise,
        bounds=tuple(-math.log(share) for share in (0.99, 0.9, 0.5, 0.1, 0.01)),
        levels=(
            "above 99 %",
            "90 to 99 %",
            "50 to 90 %",
            "10 to 50 %",
            "1 to 10 %",
            "at most 1 %",
        ),
    ),
}
LABELS: dict[str, str] = {
    **{name: scale.label for name, scale in SCALES.items()},
    "mask": "loss mask",
    "version": "weight version",
}
"""Every measure with its name in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """Marks of tokens by the chosen measure; `versions` are those of the whole rollout."""

    measure: str
    versions: Sequence[int] = ()

    def level(self, token: TokenFacts) -> int | None:
        """Return the level of a token; None: the token has no value, or was not drawn."""
        if self.measure in SCALES:
            return SCALES[self.measure].level(token)
        if self.measure == "mask":
            return MASK_LEVEL if token.is_drawn else None
        if token.weight_version is None:
            return None
        return self._level_of(token.weight_version)

    def spoken(self, token: TokenFacts, before: TokenFacts | None) -> str:
        """Return what a screen reader hears before a token: where it stands out, or changes."""
        if self.measure == "mask":
            changes = before is None or before.is_drawn != token.is_drawn
            return ("drawn:" if token.is_drawn else "not drawn:") if changes else ""
        if self.measure == "version":
            changes = before is None or before.weight_version != token.weight_version
            version = token.weight_version
            return f"version {version}:" if changes and version is not None else ""
        scale = SCALES[self.measure]
        level = scale.level(token)
        return f"{scale.levels[level]}:" if level is not None and level >= SPOKEN_LEVEL else ""

    def legend(self) -> list[tuple[int | None, str]]:
        """Return the levels with what they mean."""
        if self.measure in SCALES:
            return list(enumerate(SCALES[self.measure].levels))
        if self.measure == "mask":
            return [(MASK_LEVEL, "drawn: in the loss"), (None, "not drawn: no part of the loss")]
        return [(self._level_of(version), f"version {version}") for version in self.versions]

    def _level_of(self, version: int) -> int:
        return 1 + self.versions.index(version) % NUM_VERSION_LEVELS
