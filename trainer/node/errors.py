"""What can go wrong for a node, named by the boundary that was crossed.

NodeError
├── NodeMisconfigured        the environment says too little or nonsense: the node leaves
├── NodeRunning              another process works for this attempt on this machine: it leaves
├── GangIncomplete           Ray did not come up, or not on every machine in time
├── ServiceUnreachable       no answer, or one that says "later": try again
│   └── TokenUnknown         the service does not know our token, or not now
└── AttemptOver              the service does not want this job to carry the attempt: leave
"""

from __future__ import annotations


class NodeError(Exception):
    """Root of the tree."""


class NodeMisconfigured(NodeError):
    """A variable is missing or makes no sense."""


class NodeRunning(NodeError):
    """Another process works for this attempt on this machine."""


class GangIncomplete(NodeError):
    """The machines did not find each other."""


class ServiceUnreachable(NodeError):
    """The service gave no usable answer this time."""


class TokenUnknown(ServiceUnreachable):
    """The service does not know our token: it may answer out of another database for a while."""


class AttemptOver(NodeError):
    """The attempt is over, carried by another job, or not ours to ask for."""
