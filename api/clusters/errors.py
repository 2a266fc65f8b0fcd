"""Errors of the clusters domain; `api/http/problems.py` alone maps each to an HTTP status.

ClustersError
├── NoEligibleHardware      no candidate of the spec can execute it
├── PresetNotFound          no preset of that name
├── PresetHasNoCloud        it cannot be rented from the cloud
├── CloudExclusionNotFound  no cloud exclusion has that id
├── OrphanNotFound          no orphaned cluster has that name
└── NoBudget                there is nothing to extend
"""

from __future__ import annotations


class ClustersError(Exception):
    """Base class; the message is a sentence for the user."""


class NoEligibleHardware(ClustersError):
    """None of `backend.skypilot.candidates` can execute the spec; the message shows why."""


class PresetNotFound(ClustersError):
    """No preset of that name."""


class PresetHasNoCloud(ClustersError):
    """The preset rents no machines, or nothing can be rented from the cloud."""


class CloudExclusionNotFound(ClustersError):
    """No cloud exclusion has that id, or it has expired."""


class OrphanNotFound(ClustersError):
    """No orphaned cluster has that name, or it is terminated."""


class NoBudget(ClustersError):
    """The run's spec sets no budget to extend."""
