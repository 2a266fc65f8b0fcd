"""Lint findings that block runs unless `data.allow_lint` names them."""

from __future__ import annotations

from hillclimb.stats.power import MIN_CHANGED

TOO_FEW = "eval_too_small"
"""A warning for a single environment; it blocks a run with fewer than `MIN_DIFFERENT` in total."""
MIN_DIFFERENT = MIN_CHANGED
"""Minimum of different eval tasks of a run; with fewer no change ever reaches p < 0.05."""
