"""Curriculum: gives environments whose groups still teach more prompts, and all others some.

GRPO learns from a group only when its scores differ; of an environment in which a rollout passes
with probability p, a group of n teaches with probability 1 - p^n - (1 - p)^n, which rises and
falls with p(1 - p): the "learnability" of Rutherford et al. (2024, arXiv:2408.15099). Prompts go
where it is high, as in Self-Evolving Curriculum (Chen et al. 2025, arXiv:2505.14970), where each
category is the arm of a bandit whose reward changes over time. Evidence fades (discounted counts,
Garivier and Moulines 2008, arXiv:0805.3415) towards "every group teaches", so that an environment
not measured for long is tried again; and a floor mixes in the shares that the environments have
without a curriculum, so that none starves (as Exp3 does; Graves et al. 2017, arXiv:1704.03003).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.protocol.outcomes import Groups
from hillclimb.spec.data import CurriculumSpec
from hillclimb.stats.reward_spread import differ
from trainer.errors import CheckpointError

UNITS = 1_000_000
"""Shares are whole numbers of millionths; they sum to this."""

_PRIOR_GROUPS = 1.0
"""Groups that teach, added to every environment's evidence: optimism about the unmeasured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reweighting:
    """A change of the environments' shares. All shares are in [0, 1] and sum to 1."""

    old_shares: dict[str, float]
    new_shares: dict[str, float]
    signals: dict[str, float | None]
    """Share of recent groups whose scores differ; None for an environment without any."""
    reason: str
    """One sentence: the share that changed most, and the signal measured there."""


@dataclass(slots=True)
class _Evidence:
    taught: float = 0.0
    measured: float = 0.0

    @property
    def signal(self) -> float | None:
        return self.taught / self.measured if self.measured else None

    @property
    def expected_signal(self) -> float:
        return (self.taught + _PRIOR_GROUPS) / (self.measured + _PRIOR_GROUPS)


class Curriculum:
    """Tracks evidence and shares per environment; the same observations give the same shares."""

    def __init__(self, base: Mapping[str, int], settings: CurriculumSpec) -> None:
        """Start with shares proportional to `base` (positive); the floor keeps a part of them."""
        self._settings = settings
        self._base = whole_shares({key: float(weight) for key, weight in base.items()})
        self._shares = dict(self._base)
        self._evidence = {key: _Evidence() for key in base}
        self._step = 0
        self._checked_at = 0

    @property
    def shares(self) -> dict[str, int]:
        """Return each environment's share, at least 1; the sum is `UNITS`."""
        return dict(self._shares)

    def metrics(self) -> dict[str, float]:
        """Return every environment's share, and its signal where one was measured."""
        metrics: dict[str, float] = {}
        for env_key, evidence in self._evidence.items():
            name = f"curriculum/{env_key.replace('/', '_')}"
            metrics[f"{name}/share"] = self._shares[env_key] / UNITS
            if evidence.signal is not None:
                metrics[f"{name}/signal"] = evidence.signal
        return metrics

    def observe(self, step: int, groups: Groups) -> Reweighting | None:
        """Count a step's rollouts as evidence; return the change of shares, if there is one.

        Evidence ages by the steps between two calls. A group without two grades taught nothing:
        an environment that is down must not look unmeasured, which would draw prompts to it.
        Rows of unknown environments are ignored.
        """
        fade = 0.5 ** (max(step - self._step, 0) / self._settings.half_life)
        self._step = max(self._step, step)
        for evidence in self._evidence.values():
            evidence.taught *= fade
            evidence.measured *= fade
        for rows in filter(None, groups):
            if (seen := self._evidence.get(rows[0].env_key)) is not None:
                seen.measured += 1.0
                seen.taught += differ([row.score for row in rows if row.score is not None])
        if self._step - self._checked_at < self._settings.interval:
            return None
        self._checked_at = self._step
        return self._reweight()

    def state(self) -> dict[str, JsonValue]:
        """Return evidence and shares as JSON, from which `restore` continues exactly."""
        return {
            "step": self._step,
            "looked": self._checked_at,
            "shares": dict(self._shares),
            "evidence": {key: [each.taught, each.measured] for key, each in self._evidence.items()},
        }

    def restore(self, state: JsonValue) -> None:
        """Continue from a `state` of a curriculum over the same environments.

        Raises:
            CheckpointError: the state is malformed.
        """
        match state:
            case {"step": int(step), "looked": int(looked), "shares": shares, "evidence": evidence}:
                restored = {key: _share(shares, key) for key in self._base}
                if sum(restored.values()) == UNITS:
                    self._evidence = {key: _restored(evidence, key) for key in self._base}
                    self._step, self._checked_at, self._shares = step, looked, restored
                    return
        raise CheckpointError(_MALFORMED)

    def _reweight(self) -> Reweighting | None:
        """Mix base shares with base x expected signal; None when that changes too little."""
        weights = {
            key: self._base[key] * each.expected_signal for key, each in self._evidence.items()
        }
        total, floor = sum(weights.values()), self._settings.floor
        new = whole_shares(
            {
                key: floor * self._base[key] / UNITS + (1.0 - floor) * weights[key] / total
                for key in self._base
            }
        )
        old = self._shares
        most = max(old, key=lambda key: abs(new[key] - old[key]))
        change = abs(new[most] - old[most])
        if not change or change < self._settings.min_change * UNITS:
            return None
        self._shares = new
        return Reweighting(
            old_shares={key: share / UNITS for key, share in old.items()},
            new_shares={key: share / UNITS for key, share in new.items()},
            signals={key: each.signal for key, each in self._evidence.items()},
            reason=_reason(most, old[most], new[most], self._evidence[most].signal),
        )


def whole_shares(weights: Mapping[str, float]) -> dict[str, int]:
    """Return shares proportional to positive weights, each at least 1; the sum is `UNITS`."""
    total = sum(weights.values())
    shares = {key: max(int(UNITS * weight / total), 1) for key, weight in weights.items()}
    largest = max(shares, key=lambda key: shares[key])
    shares[largest] += UNITS - sum(shares.values())
    return shares


def _reason(env_key: str, old: int, new: int, signal: float | None) -> str:
    verb = "gets more" if new > old else "gets fewer"
    measured = (
        "nothing was measured there lately"
        if signal is None
        else f"the scores differ in {signal:.0%} of its recent groups"
    )
    return f"{env_key} {verb} prompts ({old / UNITS:.1%} -> {new / UNITS:.1%}): {measured}"


_MALFORMED = "sampler state is malformed: the curriculum's evidence"


def _share(shares: JsonValue, env_key: str) -> int:
    share = shares.get(env_key) if isinstance(shares, dict) else None
    if isinstance(share, int) and share >= 1:
        return share
    raise CheckpointError(_MALFORMED)


def _restored(evidence: JsonValue, env_key: str) -> _Evidence:
    match evidence.get(env_key) if isinstance(evidence, dict) else None:
        case [float(taught), float(measured)] if 0.0 <= taught <= measured:
            return _Evidence(taught, measured)
    raise CheckpointError(_MALFORMED)
