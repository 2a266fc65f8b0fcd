"""What can go wrong around the embedded stack; every message is a sentence that says what to do.

StackError
├── StackRunning      another supervisor holds this state directory
├── ServiceFailed     a service did not start, or a one-shot step failed
└── BinaryMissing     a wheel's executable is not installed
"""


class StackError(Exception):
    """The embedded stack could not do what was asked; the text is fit to be shown to a user."""


class StackRunning(StackError):
    """Another supervisor is already running on this state directory."""


class ServiceFailed(StackError):
    """A service did not become ready, or a one-shot step ended with an error."""


class BinaryMissing(StackError):
    """A server's executable is not where its wheel should have put it."""
