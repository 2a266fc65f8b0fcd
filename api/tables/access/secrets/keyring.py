"""The keyring: master keys that encrypt what the service stores for projects.

AES-256-GCM with a random nonce for every value. Purpose, project and name are its associated data:
a row that was copied to another project, or renamed, does not decrypt.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from api.settings import Settings
from api.tables.access.secrets.errors import SecretUnreadable

KEY_BYTES, NONCE_BYTES = 32, 12
SERVICE_KEY = "service"
"""Id of the key that is derived from HILLCLIMB_SECRET_KEY."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


class InvalidMasterKeys(ValueError):
    """HILLCLIMB_MASTER_KEYS cannot be used; the message has the remedy and no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place to which a ciphertext is bound: it decrypts nowhere else."""

    purpose: str
    project_id: str
    name: str

    def associated_data(self, key_id: str) -> bytes:
        """Return the associated data of AES-GCM; no part can contain the separator."""
        return "\0".join(("hillclimb", self.purpose, self.project_id, self.name, key_id)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encrypted:
    """A ciphertext with its nonce in front, and the id of the key that decrypts it."""

    key_id: str
    ciphertext: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Keyring:
    """Master keys by id; the first one encrypts, every one decrypts."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, settings: Settings) -> Keyring:
        """Return the operator's master keys, and last the one derived from the secret key.

        Raises InvalidMasterKeys.
        """
        listed = settings.master_keys.get_secret_value() if settings.master_keys else ""
        keys = dict(_parse(entry) for entry in re.split(r"[\s,]+", listed) if entry)
        return cls(keys | {SERVICE_KEY: _derived(settings.secret_key.get_secret_value())})

    @property
    def newest(self) -> str:
        """The id of the key that encrypts. Raises SecretUnreadable for an empty keyring."""
        if not self.keys:
            raise SecretUnreadable("This process has no master keys: set HILLCLIMB_SECRET_KEY.")
        return next(iter(self.keys))

    def encrypt(self, value: str, place: Place) -> Encrypted:
        """Return the value encrypted for this place."""
        key_id, nonce = self.newest, os.urandom(NONCE_BYTES)
        sealed = AESGCM(self.keys[key_id]).encrypt(
            nonce, value.encode(), place.associated_data(key_id)
        )
        return Encrypted(key_id=key_id, ciphertext=nonce + sealed)

    def decrypt(self, encrypted: Encrypted, place: Place) -> str:
        """Return the value; raises SecretUnreadable."""
        key_id = encrypted.key_id
        if key_id not in self.keys:
            raise SecretUnreadable(
                f"{place.name} is encrypted with the master key {key_id!r}, which this process does"
                " not have: add it to HILLCLIMB_MASTER_KEYS, or set the secret again."
            )
        nonce, sealed = encrypted.ciphertext[:NONCE_BYTES], encrypted.ciphertext[NONCE_BYTES:]
        try:
            return (
                AESGCM(self.keys[key_id])
                .decrypt(nonce, sealed, place.associated_data(key_id))
                .decode()
            )
        except InvalidTag:
            raise SecretUnreadable(
                f"{place.name} does not decrypt with the master key {key_id!r}: the key has"
                " changed, or the row. Set the secret again."
            ) from None


NO_KEYS = Keyring()
"""Decrypts nothing: for runs whose specs name no secrets."""


def _parse(entry: str) -> tuple[str, bytes]:
    key_id, separator, encoded = entry.partition(":")
    if not separator or not _ID.fullmatch(key_id) or key_id == SERVICE_KEY:
        raise InvalidMasterKeys(
            "HILLCLIMB_MASTER_KEYS lists ID:KEY, where ID is a name of your choice other than"
            f" {SERVICE_KEY!r} (letters, digits, '.', '_', '-'), and KEY 32 random bytes in base64"
        )
    try:
        key = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidMasterKeys(
            f"the key {key_id!r} in HILLCLIMB_MASTER_KEYS is not 32 bytes in base64: make one with"
            " `openssl rand -base64 32`"
        )
    return key_id, key


def _derived(secret_key: str) -> bytes:
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"hillclimb master key")
    return kdf.derive(secret_key.encode())
