"""Each finding is found where it is, with its environment and examples, and not elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.lineage import Lineage
from hillclimb.datasets.format.rows import TaskRow
from hillclimb.datasets.lint.blocking import TOO_FEW
from hillclimb.datasets.lint.findings import MAX_EXAMPLES, RULES, Finding
from hillclimb.datasets.lint.leakage import normalised
from hillclimb.datasets.lint.lint import LintOptions
from hillclimb.datasets.lint.tool_tokens import ToolCount
from hillclimb.datasets.prepare import Prepared, PrepareOptions, prepare
from hillclimb.datasets.split.policies import (
    Md5ThresholdPolicy,
    PublishedPolicy,
    RankPolicy,
    SplitPolicy,
)
from hillclimb.spec.data import BLOCKING_LINT
from tests.hillclimb.datasets.tasks import task, tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def made(rows: list[TaskRow], split: SplitPolicy | None = None, **lint: Any) -> Prepared:
    options = PrepareOptions(split=split or RankPolicy(), lint=LintOptions(**lint))
    return prepare(rows, options, now=NOW)


def found(version: Prepared, code: str) -> list[Finding]:
    return [each for each in version.findings if each.code == code]


def published(**splits: str) -> PublishedPolicy:
    return PublishedPolicy.model_validate({"splits": splits})


def test_a_clean_dataset_has_nothing_to_answer_for() -> None:
    version = made(tasks({"booking": 600, "zillow": 600}))
    assert {each.code for each in version.findings} == {"detectable_change"}
    assert [each.env_key for each in version.findings] == [None, "booking", "zillow"]


def test_training_on_an_eval_task_is_a_leak() -> None:
    rows = [task("a", prompt="Same."), task("b", prompt="Same."), task("c", prompt="Other.")]
    rows.append(task("d", "zillow", prompt="Same."))
    split = published(a="eval", b="train", c="eval", d="train")
    (leak,) = found(made(rows, split), "leak")
    assert (leak.severity, leak.env_key, leak.count) == ("error", "booking", 1)
    assert leak.message == "1 of 2 eval tasks are asked in training too"
    assert leak.examples == ("a (eval) = b (train)",)
    assert found(made(rows, split), "leak_similar") == [], "said once"
    assert found(made(rows, published(a="eval", b="eval", c="train", d="train")), "leak") == []


def test_a_prompt_that_differs_in_numbers_and_dress_is_a_warning() -> None:
    rows = [
        task("a", prompt="Book 3 nights from March 5th, for $1,200!"),
        task("b", prompt="book 14 nights  from march 12th for $99"),
        task("c", prompt="Book 3 nights from March 5th, for $1,200!", env_variables={"A": "1"}),
        task("d", prompt="Cancel 3 nights from March 5th."),
    ]
    split = published(a="eval", b="train", c="train", d="train")
    (similar,) = found(made(rows, split), "leak_similar")
    assert (similar.severity, similar.count) == ("warning", 1)
    assert found(made(rows, split), "leak") == []
    assert found(made([rows[0], rows[3]], split), "leak_similar") == []
    assert normalised("Room 12/3, at 10:30 — OK?") == "room 0 at 0 ok"


def test_excluded_tasks_are_at_no_fault() -> None:
    rows = [task("a", prompt="Same."), task("b", prompt="Same."), task("c", prompt="More.")]
    rows.append(task("d", prompt="Come next Friday.", env_variables={}))
    options = PrepareOptions(split=published(a="eval", b="train", c="train", d="train"))
    out = [Exclusion(scope="task", key=key, reason="bad") for key in ("b", "d")]
    version = prepare(rows, options, now=NOW, exclusions=out)
    codes = {each.code for each in version.findings}
    assert not codes & {"leak", "current_date_missing", "env_variables_missing"}
    assert "exclusion_unused" not in codes


def test_eval_tasks_that_are_one_task_are_counted_as_one() -> None:
    """The seeds' ticketmaster: 28 eval rows, one unique task."""
    rows = [task(f"t{n:02}", "ticketmaster", prompt="Buy the cheapest.") for n in range(28)]
    version = made([*rows, task("x", "ticketmaster")], published(**{r.key: "eval" for r in rows}))
    (repeated,) = found(version, "eval_not_unique")
    assert (repeated.severity, repeated.count) == ("error", 27)
    assert repeated.message == "28 eval tasks ask only 1 different things"
    assert repeated.examples == ("t00 = t01 = t02",)
    (copies,) = found(version, "copies")
    assert copies.count == 1
    (small,) = found(version, "eval_too_small")
    assert small.count == 1
    assert small.message.startswith("1 different eval tasks show no change at all on the same")
    assert version.table[0].unique_eval == 1


def test_repeated_keys_are_reported_and_differing_ones_are_errors() -> None:
    rows = tasks({"booking": 6})
    same, other = rows[0].model_copy(), rows[1].model_copy(update={"prompt": "Other."})
    version = made([*rows, same, other, other])
    (repeats,) = found(version, "duplicate_key")
    assert (repeats.count, repeats.message) == (3, "3 rows repeat 2 keys of earlier rows")
    (differing,) = found(version, "duplicate_key_differs")
    assert (differing.severity, differing.examples) == ("error", ("task_booking_1",))


def test_missing_env_variables_are_counted_per_environment() -> None:
    rows = tasks({"zillow": 100, "booking": 90})
    rows += tasks({"booking": 10}, start=90, env_variables={})
    version = made(rows)
    (missing,) = found(version, "env_variables_missing")
    assert (missing.env_key, missing.count) == ("booking", 10)
    assert missing.message == "10 of 100 tasks have no env_variables"
    assert len(missing.examples) == MAX_EXAMPLES
    assert found(made(rows, min_env_variables=0.9), "env_variables_missing") == []
    assert [(c.with_env_variables, c.total) for c in version.table] == [(90, 100), (100, 100)]


def test_a_variable_that_some_tasks_lack_is_named() -> None:
    rows = tasks({"zillow": 20})
    rows += tasks({"zillow": 2}, start=20, env_variables={"CURRENT_DATE": "2026-03-01", "B": ""})
    (uneven,) = found(made(rows), "env_variable_uneven")
    assert uneven.message == "LOGGED_IN_USER is missing in 2 of 22 tasks with variables"
    assert uneven.examples == ("task_zillow_20", "task_zillow_21")


def test_a_partial_date_without_current_date_is_an_error() -> None:
    bare = {"LOGGED_IN_USER": "mira"}
    rows = tasks({"zillow": 20})
    rows += [
        task("p1", "zillow", prompt="Schedule a tour on January 30th.", env_variables=bare),
        task("p2", "zillow", prompt="Tour it on January 30th, 2026.", env_variables=bare),
        task("p3", "zillow", prompt="Schedule a tour on January 30th."),
        task(
            "p4",
            "zillow",
            prompt="Come next Friday or on May 3.",
            env_variables={"CURRENT_DATE": " "},
        ),
    ]
    (missing,) = found(made(rows), "current_date_missing")
    assert (missing.severity, missing.count) == ("error", 2)
    assert missing.examples == ("p1: January 30th", "p4: next Friday, May 3")


def test_an_environment_without_eval_tasks_is_named() -> None:
    version = made(tasks({"booking": 600, "dropbox": 3}))
    (none,) = found(version, "no_eval")
    assert (none.env_key, none.message) == ("dropbox", "3 training tasks and no eval task")


def test_the_change_an_eval_set_shows_is_said_from_its_unique_tasks() -> None:
    version = made(tasks({"booking": 600, "fira": 100}))
    (small,) = found(version, "eval_too_small")
    assert small.message == (
        "10 different eval tasks show a change of 70 points on the same tasks before and after"
        " (5 % of them lost), and no change at all from 50 % on different tasks;"
        " 25 points take 42 tasks"
    )
    whole, booking = found(version, "detectable_change")
    assert (whole.env_key, whole.count) == (None, 70)
    assert booking.message.startswith("60 different eval tasks show a change of 19 points on the")
    strict = made(tasks({"booking": 600}), detectable_change=0.1)
    assert "10 points take 155 tasks" in found(strict, "eval_too_small")[0].message


def test_tools_are_held_against_the_context() -> None:
    rows = tasks({"booking": 60, "github": 60, "reddit": 60})
    tokens = {"booking": 3_000, "github": 26_000, "reddit": 15_000, "unused": 99_000}
    version = made(rows, tool_tokens=tokens, max_input_length=24_000)
    (over,) = found(version, "tools_over_budget")
    assert over.env_key == "github"
    assert over.message == "the tools take 26,000 of 24,000 tokens, given in lint.tool_tokens"
    assert [each.env_key for each in found(version, "tools_crowd_context")] == ["reddit"]
    (unused,) = found(version, "tools_unused")
    assert (unused.severity, unused.examples) == ("info", ("unused",))
    with pytest.raises(ValidationError, match="has no effect without max_input_length"):
        LintOptions(tool_tokens=tokens)


def test_tools_that_a_run_counted_stand_in_for_those_not_given() -> None:
    rows = tasks({"booking": 60, "github": 60})
    counted = {
        env: ToolCount(tokens=30_000, source=f"counted by run_{env}")
        for env in ("booking", "github", "zillow")
    }
    options = PrepareOptions(lint=LintOptions(max_input_length=24_000, tool_tokens={"booking": 9}))
    version = prepare(rows, options, now=NOW, measured=counted)
    (over,) = found(version, "tools_over_budget")
    assert over.env_key == "github"
    assert over.message == "the tools take 30,000 of 24,000 tokens, counted by run_github"


def test_tools_that_nobody_counted_are_said_where_a_budget_is_given() -> None:
    """`lint --max-input-length` found nothing in a project without runs, as if all were well."""
    rows = tasks({"booking": 60, "github": 60, "zillow": 60})
    counted = {"zillow": ToolCount(tokens=9, source="counted by run_1")}
    options = PrepareOptions(lint=LintOptions(max_input_length=24_000, tool_tokens={"github": 9}))
    (unknown,) = found(prepare(rows, options, now=NOW, measured=counted), "tools_uncounted")
    assert (unknown.severity, unknown.count, unknown.examples) == ("info", 1, ("booking",))
    assert "1 of 3 environments" in unknown.message
    assert "hillclimb preview" in unknown.remedy
    assert found(made(rows), "tools_uncounted") == [], "nobody asked"
    away = [Exclusion(scope="env", key="booking", reason="down")]
    without = prepare(rows, options, now=NOW, measured=counted, exclusions=away)
    assert found(without, "tools_uncounted") == []


@pytest.mark.parametrize("size", [1, 4])
def test_a_cap_that_leaves_no_training_task_is_a_warning(size: int) -> None:
    """The historic share of a fifth, rounded down, is nothing below five tasks."""
    rows = tasks({"booking": size})
    version = made(rows, Md5ThresholdPolicy())
    assert (version.table[0].train, version.table[0].excluded) == (0, size)
    (emptied,) = found(version, "train_emptied")
    assert (emptied.severity, emptied.env_key, emptied.count) == ("warning", "booking", size)
    assert "max_env_train_share" in emptied.remedy
    assert found(made(rows, Md5ThresholdPolicy(max_env_train_share=None)), "train_emptied") == []
    assert found(made(tasks({"booking": 5}), Md5ThresholdPolicy()), "train_emptied") == []
    assert found(made(rows, RankPolicy(max_env_train_share=0.2)), "train_emptied") == []


def test_what_cannot_be_trained_or_graded_alike_is_named() -> None:
    rows = tasks({"booking": 20}, verifier_code="def verify(env): ...")
    rows += tasks({"booking": 2}, start=20, task_modality="browser_use")
    version = made(rows)
    assert [each.count for each in found(version, "modality_not_trainable")] == [2]
    (without,) = found(version, "verifier_missing")
    assert without.message == "2 of 22 tasks carry no verifier_code"
    assert found(made(tasks({"booking": 20})), "verifier_missing") == []


def test_what_the_policy_leaves_out_is_never_silent() -> None:
    rows = tasks({"booking": 200, "zillow": 20})
    version = made(rows, RankPolicy(max_train_per_env=50))
    (capped,) = found(version, "capped")
    assert (capped.env_key, capped.count) == ("booking", 130)
    assert capped.message == (
        "130 tasks are excluded: above the most training tasks that the policy allows"
    )
    held_out = RankPolicy(held_out_envs={"tool_use": ("zillow",)})
    second = prepare(
        rows, PrepareOptions(split=held_out), now=NOW, lineage=Lineage.of([version.split])
    )
    (kept,) = found(second, "kept_from_lineage")
    assert (kept.env_key, kept.count) == ("zillow", 20)


def test_an_exclusion_that_names_nothing_is_said() -> None:
    out = [
        Exclusion(scope="env", key="bokking", reason="down"),
        Exclusion(scope="task", key="nope", reason="old", expires_at=NOW),
    ]
    version = prepare(tasks({"booking": 9}), PrepareOptions(), now=NOW, exclusions=out)
    assert [each.message for each in found(version, "exclusion_unused")] == [
        "no env 'bokking' to exclude (down)"
    ]


def test_many_exclusions_that_name_nothing_are_one_finding() -> None:
    """A dataset collects them: 500 lines about old tasks would hide everything else."""
    out = [Exclusion(scope="task", key=f"old{n:03}", reason="r" * 900) for n in range(500)]
    version = prepare(tasks({"booking": 9}), PrepareOptions(), now=NOW, exclusions=out)
    (unused,) = found(version, "exclusion_unused")
    assert unused.count == 500
    assert unused.message == "500 exclusions name no task and no environment of this version"
    assert unused.examples[0] == f"task old000 ({'r' * 60})"
    assert len(unused.examples) == MAX_EXAMPLES


def test_names_in_the_options_that_no_row_has_are_said_with_what_was_meant() -> None:
    rows = tasks({"booking": 20, "github": 20, "outlook": 20}, difficulty=1)
    options = PrepareOptions.model_validate(
        {
            "filters": {"env_keys": ["booking", "gihub", "outlook"], "difficulty": [1, 3]},
            "split": {
                "policy": "rank",
                "held_out_envs": {"tool_use": ["outlok"], "computer_use": ["outlook"]},
            },
        }
    )
    said = found(prepare(rows, options, now=NOW), "option_names_nothing")
    assert [each.examples for each in said] == [
        ("gihub (did you mean github?)",),
        ("3",),
        ("outlook",),
        ("outlok (did you mean outlook?)",),
    ]
    assert {each.severity for each in said} == {"warning"}
    assert said[0].message.startswith("filters.env_keys names gihub (did you mean github?), and no")
    preset = Md5ThresholdPolicy.model_validate({"preset": "first"})
    assert found(made(tasks({"booking": 20}), preset), "option_names_nothing") == []
    few = PrepareOptions.model_validate({"filters": {"env_keys": ["booking"], "max_tasks": 1}})
    assert found(prepare(rows, few, now=NOW), "option_names_nothing") == []


def test_a_published_table_and_a_file_that_do_not_fit_are_said() -> None:
    rows = tasks({"booking": 4})
    split = published(
        task_booking_0="eval", task_booking_1="train", gone="eval", **{"a\0": "train"}
    )
    version = made(rows, split)
    (missing,) = found(version, "published_missing")
    assert (missing.count, missing.examples) == (2, ("a\\x00 (train)", "gone (eval)"))
    (unnamed,) = found(version, "unpublished")
    assert (unnamed.count, unnamed.severity) == (2, "warning")
    assert unnamed.examples == ("task_booking_2", "task_booking_3")


def test_a_published_split_that_earlier_versions_overrule_is_an_error() -> None:
    """Into a name with another split, 100 tasks gave 3 eval tasks and excluded 29."""
    rows = tasks({"booking": 100})
    first = made(rows)
    table = {row.key: "eval" if n < 30 else "train" for n, row in enumerate(rows)}
    options = PrepareOptions(split=published(**table))
    second = prepare(rows, options, now=NOW, lineage=Lineage.of([first.split]))
    overruled = found(second, "published_overruled")
    assert {each.severity for each in overruled} == {"error"}
    assert sum(each.count for each in overruled) == second.table[0].excluded > 20
    allowed = PrepareOptions(
        split=options.split.model_copy(update={"trained_may_become_eval": True})
    )
    third = prepare(rows, allowed, now=NOW, lineage=Lineage.of([first.split]))
    assert third.table[0].eval == 30
    assert {each.message for each in found(third, "published_overruled")} == {
        f"{third.table[0].excluded} tasks are excluded: published for training, but an earlier"
        " version evaluated on it"
    }


def test_a_past_that_keeps_eval_tasks_away_is_named_with_a_way_out() -> None:
    """A larger eval_ratio under the same name changed nothing, and the remedy was to raise it."""
    rows = tasks({"booking": 40, "fira": 600})
    first = made(rows)
    past = Lineage.of([first.split])
    larger = PrepareOptions(split=RankPolicy(eval_ratio=0.4))
    second = prepare(rows, larger, now=NOW, lineage=past)
    assert [(each.env_key, each.eval) for each in second.table] == [("booking", 0), ("fira", 60)]
    (barred,) = found(second, "eval_barred")
    assert (barred.severity, barred.env_key, barred.count) == ("warning", "booking", 16)
    assert barred.message == (
        "16 of 16 tasks that the policy asks for are training tasks, because an earlier version"
        " trained on them: 0 eval tasks"
    )
    assert "new name" in barred.remedy
    assert "split.trained_may_become_eval" in barred.remedy
    for code in ("no_eval", "eval_too_small"):
        assert "new name" in RULES[code].remedy
    allowed = larger.split.model_copy(update={"trained_may_become_eval": True})
    lifted = prepare(rows, PrepareOptions(split=allowed), now=NOW, lineage=past)
    fresh = prepare(rows, larger, now=NOW)
    for version in (lifted, fresh):
        assert version.table[0].eval == 16
        assert found(version, "eval_barred") == []
    same = prepare(rows, PrepareOptions(), now=NOW, lineage=past)
    assert found(same, "eval_barred") == []
    held_out = PrepareOptions(split=RankPolicy(held_out_envs={"tool_use": ("booking",)}))
    held = prepare(rows, held_out, now=NOW, lineage=past)
    assert found(held, "eval_barred") == [], "kept_from_lineage says it"


def test_a_total_that_leaves_environments_below_their_minimum_is_said() -> None:
    rows = tasks({"booking": 100, "github": 100, "zillow": 30})
    version = made(rows, RankPolicy(max_eval_total=8))
    below = found(version, "eval_below_minimum")
    assert [(each.env_key, each.count) for each in below] == [("booking", 4), ("github", 4)]
    assert below[0].message == (
        "max_eval_total 8 leaves 4 of 10 eval tasks, fewer than min_eval_per_env 5"
    )
    assert found(made(rows, RankPolicy(max_eval_total=12)), "eval_below_minimum") == []


def test_tasks_that_lint_finds_are_left_out_when_asked() -> None:
    rows = tasks({"booking": 20})
    rows += [task("d1", prompt="Come next Friday.", env_variables={"LOGGED_IN_USER": "mira"})]
    rows += [task("d2", prompt="Work Monday to Friday.", env_variables={"LOGGED_IN_USER": "a"})]
    rows += [task("e1", env_variables={})]
    options = PrepareOptions(exclude_by_lint=("current_date_missing", "env_variables_missing"))
    version = prepare(rows, options, now=NOW)
    reasons = {each.key: each.reason for each in version.split if each.split == "excluded"}
    assert reasons == {
        "d1": f"lint: current_date_missing: {RULES['current_date_missing'].about}",
        "e1": f"lint: env_variables_missing: {RULES['env_variables_missing'].about}",
    }
    assert found(version, "current_date_missing") == []


def test_errors_come_first_and_carry_the_severity_and_remedy_of_their_code() -> None:
    rows = [task("a", prompt="Same."), task("b", prompt="Same."), task("c", env_variables={})]
    version = made(rows, published(a="eval", b="train", c="train"))
    severities = [each.severity for each in version.findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert set(severities) >= {"error", "warning"}
    for each in version.findings:
        assert (each.severity, each.remedy) == (RULES[each.code].severity, RULES[each.code].remedy)
        assert len(each.examples) <= MAX_EXAMPLES


def test_the_codes_that_block_a_run_are_the_errors_and_too_few_eval_tasks() -> None:
    errors = [code for code, rule in RULES.items() if rule.severity == "error"]
    assert list(BLOCKING_LINT) == [*errors, TOO_FEW]


@pytest.mark.parametrize("code", sorted(RULES))
def test_every_code_is_found_by_a_test_here(code: str) -> None:
    assert f'"{code}"' in Path(__file__).read_text()
