"""Rejects a spec whose clusters this service cannot provision, or whose nodes could not work."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from api.clusters.errors import NoEligibleHardware
from api.clusters.secrets import require_node_secrets
from hillclimb.spec.backend.clouds import OWN_NETWORKS
from hillclimb.spec.hosts import is_loopback, is_private_to_nodes
from hillclimb.spec.rules.addresses import Hosts
from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import RUNNER_ONLY_KINDS

NO_CLOUDS = (
    "backend.type is skypilot, and this service rents no machines: start it with"
    " `hillclimb up --with-sky`, or set HILLCLIMB_CLOUDS (docs/skypilot.md)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalSettings:
    """Settings of this service that decide whether it can rent nodes for a run."""

    clouds: str
    """Provider of clusters; empty: the service rents none."""
    api_url: str
    """Address at which nodes reach the API."""
    blobs_url: str
    """Address at which nodes reach the blob store."""
    node_secrets: Collection[str]
    """Names of the environment variables that nodes receive."""
    secret_hosts: Hosts = field(default_factory=dict)
    """Hosts to which specs may send those of `node_secrets` that are for runs."""
    images: Collection[str] = ()
    """Images, and interpreters of prebuilt environments, that specs may name."""


def rents(spec: RunSpec) -> bool:
    """Return true if the run needs a cluster of its own; a preview needs none."""
    return spec.backend.type == "skypilot" and spec.kind not in RUNNER_ONLY_KINDS


def refuse_unrentable(spec: RunSpec, settings: RentalSettings) -> None:
    """Reject a run that this service could not rent nodes for, or whose nodes could not work.

    Raises:
        NoEligibleHardware: the service rents nothing, nodes cannot reach the API or the blob store,
            they would execute code that the operator has not allowed, or lack a secret.
    """
    if rents(spec) and not settings.clouds:
        raise NoEligibleHardware(NO_CLOUDS)
    _refuse_unreachable(spec, api_url=settings.api_url, blobs_url=settings.blobs_url)
    _refuse_foreign_code(spec, settings.images)
    require_node_secrets(spec, settings.node_secrets, settings.secret_hosts)


def rental_warnings(spec: RunSpec, settings: RentalSettings) -> tuple[str, ...]:
    """Return the warning of a plan that this service would reject on submission."""
    try:
        refuse_unrentable(spec, settings)
    except NoEligibleHardware as error:
        reason = str(error).removesuffix(".")
        return (f"This service would reject the run with its present settings: {reason}.",)
    return ()


def _refuse_foreign_code(spec: RunSpec, images: Collection[str]) -> None:
    """Reject images and interpreters that the operator has not allowed.

    Their code runs with the operator's secrets: with the blob store's it could read and change the
    files of every project.
    """
    sky = spec.backend.skypilot
    if sky is None or not rents(spec):
        return
    named = {f"backend.skypilot.candidates: {each.image}": each.image for each in sky.candidates}
    named[f"backend.skypilot.trainer.python: {sky.trainer.python}"] = sky.trainer.python
    for setting, code in named.items():
        if code is not None and code not in images:
            raise NoEligibleHardware(
                f"{setting} would run with the operator's secrets, and this service allows only"
                f" {', '.join(sorted(images)) or 'its own wheel'}: leave it out (trainer.type"
                " wheel), or ask the operator to add it to HILLCLIMB_NODE_IMAGES"
            )


def _refuse_unreachable(spec: RunSpec, *, api_url: str, blobs_url: str) -> None:
    """Reject nodes that could reach neither the API nor the blob store at these addresses.

    They would be billed until they give up, or lose the checkpoints that they save. Also rejects
    an `api_url` over which others on the network could read the secrets of a node.
    """
    sky = spec.backend.skypilot
    if sky is None or not rents(spec):
        return
    if sky.api_reachable and not is_private_to_nodes(api_url):
        raise NoEligibleHardware(
            f"nodes would receive their secrets unencrypted over {api_url}: set"
            " HILLCLIMB_NODE_API_URL to an https address or to an IP address in a private"
            " network, or backend.skypilot.api_reachable to false"
        )
    outside = [each.cloud for each in sky.candidates if each.cloud not in OWN_NETWORKS]
    if not outside:
        return
    if sky.api_reachable and is_loopback(api_url):
        raise NoEligibleHardware(
            f"machines on {outside[0]} cannot reach the API at {api_url}: set"
            " HILLCLIMB_NODE_API_URL to an address that they can reach, or"
            " backend.skypilot.api_reachable to false"
        )
    if not blobs_url.startswith("s3://"):
        raise NoEligibleHardware(
            f"machines on {outside[0]} cannot reach the blob store at {blobs_url}, so their"
            " checkpoints would be lost: set HILLCLIMB_NODE_BLOBS_URL (or HILLCLIMB_BLOBS_URL)"
            " to s3://BUCKET/PREFIX"
        )
