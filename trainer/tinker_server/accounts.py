"""Accounts of a server: each key opens what was made with it, and nothing that another one made.

The id of a session begins with its account, and all names begin with that of their session: models,
checkpoints (`tinker://SESSION:train:0/...`) and sampling sessions. So the files need no owner of
their own, and those of earlier servers, which had one key, are the first account's.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from trainer.tinker_server.errors import Unknown

TAG_CHARS = 12
_TINKER = "tinker://"
_NAMES = frozenset({"session_id", "model_id", "sampling_session_id", "sampler_id"})
_PATHS = frozenset({"path", "model_path", "tinker_path"})


@dataclass(frozen=True, slots=True)
class Accounts:
    """The keys of a server; the first one's account has no tag."""

    keys: tuple[str, ...]

    def of_key(self, key: str) -> str | None:
        """Return the account of a key; None for a wrong one. Takes the same time for each."""
        account = None
        for number, each in enumerate(self.keys):
            if secrets.compare_digest(each.encode(), key.encode()):
                account = hashlib.sha256(each.encode()).hexdigest()[:TAG_CHARS] if number else ""
        return account


def new_session_id(account: str) -> str:
    """Return the id of a new session of an account."""
    number = secrets.token_hex(8)
    return f"s-{account}.{number}" if account else f"s-{number}"


def account_of(name: str) -> str:
    """Return the account of a session, or of what belongs to one."""
    session, _, _ = name.removeprefix(_TINKER).partition(":")
    tag, dot, _ = session.removeprefix("s-").partition(".")
    return tag if dot else ""


def refuse_foreign(account: str, named: BaseModel | Mapping[str, object]) -> None:
    """Refuse a request that names what is another account's, as if it did not exist.

    Raises:
        Unknown: it does.
    """
    for field, value in named if isinstance(named, BaseModel) else named.items():
        is_name = field in _NAMES or (field in _PATHS and str(value).startswith(_TINKER))
        if isinstance(value, str) and is_name and account_of(value) != account:
            raise Unknown(f"this server has no {value}")
