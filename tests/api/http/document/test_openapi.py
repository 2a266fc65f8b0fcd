"""The OpenAPI document is whole."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError

from api.http.document.openapi import EXAMPLES
from api.http.requests.permissions import PERMISSIONS, SCOPE_OF
from hillclimb.protocol.events import IngestBatch
from hillclimb.spec.run import RunSpec, json_schema

OPERATIONS = {
    "create_run",
    "plan_run",
    "list_runs",
    "get_run",
    "cancel_run",
    "pause_run",
    "resume_run",
    "ingest_events",
    "register_runner",
    "runner_heartbeat",
    "claim_attempt",
    "report_attempt_end",
    "health",
    "ready",
    "run_spec_schema",
}


def test_every_operation_has_a_stable_name_a_summary_and_documented_problems(
    app: FastAPI,
) -> None:
    document = app.openapi()
    assert document["openapi"].startswith("3.1")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert set(names) >= OPERATIONS
    for operation in operations:
        if operation["operationId"] in OPERATIONS - {"health", "run_spec_schema"}:
            assert operation["summary"]
            errors = {status for status in operation["responses"] if status >= "4"}
            assert errors
            for status in errors:
                content = operation["responses"][status]["content"]
                assert list(content) == ["application/problem+json"]


def operations(app: FastAPI) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation by its row in `PERMISSIONS`."""
    rows = {row.replace(":path}", "}"): row for row in PERMISSIONS}
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            yield rows[f"{method.upper()} {path}"], operation


def test_every_operation_documents_what_it_is_refused_with_before_its_route(app: FastAPI) -> None:
    for row, operation in operations(app):
        statuses, access = set(operation["responses"]), PERMISSIONS[row]
        if access in SCOPE_OF:
            assert statuses >= {"401", "403", "429", "503"}, row
        if " /v1/" in row:
            assert "422" in statuses, row
        if "requestBody" in operation:
            assert statuses >= {"400", "408", "413"}, row
        if any(each["in"] == "path" for each in operation.get("parameters", [])):
            assert statuses >= {"400", "404"}, row


def test_every_problem_has_its_media_type_and_its_headers(app: FastAPI) -> None:
    for row, operation in operations(app):
        for status, response in operation["responses"].items():
            if status >= "4":
                assert list(response["content"]) == ["application/problem+json"], (row, status)
                headers = set(response["headers"])
                assert headers >= {"X-Request-ID", "X-Should-Retry"}, (row, status)
                assert ("Retry-After" in headers) == (status in ("429", "503")), (row, status)
    assert "HTTPValidationError" not in app.openapi()["components"]["schemas"]


def test_a_form_has_no_parts_beside_the_documented_ones(app: FastAPI) -> None:
    forms = [
        content["multipart/form-data"]["schema"]
        for _, operation in operations(app)
        if "multipart/form-data" in (content := operation.get("requestBody", {}).get("content", {}))
    ]
    assert [form["additionalProperties"] for form in forms] == [False]


def test_the_longest_query_fits_into_an_address(app: FastAPI) -> None:
    most = 65_535
    """uvicorn refuses a longer address itself, and not as the document says."""
    bytes_of_a_character = 12
    for row, operation in operations(app):
        schemas = [each["schema"] for each in operation.get("parameters", [])]
        texts = [text for schema in schemas for text in schema.get("anyOf", [schema])]
        length = bytes_of_a_character * sum(text.get("maxLength", 0) for text in texts)
        assert length < most - 2_000, row


def test_every_reference_leads_somewhere(app: FastAPI) -> None:
    document = app.openapi()
    components = document["components"]

    def check(node: object) -> None:
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str):
                _, _, kind, name = reference.split("/")
                assert name in components[kind], reference
            for child in node.values():
                check(child)
        elif isinstance(node, list):
            for child in node:
                check(child)

    check(document)


def test_the_examples_are_valid() -> None:
    try:
        RunSpec.model_validate(EXAMPLES["RunSpec"]["value"])
        IngestBatch.model_validate(EXAMPLES["IngestBatch"]["value"])
    except ValidationError as error:
        pytest.fail(str(error))


async def test_the_schema_of_a_spec_is_served_without_a_key(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/schemas/run-spec", headers={"Authorization": ""})
    assert answer.json() == json_schema()
