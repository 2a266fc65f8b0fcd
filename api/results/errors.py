"""Errors of the eval figures.

EvalError
├── NoSuchEval     there is no evaluation at that step
├── NoSuchProbe         the run has reported no probe
└── NoSuchValidation    the run has reported no validation, or its rows are gone
"""


class EvalError(Exception):
    """Base of the errors in `api.evals`."""


class NoSuchEval(EvalError):
    """No evaluation was stored where one was asked for."""


class NoSuchProbe(EvalError):
    """The run has reported no probe; the message says why that may be."""


class NoSuchValidation(EvalError):
    """The run has reported no validation, or its rows are not in the store."""
