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
        "a training task asks the same as an eval task: prompt, environment and env_variables",
        "exclude one of each pair, or set filters.copies to drop",
    ),
    "leak_similar": Rule(
        "warning",
        "a training task's prompt is an eval task's but for env_variables, numbers, case or"
        " punctuation",
        "look at the examples; exclude training tasks that give an eval task away",
    ),
    "eval_not_unique": Rule(
        "error",
        "eval tasks of an environment ask the same, so they count less than their number",
        "set filters.copies to drop, and add tasks where too few are left",
    ),
    "duplicate_key_differs": Rule(
        "error",
        "rows with one key say different things; the first of the file was taken",
        "give each task a key of its own",
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
        "import it under a fresh name; split.trained_may_become_eval takes eval tasks even so",
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
        "add them to the table, or leave them out of the file",
    ),
    "option_names_nothing": Rule(
        "warning",
        "filters or split.held_out_envs name something that no row of the file has",
        "correct the name, or leave it out",
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
        "rows repeat the key of an earlier row and were left out",
        "remove the repeated rows from the file",
    ),
    "copies": Rule(
        "warning",
        "tasks ask the same under different keys",
        "set filters.copies to drop",
    ),
    "no_eval": Rule(
        "warning",
        "an environment is trained on and never measured",
        "add tasks, or lower split.min_eval_per_env and raise split.eval_ratio (in a dataset of a"
        " fresh name where eval_barred is found too)",
    ),
    "eval_barred": Rule(
        "warning",
        "an environment has fewer eval tasks than the split policy asks for, because earlier"
        " versions trained on the others",
        "make it as a dataset of a fresh name, or set split.trained_may_become_eval where no model"
        " trained on an earlier version is measured",
    ),
    "eval_too_small": Rule(
        "warning",
        "an environment's eval set shows only changes larger than lint.detectable_change",
        "raise split.eval_ratio and split.max_eval_per_env (in a dataset of a fresh name, or with"
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
        "nothing, or make a dataset under a new name that no model was trained on",
    ),
    "capped": Rule(
        "info",
        "tasks are excluded because the split policy's caps are reached",
        "raise the cap, or leave it out",
    ),
    "verifier_missing": Rule(
        "info",
        "some tasks of an environment carry a verifier and others do not",
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
        "correct its name, or leave it out",
    ),
    "tools_uncounted": Rule(
        "info",
        "environments whose tools nobody counted, so that lint.max_input_length says nothing of"
        " them",
        "run `hillclimb preview` on them, or give lint.tool_tokens",
    ),
    "detectable_change": Rule(
        "info",
        "the smallest change that the eval set shows",
        "nothing: read verdicts with it in mind",
    ),
}
"""Every finding there is, by code."""


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
