"""Why the clusters domain refuses; `api/problems.py` alone knows the HTTP status of each.

ClustersError
├── NoMachineWillDo    none of the machines that a spec asks for can carry it out
└── PresetNotFound     no preset of that name
"""

from __future__ import annotations


class ClustersError(Exception):
    """Base; the message is for the user."""


class NoMachineWillDo(ClustersError):
    """None of `backend.skypilot.candidates` can carry the spec out; the arithmetic is shown."""


class PresetNotFound(ClustersError):
    """No preset of that name."""
