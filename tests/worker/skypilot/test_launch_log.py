"""What a launch tried, read from logs as skypilot 0.14.1 wrote them."""

from datetime import datetime
from pathlib import Path

import pytest

from worker.skypilot.launch_log import MESSAGE_CHARACTERS, parse_offers, plain, sentence
from worker.skypilot.port import OfferOutcome, TriedOffer

RECORDED = Path(__file__).parent / "recorded"
# When the recorded request was made and ended.
BEGAN = datetime(2026, 11, 21, 20, 34, 0, 95000)  # noqa: DTZ001 - as the log has it
ENDED = datetime(2026, 11, 21, 20, 36, 25, 717000)  # noqa: DTZ001
FAILOVER = (RECORDED / "failover.log").read_text()
SOLD_OUT = TriedOffer(
    infra="primeintellect",
    region="CA",
    sku="hyperstack__8xH100_80GB__252__1440",
    hourly_usd=15.2,
    outcome=OfferOutcome.REFUSED,
    seconds=41.7,
    error_class="ResourcesUnavailableError",
    message=(
        "Resource unavailability error: API request failed: Insufficient capacity for the"
        " requested GPU"
    ),
)


def test_a_failover_is_read_as_what_was_refused_and_what_was_taken() -> None:
    taken = TriedOffer(
        infra="slurm", region="skytest", hourly_usd=20.0, outcome=OfferOutcome.UP, seconds=104.0
    )
    assert parse_offers(FAILOVER, began_at=BEGAN, ended_at=ENDED) == (SOLD_OUT, taken)


@pytest.mark.parametrize(
    ("last_words", "num_known"),
    [("Considered resources", 0), ("(CANADA-1)", 0), ("↺", 1), ("(gpus)", 1), ("is up.", 2)],
)
def test_while_it_is_under_way_only_what_came_to_an_end_is_told(
    last_words: str, num_known: int
) -> None:
    so_far = FAILOVER[: FAILOVER.index(last_words) + len(last_words)]
    found = parse_offers(so_far + "\n", began_at=BEGAN)
    whole = parse_offers(FAILOVER, began_at=BEGAN)
    assert found == whole[:num_known]


def test_a_clock_that_is_not_ours_gives_no_seconds() -> None:
    found = parse_offers(FAILOVER, began_at=BEGAN.replace(hour=23), ended_at=None)
    assert [each.seconds for each in found] == [None, None]
    assert [each.outcome for each in found] == [OfferOutcome.REFUSED, OfferOutcome.UP]


def test_a_cloud_that_lacks_a_feature_was_never_asked() -> None:
    text = (
        "sky.exceptions.NotSupportedError: The following features are not supported by"
        " PrimeIntellect: multi-node.\n"
        "Launching on Slurm skytest (gpus).\nInstances are up.\n"
    )
    first, second = parse_offers(text, began_at=BEGAN)
    assert (first.infra, first.outcome) == ("primeintellect", OfferOutcome.INELIGIBLE)
    assert (second.infra, second.outcome) == ("slurm", OfferOutcome.UP)


UP_AND_GIVEN_UP = (
    "Launching on AWS us-east-1 (us-east-1a).\n"
    "Instance is up.\n"
    "{fault}"
    "Launching on Lambda us-west-1.\n"
    "Instance is up.\n"
    "Cluster launched: hc-abcd-run1-1.\n"
)


@pytest.mark.parametrize(
    ("fault", "error_class", "message"),
    [
        ("", None, "its machines came up and were abandoned"),
        ("RuntimeError: Failed to set up SkyPilot runtime\n", "RuntimeError", "Failed to set up"),
    ],
)
def test_machines_that_were_up_and_could_not_be_set_up_have_failed(
    fault: str, error_class: str | None, message: str
) -> None:
    log = UP_AND_GIVEN_UP.format(fault=fault)
    first, second = parse_offers(log, began_at=BEGAN)
    assert (first.infra, first.outcome, first.error_class) == (
        "aws",
        OfferOutcome.FAILED,
        error_class,
    )
    assert message in (first.message or "")
    assert (second.infra, second.outcome) == ("lambda", OfferOutcome.UP)


def test_what_fails_after_the_cluster_was_launched_is_no_fault_of_the_offer() -> None:
    log = UP_AND_GIVEN_UP.format(fault="") + "sky.exceptions.CommandError: set-up failed\n"
    assert [each.outcome for each in parse_offers(log, began_at=BEGAN)] == [
        OfferOutcome.FAILED,
        OfferOutcome.UP,
    ]


def test_an_empty_log_tells_nothing() -> None:
    assert parse_offers("", began_at=BEGAN) == ()


def test_terminal_codes_and_markup_are_taken_out_and_brackets_of_text_stay() -> None:
    assert plain("\x1b[33m[bold]no[/bold] H100[0-7]\x1b[0m [yellow]left[/]") == "no H100[0-7] left"


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert sentence(" a\n\n b\t c ") == "a b c"
    assert len(sentence("x" * 10_000)) == MESSAGE_CHARACTERS


@pytest.mark.parametrize("who", ["user:s3cr3t@", "user:s3cr3t@with@signs@", "t0ken@"])
def test_a_sentence_names_nobody_and_no_password(who: str) -> None:
    assert (
        sentence(f"no answer\nof https://{who}host/a@b: 502")
        == "no answer of https://host/a@b: 502"
    )
