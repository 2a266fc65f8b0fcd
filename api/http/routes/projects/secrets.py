"""`/v1/secrets`: the project's secrets are set, listed, deleted, re-encrypted, never returned."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import Admin, RawBody, Reader, ServicesDep
from api.runs.journal import utc_now
from api.tables.access.identity import NotAllowed, NotAuthenticated
from api.tables.access.secrets import store
from api.tables.access.secrets.errors import (
    SecretInUse,
    SecretNotFound,
    SecretRejected,
    SecretUnreadable,
)
from api.tables.access.secrets.request import SecretValue
from hillclimb.protocol.payloads.projects.secrets import (
    DeletedSecret,
    ReencryptedSecrets,
    SecretList,
    SecretPayload,
)
from hillclimb.spec.hosts import SECRET_NAME_PATTERN

router = APIRouter(
    prefix="/v1/secrets",
    tags=["project"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

Name = Annotated[str, Path(pattern=SECRET_NAME_PATTERN, examples=["fleet-prod"])]


@router.get("", operation_id="list_secrets", summary="List secrets")
def list_secrets(services: ServicesDep, caller: Reader) -> SecretList:
    """Return names and dates of the project's secrets; no response has a value."""
    with services.database.transaction() as session:
        rows = store.list_secrets(session, caller.project_id)
        return SecretList(data=[SecretPayload.model_validate(row) for row in rows])


@router.put(
    "/{name}",
    operation_id="set_secret",
    summary="Set a secret",
    responses={**documented(MALFORMED, KINDS[SecretRejected])},
    openapi_extra=json_body("SecretValue"),
)
def set_secret(services: ServicesDep, caller: Admin, name: Name, body: RawBody) -> SecretPayload:
    """Create the secret, or replace its value: attempts that start from now on receive it.

    `hosts` are the only servers to which a spec may send it.
    """
    sent = parse_body(SecretValue, body)
    with services.database.transaction() as session:
        secret = store.set_secret(
            session,
            services.keyring,
            caller,
            name=name,
            value=sent.value.get_secret_value(),
            hosts=sent.hosts,
            now=utc_now(),
        )
        return SecretPayload.model_validate(secret)


@router.delete(
    "/{name}",
    operation_id="delete_secret",
    summary="Delete a secret",
    responses={**documented(KINDS[SecretNotFound], KINDS[SecretInUse])},
)
def delete_secret(services: ServicesDep, caller: Admin, name: Name) -> DeletedSecret:
    """Delete the secret; refused while a run that has not ended names it."""
    with services.database.transaction() as session:
        store.delete_secret(session, caller.project_id, name)
    return DeletedSecret(name=name, deleted=True)


@router.post(
    "/reencrypt",
    operation_id="reencrypt_secrets",
    summary="Encrypt secrets with the newest master key",
    responses={**documented(KINDS[SecretUnreadable])},
)
def reencrypt_secrets(services: ServicesDep, caller: Admin) -> ReencryptedSecrets:
    """Encrypt the values that an older master key encrypted with the newest; idempotent."""
    with services.database.transaction() as session:
        number = store.reencrypt(session, services.keyring, caller.project_id)
    return ReencryptedSecrets(key_id=services.keyring.newest, num_reencrypted=number)
