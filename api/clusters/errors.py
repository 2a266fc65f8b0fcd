"""Why the clusters domain refuses; `api/problems.py` alone knows the HTTP status of each.

ClustersError
├── NoMachineWillDo         none of the machines that a spec asks for can carry it out
├── PresetNotFound          no preset of that name
├── CloudExclusionNotFound  nothing learnt of the clouds has that id
├── StrayNotFound           no cluster without an owner has that name
└── NoBudget                there is nothing to extend
"""

from __future__ import annotations


class ClustersError(Exception):
    """Base; the message is for the user."""


class NoMachineWillDo(ClustersError):
    """None of `backend.skypilot.candidates` can carry the spec out; the arithmetic is shown."""


class PresetNotFound(ClustersError):
    """No preset of that name."""


class CloudExclusionNotFound(ClustersError):
    """Nothing learnt of the clouds has that id, or not any more."""


class StrayNotFound(ClustersError):
    """No cluster without an owner has that name, or not any more."""


class NoBudget(ClustersError):
    """The run's spec sets no budget that could be extended."""
