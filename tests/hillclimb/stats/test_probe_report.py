"""The words a probe says about an environment, and what it takes to say them."""

from collections.abc import Sequence

import pytest

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats import probe_report
from hillclimb.stats.probe_report import PROBE_RULE, ProbeVerdict, advise, report_facts, report_rows
from hillclimb.stats.signal_estimate import SignalShare
from tests.hillclimb.stats.test_pass_rate import row


def rows(
    passes: Sequence[int], *, k: int = 8, env: str = "booking", missing: int = 0
) -> list[OutcomeRow]:
    """k rollouts of one task per entry, of which so many pass and the last `missing` have none."""
    return [
        row(
            f"{env}-{task:03d}",
            None if sample >= k - missing else float(sample < passed),
            env=env,
            sample=sample,
        )
        for task, passed in enumerate(passes)
        for sample in range(k)
    ]


def unstarted(found: OutcomeRow) -> OutcomeRow:
    return found.model_copy(
        update={
            "status": OutcomeStatus.UNGRADED,
            "score": None,
            "reason": "late",
            "stop_reason": StopReason.NOT_STARTED,
        }
    )


def verdict_of(found: Sequence[OutcomeRow], *, group_size: int = 8) -> ProbeVerdict:
    report = report_rows(found, pass_threshold=1.0, group_size=group_size)
    return report.environments["booking"].verdict


@pytest.mark.parametrize(
    ("passes", "verdict"),
    [
        # Wilson's interval of 0 of n ends at z² / (n + z²), z² = 3.84: 9.9 % of 35, 10.2 % of 34.
        ([8] * 35, ProbeVerdict.SATURATED),
        ([8] * 34, ProbeVerdict.INCONCLUSIVE),
        ([0] * 35, ProbeVerdict.HOPELESS),
        ([0] * 34, ProbeVerdict.INCONCLUSIVE),
        ([0, 8] * 18, ProbeVerdict.SPLIT),
        ([8] * 59 + [7], ProbeVerdict.SATURATED),  # 1 of 60 groups: 0.3 % to 8.9 %
        ([0] * 59 + [1], ProbeVerdict.HOPELESS),
        ([0, 8] * 29 + [0, 4], ProbeVerdict.SPLIT),
        ([8] * 36 + [0] * 4, ProbeVerdict.SATURATED),  # 90 % pass
        ([8] * 35 + [0] * 5, ProbeVerdict.SPLIT),
        ([8] * 4 + [0] * 36, ProbeVerdict.HOPELESS),  # 10 % pass
        ([8] * 5 + [0] * 35, ProbeVerdict.SPLIT),
        ([4] * 20, ProbeVerdict.INFORMATIVE),
        # 12 of 80 groups, 15 %: 8.8 % to 24.4 %, and 14 of 80: 10.7 % to 27.3 %. Rule v1 called the
        # first hopeless and the second informative.
        ([4] * 12 + [0] * 68, ProbeVerdict.INCONCLUSIVE),
        ([4] * 14 + [0] * 66, ProbeVerdict.INFORMATIVE),
        ([0, 8] * 8 + [4] * 4, ProbeVerdict.INCONCLUSIVE),  # 4 of 20 groups: 8 % to 42 %
        ([0, 8] * 10 + [4] * 10, ProbeVerdict.INFORMATIVE),
        ([4] * 4, ProbeVerdict.INCONCLUSIVE),  # too few tasks, however clear they are
        ([4] * 5, ProbeVerdict.INFORMATIVE),
    ],
)
def test_the_rule_on_complete_probes(passes: list[int], verdict: ProbeVerdict) -> None:
    assert verdict_of(rows(passes)) is verdict


def test_a_share_counted_in_smaller_groups_is_a_lower_bound_for_larger_ones() -> None:
    """A group of 16 has signal wherever 8 of its members have."""
    report = report_rows(rows([4] * 20), pass_threshold=1.0, group_size=16)
    booking = report.environments["booking"]
    assert booking.verdict is ProbeVerdict.INFORMATIVE
    assert (booking.signal.method, booking.signal.value) == ("unknown", None)
    assert booking.why.startswith(
        "100% of groups of 8 are expected to carry signal (84%–100%, 20 tasks); the share for"
        " groups of 16 is unknown; pass@1 is 50%"
    )


@pytest.mark.parametrize("passed", [0, 8])
def test_groups_larger_than_the_rollouts_of_a_task_are_never_called_worthless(passed: int) -> None:
    dead = rows([passed] * 100)
    assert verdict_of(dead, group_size=8) is not ProbeVerdict.INCONCLUSIVE
    booking = report_rows(dead, pass_threshold=1.0, group_size=16).environments["booking"]
    assert booking.verdict is ProbeVerdict.INCONCLUSIVE
    assert booking.why.endswith(
        "the share for groups of 16 is unknown: raise probe.n_samples_per_prompt to 16"
    )


def test_one_in_ten_rollouts_in_trouble_is_unhealthy_also_where_retries_mended_it() -> None:
    found = rows([4] * 10)
    mended = [
        each.model_copy(update={"num_infra_retries": 1}) if index % 10 == 0 else each
        for index, each in enumerate(found)
    ]
    assert verdict_of(mended) is ProbeVerdict.UNHEALTHY
    fewer = [each.model_copy(update={"num_infra_retries": 0}) if i < 10 else each
             for i, each in enumerate(mended)]  # fmt: skip
    assert verdict_of(fewer) is ProbeVerdict.INFORMATIVE
    assert verdict_of([row(f"t{task}", None) for task in range(3)]) is ProbeVerdict.UNHEALTHY


def test_missing_outcomes_that_could_change_the_word_make_it_inconclusive() -> None:
    """Few enough to be healthy; counted as fails they make signal where there was none."""
    saturated = rows([8] * 40)
    assert verdict_of(saturated) is ProbeVerdict.SATURATED
    for task in range(4):
        saturated[8 * task] = row(f"booking-{task:03d}", None)
    assert verdict_of(saturated) is ProbeVerdict.INCONCLUSIVE
    informative = rows([4] * 20)
    for task in range(4):
        informative[8 * task] = row(f"booking-{task:03d}", None)
    assert verdict_of(informative) is ProbeVerdict.INFORMATIVE


def test_tasks_that_the_clock_left_out_do_not_blur_what_the_others_say() -> None:
    """Which tasks were not begun was drawn before: 50 dead ones of 100 are enough for the word."""
    dead = rows([0] * 100)
    cut = [*dead[:400], *map(unstarted, dead[400:])]
    assert verdict_of(cut) is ProbeVerdict.HOPELESS
    few = [*dead[:80], *map(unstarted, dead[80:])]
    booking = report_rows(few, pass_threshold=1.0, group_size=8).environments["booking"]
    assert booking.verdict is ProbeVerdict.INCONCLUSIVE
    assert "give it more time (probe.budget_minutes" in booking.why


def test_rollouts_never_begun_are_missing_and_no_sign_of_ill_health() -> None:
    found = rows([8] * 20)
    half = [*found[:80], *map(unstarted, found[80:])]
    report = report_rows(half, pass_threshold=1.0, group_size=8)
    booking = report.environments["booking"]
    assert booking.verdict is ProbeVerdict.INCONCLUSIVE
    assert (booking.begun.num_begun, booking.begun.num_troubled) == (80, 0)
    assert booking.pass_rate.coverage == 0.5
    assert "80 of 160 rollouts have no outcome" in booking.why
    nothing = report_rows([*map(unstarted, found)], pass_threshold=1.0, group_size=8)
    assert nothing.environments["booking"].verdict is ProbeVerdict.INCONCLUSIVE
    assert nothing.environments["booking"].why == "no task has two graded rollouts"
    assert nothing.advised_group_size is None


def test_a_report_says_why_in_numbers() -> None:
    report = report_rows(
        [
            *rows([4] * 10),
            *rows([8] * 40, env="hubspot"),
            *rows([0, 8] * 20, env="outlook"),
            *rows([0] * 12, k=2, env="zillow"),
        ],
        pass_threshold=1.0,
        group_size=8,
    )
    assert list(report.environments) == ["booking", "hubspot", "outlook", "zillow"]
    booking, hubspot = report.environments["booking"], report.environments["hubspot"]
    assert booking.why == (
        "100% of groups of 8 are expected to carry signal (69%–100%, 10 tasks); pass@1 is 50% over"
        " 80 rollouts"
    )
    assert hubspot.why.endswith("pass@1 is 100% over 320 rollouts")
    assert report.environments["outlook"].why == (
        "0% of groups of 8 are expected to carry signal (0%–9%, 40 tasks); pass@1 is 50% over 320"
        " rollouts, of 40 tasks 20 passed each time and 20 never"
    )
    assert report.environments["zillow"].why.endswith(
        "12 tasks); the share for groups of 8 is unknown: raise probe.n_samples_per_prompt to 8"
    )
    assert report.rule == PROBE_RULE


def share(size: int, value: float | None) -> SignalShare:
    return SignalShare(
        group_size=size, value=value, low=0.0, high=1.0, num_tasks=9, method="counted"
    )


@pytest.mark.parametrize(
    ("values", "advised"),
    [
        ({2: 0.3, 4: 0.49, 6: 0.5, 16: 0.9}, 6),  # half of the groups
        ({2: 0.05, 8: 0.3, 12: 0.37, 14: 0.4, 16: 0.44}, 14),  # 90 % of 0.44 is 0.396
        ({2: 0.6, 16: 0.9}, 2),
        ({2: 0.0, 16: 0.0}, None),
        ({2: 0.0, 16: 0.1}, 16),  # just worthwhile
        ({2: 0.02, 16: 0.09}, None),  # no size is worthwhile
        ({2: None, 16: None}, None),
    ],
)
def test_the_advice_is_the_smallest_size_with_enough_signal(
    values: dict[int, float | None], advised: int | None
) -> None:
    assert advise([share(size, value) for size, value in values.items()]) == advised


def test_the_run_is_advised_on_its_informative_environments_alone() -> None:
    found = [*rows([4] * 10), *rows([8] * 40, env="hubspot"), *rows([1] * 10, env="github")]
    report = report_rows(found, pass_threshold=1.0, group_size=8)
    verdicts = {key: each.verdict.value for key, each in report.environments.items()}
    assert verdicts == {"booking": "informative", "hubspot": "saturated", "github": "informative"}
    assert report.environments["booking"].advised_group_size == 2, "32 of 56 pairs are mixed"
    assert report.environments["github"].advised_group_size == 4, "half of all fours have the pass"
    assert report.group_size == 8
    # 1 of 8 passes: 2/8 of pairs are mixed; 4 of 8: 32/56 of pairs. Their mean is 0.41, and of
    # threes (3/8 + 6/7) / 2 = 0.62.
    assert report.advised_group_size == 3
    assert report.advice.startswith("rollout.n_samples_per_prompt 3: 62% of groups carry signal")


def test_a_size_that_one_environment_does_not_know_is_not_recommended() -> None:
    """Of pairs 32 / 56 and all have signal, 79 % on average; larger groups are known in one."""
    found = [*rows([4] * 10), *rows([1] * 20, k=2, env="github")]
    report = report_rows(found, pass_threshold=1.0, group_size=2)
    assert report.advised_group_size == 2
    assert report.advice == (
        "rollout.n_samples_per_prompt 2: 79% of groups carry signal in the informative"
        " environments (79% at 2)"
    )


def test_two_rollouts_of_a_task_are_a_group() -> None:
    report = report_rows(rows([0] * 24 + [2] * 16, k=2), pass_threshold=1.0, group_size=2)
    booking = report.environments["booking"]
    assert booking.verdict is ProbeVerdict.SPLIT
    assert booking.why.endswith("of 40 tasks 16 passed each time and 24 never")


def test_one_rollout_of_a_task_is_none() -> None:
    report = report_rows(rows([1] * 20, k=1), pass_threshold=1.0, group_size=8)
    booking = report.environments["booking"]
    assert (booking.pass_rate.value, booking.signal.value) == (1.0, None)
    assert booking.verdict is ProbeVerdict.INCONCLUSIVE
    assert booking.why == "no task has two graded rollouts"


def test_two_words_that_the_missing_outcome_decides_between_are_inconclusive() -> None:
    """54 of 60 tasks pass: 90 % is saturated. With one rollout failed it is less, and split."""
    found = rows([8] * 54 + [0] * 6)
    assert verdict_of(found) is ProbeVerdict.SATURATED
    assert verdict_of([row("booking-000", 0.0), *found[1:]]) is ProbeVerdict.SPLIT
    assert verdict_of([row("booking-000", None), *found[1:]]) is ProbeVerdict.INCONCLUSIVE


def test_missing_passes_of_hopeless_tasks_could_be_signal() -> None:
    """Four of 40 groups would be mixed if their missing rollout had passed."""
    found = rows([0] * 40)
    assert verdict_of(found) is ProbeVerdict.HOPELESS
    for task in range(4):
        found[8 * task] = row(f"booking-{task:03d}", None)
    assert verdict_of(found) is ProbeVerdict.INCONCLUSIVE


def test_what_was_seen_counts_beside_what_is_missing() -> None:
    """No group is mixed. If all missing ones had passed, ten of 40 would be, and if failed too."""
    found = rows([8] * 20 + [0] * 20)
    for task in (*range(10), *range(20, 30)):
        found[8 * task] = row(f"booking-{task:03d}", None)
    assert verdict_of(found) is ProbeVerdict.INCONCLUSIVE
    for filled in (0.0, 1.0):
        whole = [row(each.task_key, filled) if each.score is None else each for each in found]
        assert verdict_of(whole) is ProbeVerdict.INFORMATIVE


def test_an_interval_that_begins_at_the_border_is_worthwhile_and_one_that_ends_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = rows([4] * 12 + [0] * 68)
    share = report_rows(found, pass_threshold=1.0, group_size=8).environments["booking"].signal
    monkeypatch.setattr(probe_report, "WORTHWHILE_FROM", share.low)
    assert verdict_of(found) is ProbeVerdict.INFORMATIVE
    monkeypatch.setattr(probe_report, "WORTHWHILE_FROM", share.high)
    assert verdict_of(found) is ProbeVerdict.INCONCLUSIVE
    monkeypatch.setattr(probe_report, "WORTHWHILE_FROM", share.high + 1e-9)
    assert verdict_of(found) is ProbeVerdict.HOPELESS


def test_a_probe_with_all_rollouts_needs_more_tasks() -> None:
    report = report_rows(rows([8] * 34), pass_threshold=1.0, group_size=8)
    assert report.environments["booking"].why.endswith("(0%–10%, 34 tasks): probe more tasks")


def test_the_facts_are_json() -> None:
    facts = report_facts(report_rows(rows([4] * 5), pass_threshold=1.0, group_size=4))
    booking = facts["environments"]["booking"]
    assert (booking["verdict"], booking["pass_rate"]["coverage"]) == ("informative", 1.0)
    assert type(booking["verdict"]) is str, "a writer of YAML refuses the members of an Enum"
    assert [each["group_size"] for each in booking["shares"]] == list(range(2, 17))
    assert facts["rule"] == PROBE_RULE


def test_sizes_that_are_unknown_are_not_recommended() -> None:
    """1 of 4 tasks passed once: 25 % of groups of 8 have signal; larger groups are unknown."""
    seldom = rows([1 if task % 4 == 0 else 0 for task in range(400)])
    report = report_rows(seldom, pass_threshold=1.0, group_size=8)
    assert report.environments["booking"].verdict is ProbeVerdict.INFORMATIVE
    assert report.advised_group_size == 8
    assert report.advice == (
        "rollout.n_samples_per_prompt 8: 25% of groups carry signal in the informative"
        " environments (25% at 8)"
    )
