"""Findings of lint: a closed list of codes, each with its severity and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hillclimb.spec.section import Section

Severity = Literal["error", "warning", "info"]
MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding."""

    severity: Severity
    about: str
    remedy: str


RULES: Mapping[str, Rule] = {
    "leak": Rule(
        "error",
        "a training task equals an eval task in prompt, environment and env_variables",
        "exclude one of each pair, or set filters.copies to drop",
    ),
    "leak_similar": Rule(
        "warning",
        "a training task's prompt equals an eval task's except for env_variables, numbers, case or"
        " punctuation",
        "check the examples; exclude training tasks that reveal an eval task",
    ),
    "eval_not_unique": Rule(
        "error",
        "an environment has equal eval tasks, which count as one",
        "set filters.copies to drop, and add tasks where too few remain",
    ),
    "duplicate_key_differs": Rule(
        "error",
        "rows with the same key differ; the first one in the file is used",
        "give each task its own key",
    ),
    "current_date_missing": Rule(
        "error",
        "a prompt has a date without a year, or one counted from today, and no CURRENT_DATE",
        "add CURRENT_DATE to env_variables, or exclude the tasks",
    ),
    "published_overruled": Rule(
        "error",
        "a published split is not followed, because earlier versions of the name used tasks for the"
        " other side",
        "import it under a new name; split.trained_may_become_eval uses its eval tasks anyway",
    ),
    "tools_over_budget": Rule(
        "error",
        "an environment's tools take as many tokens as the model's whole input may have",
        "raise rollout.max_input_length, or exclude the environment",
    ),
    "published_missing": Rule(
        "warning",
        "a published split names tasks that the version does not have",
        "check the file and its filters: without them it is not the published split",
    ),
    "unpublished": Rule(
        "warning",
        "tasks are excluded because the published split does not name them",
        "add them to the table, or remove them from the file",
    ),
    "option_names_nothing": Rule(
        "warning",
        "filters or split.held_out_envs have a name that no row of the file has",
        "correct the name, or remove it",
    ),
    "train_emptied": Rule(
        "warning",
        "the split policy's caps leave an environment no training task",
        "raise the cap; of md5_threshold, set split.max_env_train_share to null",
    ),
    "eval_below_minimum": Rule(
        "warning",
        "split.max_eval_total leaves an environment fewer eval tasks than split.min_eval_per_env",
        "raise split.max_eval_total, lower split.min_eval_per_env, or name fewer environments",
    ),
    "duplicate_key": Rule(
        "warning",
        "rows repeat the key of an earlier row and are left out",
        "remove the repeated rows from the file",
    ),
    "copies": Rule(
        "warning",
        "tasks under different keys are equal",
        "set filters.copies to drop",
    ),
    "no_eval": Rule(
        "warning",
        "an environment has training tasks and no eval tasks",
        "add tasks, or lower split.min_eval_per_env and raise split.eval_ratio (in a dataset with"
        " a new name if eval_barred is reported too)",
    ),
    "eval_barred": Rule(
        "warning",
        "an environment has fewer eval tasks than the split policy asks for, because earlier"
        " versions trained on the others",
        "create a dataset with a new name, or set split.trained_may_become_eval if you evaluate no"
        " model that was trained on an earlier version",
    ),
    "eval_too_small": Rule(
        "warning",
        "an environment's eval set can prove only changes larger than lint.detectable_change",
        "raise split.eval_ratio and split.max_eval_per_env (in a dataset with a new name, or with"
        " split.trained_may_become_eval, for tasks that earlier versions trained on), add tasks, or"
        " judge environments together",
    ),
    "env_variables_missing": Rule(
        "warning",
        "fewer tasks of an environment have env_variables than lint.min_env_variables",
        "export the tasks with their env_variables: the model needs date and user",
    ),
    "env_variable_uneven": Rule(
        "warning",
        "a variable that most tasks of an environment have is missing in some",
        "add it to the tasks named",
    ),
    "tools_crowd_context": Rule(
        "warning",
        "an environment's tools take more than half of the tokens of the model's input",
        "raise rollout.max_input_length, or expect episodes that end at it",
    ),
    "modality_not_trainable": Rule(
        "warning",
        "tasks need images, which no trainer reads yet",
        "set filters.modality to tool_use",
    ),
    "kept_from_lineage": Rule(
        "warning",
        "tasks are excluded because an earlier version used them for the other split",
        "none needed, or create a dataset with a new name that no model was trained on",
    ),
    "capped": Rule(
        "info",
        "tasks are excluded because the split policy's caps are reached",
        "raise the cap, or remove it",
    ),
    "verifier_missing": Rule(
        "info",
        "some tasks of an environment have a verifier and others do not",
        "add verifier_code, or check that the environment has a verifier under the task's key",
    ),
    "exclusion_unused": Rule(
        "info",
        "exclusions name tasks or environments that the version does not have",
        "correct their keys, or remove them",
    ),
    "tools_unused": Rule(
        "info",
        "lint.tool_tokens names an environment of which the version uses no task",
        "correct its name, or remove it",
    ),
    "tools_uncounted": Rule(
        "info",
        "environments without token counts of their tools, which lint.max_input_length cannot"
        " check",
        "run `hillclimb preview` on them, or set lint.tool_tokens",
    ),
    "detectable_change": Rule(
        "info",
        "the smallest change that the eval set can prove",
        "none needed: read verdicts with it in mind",
    ),
}
"""Severity, meaning and remedy of each finding, by code."""


class Finding(Section):
    """One thing lint found in one environment, or in the version as a whole."""

    code: str
    severity: Severity
    env_key: str | None
    """Null when it is about the version as a whole."""
    count: int
    """Tasks, groups of tasks or rows that it is about."""
    message: str
    examples: tuple[str, ...] = ()
    """At most five: keys, or keys with the words at fault."""
    remedy: str


def finding(
    code: str, env_key: str | None, count: int, message: str, examples: Sequence[str] = ()
) -> Finding:
    """Return a finding with the severity and remedy of its code."""
    rule = RULES[code]
    return Finding(
        code=code,
        severity=rule.severity,
        env_key=env_key,
        count=count,
        message=message,
        examples=tuple(examples[:MAX_EXAMPLES]),
        remedy=rule.remedy,
    )
