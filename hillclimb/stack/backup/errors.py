"""Errors of backup and restore; every message is a sentence with a remedy."""

from __future__ import annotations

from hillclimb.stack.errors import StackError


class BackupRefused(StackError):
    """The stack cannot be saved, or the backup not restored, as requested."""


class BackupInvalid(StackError):
    """The backup is incomplete, damaged, or of another version."""
