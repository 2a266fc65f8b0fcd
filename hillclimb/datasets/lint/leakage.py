"""Leakage: training tasks that reveal eval tasks, and eval tasks that repeat one another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import TaskRow
from hillclimb.datasets.lint.findings import Finding, finding

_DIGITS = re.compile(r"\d+(?:[.,:/]\d+)*(?:st|nd|rd|th)?")
_NOT_WORDS = re.compile(r"[\W_]+")


def find_leaks(
    env_key: str, rows: Sequence[TaskRow], split: Mapping[str, SplitRow]
) -> Iterator[Finding]:
    """Compare the train and eval tasks of one environment (those that are not excluded)."""
    train = [row for row in rows if split[row.key].split == "train"]
    evals = [row for row in rows if split[row.key].split == "eval"]
    exact = _pairs(
        {split[row.key].fingerprint: row.key for row in train},
        {row.key: split[row.key].fingerprint for row in evals},
    )
    if exact:
        message = f"{len(exact)} of {len(evals)} eval tasks are asked in training too"
        yield finding("leak", env_key, len(exact), message, _examples(exact))
    similar = _pairs(
        {normalised(row.prompt): row.key for row in train},
        {row.key: normalised(row.prompt) for row in evals if row.key not in exact},
    )
    if similar:
        message = (
            f"{len(similar)} of {len(evals)} eval tasks have the prompt of a training task but for"
            " env_variables, numbers, case or punctuation"
        )
        yield finding("leak_similar", env_key, len(similar), message, _examples(similar))
    by_question: dict[str, list[str]] = {}
    for row in evals:
        by_question.setdefault(split[row.key].fingerprint, []).append(row.key)
    if len(by_question) < len(evals):
        message = f"{len(evals)} eval tasks ask only {len(by_question)} different things"
        repeated = [" = ".join(keys[:3]) for keys in by_question.values() if len(keys) > 1]
        yield finding("eval_not_unique", env_key, len(evals) - len(by_question), message, repeated)


def normalised(prompt: str) -> str:
    """Return a prompt in lower case with every number as 0 and without punctuation."""
    return _NOT_WORDS.sub(" ", _DIGITS.sub("0", prompt.casefold())).strip()


def _pairs(train: Mapping[str, str], evals: Mapping[str, str]) -> dict[str, str]:
    """Return the training task of each eval task that has the same mark."""
    return {key: train[mark] for key, mark in evals.items() if mark in train}


def _examples(pairs: Mapping[str, str]) -> list[str]:
    return [f"{eval_key} (eval) = {train_key} (train)" for eval_key, train_key in pairs.items()]
