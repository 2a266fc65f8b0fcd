"""What a launch that failed comes to: a kind of error, and the offers that its history tells of.

Errors are known by the names of their classes, which survive the way from the API server; nothing
here imports sky.
"""

from __future__ import annotations

import re

from worker.clusters.base import CloudError, ErrorKind, OfferTried, Outcome
from worker.clusters.launchlog import sentence

KINDS = {
    "ResourcesMismatchError": ErrorKind.MISMATCH,
    "NotSupportedError": ErrorKind.UNSATISFIABLE,
    "ProvisionUnsupportedError": ErrorKind.UNSATISFIABLE,
    "NoCloudAccessError": ErrorKind.REFUSED,
    "InvalidCloudCredentials": ErrorKind.REFUSED,
    "InvalidCloudConfigs": ErrorKind.REFUSED,
    "CloudUserIdentityError": ErrorKind.REFUSED,
    "ClusterOwnerIdentityMismatchError": ErrorKind.REFUSED,
    "PermissionDeniedError": ErrorKind.REFUSED,
    "UserRequestRejectedByPolicy": ErrorKind.REFUSED,
    "ClusterSetUpError": ErrorKind.SETUP_FAILED,
    "CommandError": ErrorKind.SETUP_FAILED,
    "CommandFailureException": ErrorKind.SETUP_FAILED,
    "StorageUploadError": ErrorKind.SETUP_FAILED,
}
"""By class; `ResourcesUnavailableError` goes by its history, any other class is unknown."""

_A_PERSON = re.compile(
    r"quota|credential|unauthori[sz]ed|not authori[sz]ed|forbidden|permission|access denied"
    r"|invalid api key|payment|billing|insufficient (?:funds|balance)",
    re.IGNORECASE,
)
"""Words of a refusal that waiting does not mend."""


def cloud_error(error: BaseException, tried: tuple[OfferTried, ...] = ()) -> CloudError:
    """Return what the error of a launch means; `tried` is what its log told, where it told any."""
    name = type(error).__name__
    history = tuple(getattr(error, "failover_history", ()) or ())
    offers = tried or tuple(_offer(each) for each in history)
    if name == "KubeAPIUnreachableError":
        kind = ErrorKind.NO_CAPACITY  # it is away now, which says nothing of tomorrow
    elif name == "ResourcesUnavailableError":
        kind = _of_history(history, offers)
    else:
        kind = KINDS.get(name, ErrorKind.UNKNOWN)
    return CloudError(kind, sentence(str(error)) or name, offers)


def _of_history(history: tuple[object, ...], offers: tuple[OfferTried, ...]) -> ErrorKind:
    """Nothing was tried: there are no such machines. Else the cloud said no, or a person has to."""
    names = {type(each).__name__ for each in history}
    if not history or names <= {"NotSupportedError", "ProvisionUnsupportedError"}:
        return ErrorKind.UNSATISFIABLE
    asked = [each for each in offers if each.outcome is not Outcome.INELIGIBLE]
    if asked and all(_A_PERSON.search(each.message or "") for each in asked):
        return ErrorKind.REFUSED
    return ErrorKind.NO_CAPACITY


_REGION = re.compile(r"in all zones in (?P<region>\S+)")
_LACKS = re.compile(r"not supported by (?P<infra>[A-Za-z ]+)")


def _offer(error: object) -> OfferTried:
    """A history names the region, and the cloud only where it lacks a feature."""
    name, text = type(error).__name__, sentence(str(error))
    region, lacks = _REGION.search(text), _LACKS.search(text)
    outcome = {
        "ResourcesUnavailableError": Outcome.REFUSED,
        "NotSupportedError": Outcome.INELIGIBLE,
        "ProvisionUnsupportedError": Outcome.INELIGIBLE,
    }.get(name, Outcome.FAILED)
    return OfferTried(
        infra=lacks["infra"].replace(" ", "").lower() if lacks else "unknown",
        region=region["region"] if region else None,
        outcome=outcome,
        error_class=name,
        message=text,
    )
