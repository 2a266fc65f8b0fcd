"""What the errors of launches mean, by class and history as skypilot 0.14.1 gives them."""

import pytest

from worker.skypilot.launch_errors import cloud_error
from worker.skypilot.port import ErrorKind, OfferOutcome, TriedOffer


class ResourcesUnavailableError(Exception):
    """As sky's: what was tried travels in `failover_history`."""

    def __init__(self, message: str, *history: Exception) -> None:
        super().__init__(message)
        self.failover_history = list(history)


class NotSupportedError(Exception):
    pass


SOLD_OUT = ResourcesUnavailableError(
    "Failed to acquire resources in all zones in CA for {PrimeIntellect({'H100': 8})}. "
)
LACKS = NotSupportedError("The following features are not supported by Prime Intellect: autodown.")


def test_a_request_that_no_catalog_can_meet() -> None:
    error = cloud_error(
        ResourcesUnavailableError(
            "Catalog does not contain any instances satisfying the request: 1x Slurm({'H100': 16},"
            " region=skytest).\nTo fix: relax or change the resource requirements.\n\nHint:"
            " \x1b[1msky gpus list\x1b[0m to list available accelerators.\n"
        )
    )
    assert (error.kind, error.offers) == (ErrorKind.UNSATISFIABLE, ())
    assert "\x1b" not in error.message
    assert "\n" not in error.message


def test_an_http_error_of_a_cloud_is_not_a_refusal_of_the_api_server() -> None:
    class HTTPError(Exception):
        pass

    assert cloud_error(HTTPError("500 Server Error")).kind is ErrorKind.UNKNOWN


def test_no_capacity_anywhere_with_what_was_tried() -> None:
    error = cloud_error(ResourcesUnavailableError("Failed to provision", SOLD_OUT, LACKS))
    assert error.kind is ErrorKind.NO_CAPACITY
    first, second = error.offers
    assert (first.region, first.outcome) == ("CA", OfferOutcome.REFUSED)
    assert first.error_class == "ResourcesUnavailableError"
    assert (second.infra, second.outcome) == ("primeintellect", OfferOutcome.INELIGIBLE)


def test_what_the_log_told_is_better_than_the_history() -> None:
    tried = (TriedOffer(infra="lambda", outcome=OfferOutcome.REFUSED),)
    assert cloud_error(ResourcesUnavailableError("no", SOLD_OUT), tried).offers == tried


def test_clouds_that_all_lack_a_feature_are_no_lack_of_capacity() -> None:
    assert cloud_error(ResourcesUnavailableError("no", LACKS)).kind is ErrorKind.UNSATISFIABLE


def test_a_quota_is_for_a_person_unless_another_cloud_just_has_none() -> None:
    quota = ResourcesUnavailableError("You have reached your quota of 0 for this machine")
    assert cloud_error(ResourcesUnavailableError("no", quota)).kind is ErrorKind.REFUSED
    assert cloud_error(ResourcesUnavailableError("no", quota, SOLD_OUT)).kind is (
        ErrorKind.NO_CAPACITY
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ResourcesMismatchError", ErrorKind.MISMATCH),
        ("NoCloudAccessError", ErrorKind.REFUSED),
        ("ClusterSetUpError", ErrorKind.SETUP_FAILED),
        ("NotSupportedError", ErrorKind.UNSATISFIABLE),
        ("SomethingNew", ErrorKind.UNKNOWN),
    ],
)
def test_the_class_of_an_error_says_what_it_means(name: str, kind: ErrorKind) -> None:
    error = cloud_error(type(name, (Exception,), {})("why"))
    assert (error.kind, error.message) == (kind, "why")


def test_an_error_without_words_is_told_by_its_class() -> None:
    assert cloud_error(RuntimeError()).message == "RuntimeError"
