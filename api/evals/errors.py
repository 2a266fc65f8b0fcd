"""Errors of the eval figures.

EvalError
└── NoSuchEval    there is no evaluation at that step
"""


class EvalError(Exception):
    """Base of the errors in `api.evals`."""


class NoSuchEval(EvalError):
    """No evaluation was stored where one was asked for."""
