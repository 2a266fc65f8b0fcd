"""The port to whoever knows what machines cost."""

from __future__ import annotations

from typing import Protocol

from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.spec import SkyPilotSpec


class Prices(Protocol):
    """What the clouds' catalogs ask for."""

    def offers(self, skypilot: SkyPilotSpec) -> tuple[Offer, ...] | None:
        """Return the offers for all candidates; None where nobody has said yet. Rents nothing."""
        ...


class UnknownPrices:
    """A service that rents no clusters knows no prices."""

    def offers(self, skypilot: SkyPilotSpec) -> tuple[Offer, ...] | None:
        """Return None."""
        del skypilot
        return None
