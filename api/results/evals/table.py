"""The eval table of a run: one row per step and decoding, with every group of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from api.results.evals.store import count_outcomes, list_evals
from api.results.evals.summary import breakdowns, rate_facts
from api.tables import Eval
from hillclimb.stats.pass_rate import TaskCount


def eval_table(
    session: Session, run_id: str, *, threshold: float | None = None, verifier: str | None = None
) -> list[dict[str, Any]]:
    """Return the evaluations of a run by step and decoding, with their rates.

    Each has `all`, the breakdowns, `seen_templates` and `held_out_templates`; a group has pass@1
    and, if tasks were sampled more than once, `pass_at_n` with its k, as from `rate_facts`.
    `threshold` replaces that of every evaluation; `verifier` takes the grades of its rescoring, and
    the evaluations that it has.

    Raises:
        NoSuchRescoring: no evaluation was rescored by `verifier`.
    """
    evals = list_evals(session, run_id, threshold=threshold, verifier=verifier)
    counts = count_outcomes(session, run_id, evals, verifier)
    return [_row(evaluation, counts[evaluation.step, evaluation.decoding]) for evaluation in evals]


def _row(evaluation: Eval, counts: Sequence[TaskCount]) -> dict[str, Any]:
    k = evaluation.n_samples_per_prompt
    return {
        "step": evaluation.step,
        "attempt": evaluation.attempt,
        "decoding": evaluation.decoding,
        "temperature": evaluation.temperature,
        "n_samples_per_prompt": k,
        "pass_threshold": evaluation.pass_threshold,
        "duration_s": evaluation.duration_s,
        "created_at": evaluation.at,
        "stopped_early": evaluation.stopped_early,
        "all": rate_facts(counts, k),
        **breakdowns(counts, k),
        "seen_templates": rate_facts([c for c in counts if not c.held_out_template], k),
        "held_out_templates": rate_facts([c for c in counts if c.held_out_template], k),
    }
