"""Master keys: what decrypts where, and rotation."""

import base64

import pytest

from api.settings import Settings
from api.tables.access.secrets.errors import SecretUnreadable
from api.tables.access.secrets.keyring import (
    NO_KEYS,
    SERVICE_KEY,
    Encrypted,
    InvalidMasterKeys,
    Keyring,
    Place,
)

HERE = Place(purpose="secret", project_id="prj_mine", name="fleet-prod")
OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def keyring(master_keys: str | None = None, secret_key: str = "the service's") -> Keyring:
    return Keyring.of(
        Settings.model_validate(
            {
                "database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none",
                "redis_url": "redis://127.0.0.1:1",
                "blobs_url": "/nowhere",
                "secret_key": secret_key,
                "master_keys": master_keys,
            }
        )
    )


def test_a_value_is_read_back_and_two_ciphertexts_of_it_differ() -> None:
    keys = keyring(f"old:{OLD}")
    first, second = (keys.encrypt("the-fleet-key", HERE) for _ in range(2))
    assert first.key_id == "old"
    assert first.ciphertext != second.ciphertext
    assert b"the-fleet-key" not in first.ciphertext
    assert keys.decrypt(first, HERE) == "the-fleet-key"


@pytest.mark.parametrize(
    "elsewhere",
    [
        Place(purpose="secret", project_id="prj_other", name="fleet-prod"),
        Place(purpose="secret", project_id="prj_mine", name="fleet-test"),
        Place(purpose="webhook", project_id="prj_mine", name="fleet-prod"),
    ],
)
def test_a_row_that_was_copied_elsewhere_does_not_decrypt(elsewhere: Place) -> None:
    keys = keyring()
    encrypted = keys.encrypt("the-fleet-key", HERE)
    with pytest.raises(SecretUnreadable, match="does not decrypt") as refused:
        keys.decrypt(encrypted, elsewhere)
    assert "the-fleet-key" not in str(refused.value)


def test_a_changed_ciphertext_does_not_decrypt() -> None:
    keys = keyring()
    encrypted = keys.encrypt("the-fleet-key", HERE)
    changed = encrypted.ciphertext[:-1] + bytes([encrypted.ciphertext[-1] ^ 1])
    with pytest.raises(SecretUnreadable):
        keys.decrypt(Encrypted(key_id=encrypted.key_id, ciphertext=changed), HERE)


def test_after_a_rotation_the_first_key_encrypts_and_the_others_still_decrypt() -> None:
    derived, old = keyring(), keyring(f"old:{OLD}")
    rotated = keyring(f"new:{NEW} old:{OLD}")
    assert rotated.newest == "new"
    assert rotated.decrypt(old.encrypt("value-1", HERE), HERE) == "value-1"
    assert rotated.decrypt(derived.encrypt("value-2", HERE), HERE) == "value-2"
    with pytest.raises(SecretUnreadable, match="'new', which this process does not have"):
        old.decrypt(rotated.encrypt("value-3", HERE), HERE)


def test_without_master_keys_the_secret_key_is_the_source() -> None:
    assert keyring().newest == SERVICE_KEY
    with pytest.raises(SecretUnreadable, match="'service'"):
        keyring(secret_key="another").decrypt(keyring().encrypt("value", HERE), HERE)
    with pytest.raises(SecretUnreadable, match="HILLCLIMB_SECRET_KEY"):
        NO_KEYS.encrypt("value", HERE)


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ("no-separator", "lists ID:KEY"),
        (f"service:{OLD}", "other than 'service'"),
        ("new:c2hvcnQ=", "'new' in HILLCLIMB_MASTER_KEYS is not 32 bytes"),
        ("new:%%%", "is not 32 bytes in base64"),
    ],
)
def test_master_keys_that_are_none_are_refused_without_their_value(
    listed: str, reason: str
) -> None:
    with pytest.raises(InvalidMasterKeys, match=reason) as refused:
        keyring(listed)
    assert listed.partition(":")[2] not in str(refused.value) or not listed.partition(":")[2]


def test_no_representation_has_a_key_or_a_value() -> None:
    keys = keyring(f"new:{NEW}")
    assert "\\x02" not in repr(keys)
    assert "ciphertext" not in repr(keys.encrypt("value-1", HERE))
