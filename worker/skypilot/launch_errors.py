"""Maps the error of a failed launch to its kind and to the offers in its failover history.

Errors are told apart by class name, which survives the transport from the API server, so nothing
here imports sky.
"""

from __future__ import annotations

import re

from worker.skypilot.launch_log import sentence
from worker.skypilot.port import CloudError, ErrorKind, OfferOutcome, TriedOffer

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
"""By class name; `ResourcesUnavailableError` depends on its history, other classes are UNKNOWN."""

_NEEDS_OPERATOR = re.compile(
    r"quota|credential|unauthori[sz]ed|not authori[sz]ed|forbidden|permission|access denied"
    r"|invalid api key|payment|billing|insufficient (?:funds|balance)",
    re.IGNORECASE,
)
"""Words of a refusal that waiting does not fix."""


def cloud_error(error: BaseException, logged_offers: tuple[TriedOffer, ...] = ()) -> CloudError:
    """Return the port's error for a launch's error; offers of its log are preferred to history."""
    name = type(error).__name__
    history = tuple(getattr(error, "failover_history", ()) or ())
    offers = logged_offers or tuple(_offer(each) for each in history)
    if name == "KubeAPIUnreachableError":
        kind = ErrorKind.NO_CAPACITY  # down now, and perhaps up again later
    elif name == "ResourcesUnavailableError":
        kind = _kind_of_history(history, offers)
    else:
        kind = KINDS.get(name, ErrorKind.UNKNOWN)
    return CloudError(kind, sentence(str(error)) or name, offers)


def _kind_of_history(history: tuple[object, ...], offers: tuple[TriedOffer, ...]) -> ErrorKind:
    """Return UNSATISFIABLE where no cloud was tried, REFUSED where an operator must act in all."""
    names = {type(each).__name__ for each in history}
    if not history or names <= {"NotSupportedError", "ProvisionUnsupportedError"}:
        return ErrorKind.UNSATISFIABLE
    eligible = [offer for offer in offers if offer.outcome is not OfferOutcome.INELIGIBLE]
    if eligible and all(_NEEDS_OPERATOR.search(offer.message or "") for offer in eligible):
        return ErrorKind.REFUSED
    return ErrorKind.NO_CAPACITY


_REGION = re.compile(r"in all zones in (?P<region>\S+)")
_LACKS = re.compile(r"not supported by (?P<infra>[A-Za-z ]+)")


def _offer(error: object) -> TriedOffer:
    """Parse one error of a history: it names the region, but the cloud only if INELIGIBLE."""
    name, text = type(error).__name__, sentence(str(error))
    region, lacks = _REGION.search(text), _LACKS.search(text)
    outcome = {
        "ResourcesUnavailableError": OfferOutcome.REFUSED,
        "NotSupportedError": OfferOutcome.INELIGIBLE,
        "ProvisionUnsupportedError": OfferOutcome.INELIGIBLE,
    }.get(name, OfferOutcome.FAILED)
    return TriedOffer(
        infra=lacks["infra"].replace(" ", "").lower() if lacks else "unknown",
        region=region["region"] if region else None,
        outcome=outcome,
        error_class=name,
        message=text,
    )
