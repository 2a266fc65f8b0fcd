"""Errors of a node, named by the boundary that they cross.

NodeError
├── NodeMisconfigured        a variable is missing or invalid: the node exits
├── NodeRunning              another process has this attempt on this machine: the node exits
├── ServiceUnreachable       no answer, or one that says "later": try again
│   └── TokenUnknown         the service does not know our token, perhaps only for a while
└── AttemptOver              the service refuses this job the attempt: the node exits
"""

from __future__ import annotations


class NodeError(Exception):
    """Root of the tree."""


class NodeMisconfigured(NodeError):
    """A variable is missing or invalid."""


class NodeRunning(NodeError):
    """Another process has this attempt on this machine."""


class ServiceUnreachable(NodeError):
    """The service gave no usable answer; a retry may succeed."""


class TokenUnknown(ServiceUnreachable):
    """The service does not know our token: it may use a restored database for a while."""


class AttemptOver(NodeError):
    """The attempt has ended, belongs to another job, or is not ours to claim."""
