"""`secrets.json`: the passwords and keys of one embedded stack, generated at its first start."""

import base64
import secrets

from pydantic import BaseModel, ConfigDict, Field

from hillclimb.stack.state.directory import StateDirectory, write_private


class Credentials(BaseModel):
    """Keys and passwords of 256 random bits each; the file (mode 0600) stays on the machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    postgres_password: str = Field(default_factory=lambda: secrets.token_hex(32))
    valkey_password: str = Field(default_factory=lambda: secrets.token_hex(32))
    secret_key: str = Field(
        default_factory=lambda: base64.b64encode(secrets.token_bytes(32)).decode()
    )
    runner_token: str = Field(default_factory=lambda: f"hcr_{secrets.token_hex(32)}")
    api_key: str = Field(default_factory=lambda: f"hc_{secrets.token_hex(32)}")


def load_credentials(state: StateDirectory) -> Credentials | None:
    """Return the stack's credentials; None before its first start."""
    if not state.secrets_file.exists():
        return None
    return Credentials.model_validate_json(state.secrets_file.read_bytes())


def ensure_credentials(state: StateDirectory) -> Credentials:
    """Return the stack's credentials, generating and storing them at its first start."""
    existing = load_credentials(state)
    if existing is not None:
        return existing
    credentials = Credentials()
    write_private(state.secrets_file, credentials.model_dump_json(indent=2) + "\n")
    return credentials
