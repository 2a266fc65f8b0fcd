"""Errors of secrets; no message has a value.

SecretsError
├── SecretNotFound     the project has no secret of that name
├── SecretMissing      a spec names a secret that the project does not have
├── SecretNotForHost   the spec would send a secret to a host that it is not for
├── SecretInUse        a run that has not ended names the secret
├── SecretRejected     the value cannot be stored
└── SecretUnreadable   no master key of this process decrypts it
"""


class SecretsError(Exception):
    """Base class of the errors in `api.tables.access.secrets`."""


class SecretNotFound(SecretsError):
    """The project has no secret of that name."""


class SecretMissing(SecretsError):
    """A spec names a secret that the project does not have; the message names the command."""


class SecretNotForHost(SecretsError):
    """The spec would send a secret to a host to which it is not bound; the message names both."""


class SecretInUse(SecretsError):
    """A run that has not ended names the secret: its next attempt would not start."""


class SecretRejected(SecretsError):
    """The value cannot be stored."""


class SecretUnreadable(SecretsError):
    """No master key of this process decrypts the value; the message has the remedy."""
