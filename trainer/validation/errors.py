"""Errors of a validation, each of which leaves a task unknown.

NotAnswered                the environment or its verifier failed in every try
└── TeacherUnavailable     the teacher's endpoint gave no answer that can be used
    └── BudgetSpent        it must not be asked any more
"""

from __future__ import annotations


class NotAnswered(Exception):
    """Something that was asked gave no answer; `str` says what and how."""


class TeacherUnavailable(NotAnswered):
    """The teacher's endpoint gave no answer that can be used."""


class BudgetSpent(TeacherUnavailable):
    """The requests or the tokens that the teacher may use are used up."""
