"""What lint finds that keeps runs from training or evaluating, unless they allow it."""

from __future__ import annotations

from trainer.contract.datasets.findings import RULES
from trainer.contract.datasets.power import MIN_CHANGED

TOO_FEW = "eval_too_small"
"""Of a single environment it only warns; of a run as a whole it stops below `MIN_DIFFERENT`."""
MIN_DIFFERENT = MIN_CHANGED
"""Different eval tasks of a run with fewer of which no change ever reaches p < 0.05."""
STOPPING = (*(code for code, rule in RULES.items() if rule.severity == "error"), TOO_FEW)
"""Codes that `data.allow_lint` may name."""
