"""Errors of the embedded stack; every message is a sentence with a remedy.

StackError
├── StackRunning      another supervisor has locked this state directory
├── PortConflict      another stack reserved a port between its choice and ours
├── StateUnusable     the state directory cannot be read or made
├── ServiceFailed     a service did not start, or a one-shot step failed
└── BinaryMissing     a wheel's executable is not installed
"""


class StackError(Exception):
    """The embedded stack failed; the message is written for users."""


class StackRunning(StackError):
    """Another supervisor is already running on this state directory."""


class PortConflict(StackError):
    """Another stack has reserved a port that was free when it was chosen."""


class StateUnusable(StackError):
    """The state directory cannot be read or made where it is said to be."""


class ServiceFailed(StackError):
    """A service did not become ready, or a one-shot step ended with an error."""


class BinaryMissing(StackError):
    """A server's executable is missing from its wheel."""
