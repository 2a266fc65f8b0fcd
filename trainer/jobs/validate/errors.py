"""Errors of a validation, each of which leaves a task unknown.

NotAnswered                the environment or its verifier failed in every try
└── TeacherUnavailable     the teacher's endpoint gave no answer that can be used
    ├── RequestRefused     it refuses this one request, which no repetition would mend
    ├── AnswerCut          an answer was cut off, or held back: it says nothing of the task
    └── AskingOver         it must not be asked any more
"""

from __future__ import annotations


class NotAnswered(Exception):
    """Something that was asked gave no answer; `str` says what and how."""


class TeacherUnavailable(NotAnswered):
    """The teacher's endpoint gave no answer that can be used."""


class RequestRefused(TeacherUnavailable):
    """The endpoint refuses this request; `body` is what it says, whole."""

    def __init__(self, problem: str, *, body: str) -> None:
        super().__init__(problem)
        self.body = body


class AnswerCut(TeacherUnavailable):
    """The teacher was not let finish what it had to say, and what it did does not pass."""


class AskingOver(TeacherUnavailable):
    """Its budget is used up, it refuses us by now, or it was silent for too long."""
