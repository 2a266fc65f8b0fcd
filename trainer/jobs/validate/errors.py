"""Errors of a validation; each of them leaves a task's verdict unknown.

NotAnswered                the environment or its verifier failed in every try
└── TeacherUnavailable     the teacher's endpoint gave no usable answer
    ├── RequestRefused     it rejects this request; a retry would not help
    ├── AnswerCut          an answer was cut off or filtered: it proves nothing about the task
    └── TeacherBudgetExhausted  no more requests may be sent to it
"""

from __future__ import annotations


class NotAnswered(Exception):
    """An environment, verifier or teacher gave no answer; `str` has the problem."""


class TeacherUnavailable(NotAnswered):
    """The teacher's endpoint gave no usable answer."""


class RequestRefused(TeacherUnavailable):
    """The endpoint rejects this request; `body` is the whole response body."""

    def __init__(self, problem: str, *, body: str) -> None:
        super().__init__(problem)
        self.body = body


class AnswerCut(TeacherUnavailable):
    """An answer of the teacher was cut off, and its episode does not pass."""


class TeacherBudgetExhausted(TeacherUnavailable):
    """The budget is used up, the endpoint rejects us by now, or it gave too few answers."""
