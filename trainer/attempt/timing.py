"""Wall-clock time of a run by phase, and the estimated time left."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean

SCORING = "fwd_logprobs_values_reward"
"""SkyRL's name for scoring by the proximal and reference policies."""
_RECENT = 10
"""Steps and evaluations whose mean predicts the next ones."""


@dataclass(slots=True)
class Clock:
    """Wall-clock seconds: of the phases of the current step, and totals over this attempt."""

    training_s: float = 0.0
    """Rollouts, updates and syncs of completed steps."""
    eval_s: float = 0.0
    _phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _evals: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the block as a phase of the current step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._phases[name] += time.perf_counter() - began

    def split(self, phase: str, part: str, seconds: float) -> None:
        """Count some of a phase's seconds as a phase of their own."""
        self._phases[phase] -= seconds
        self._phases[part] += seconds

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the block as a training step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._phases["step"] = time.perf_counter() - began
            self.training_s += self._phases["step"]
        self._steps.append(self._phases["step"])

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Count the block as a whole evaluation, all its decodings."""
        began = time.perf_counter()
        try:
            yield
        finally:
            elapsed_s = time.perf_counter() - began
            self.eval_s += elapsed_s
            self._phases["eval"] += elapsed_s
        self._evals.append(elapsed_s)

    def take(self) -> dict[str, float]:
        """Return `timing/{phase}` (seconds) since the last call, and reset the phases."""
        timings = {f"timing/{name}": seconds for name, seconds in self._phases.items()}
        self._phases.clear()
        return timings

    def eta_s(self, *, steps_left: int, evals_left: int) -> float | None:
        """Estimate the seconds to the end from recent steps and evaluations."""
        if not self._steps:
            return None
        evaluation = fmean(self._evals) if self._evals else 0.0
        return steps_left * fmean(self._steps) + evals_left * evaluation
