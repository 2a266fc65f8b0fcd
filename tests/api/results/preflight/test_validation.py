"""What a validation found, over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import pytest

from api.results.preflight import validation
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import attempt_name, run_key
from hillclimb.protocol.validation import (
    VALIDATION_ROWS,
    Reason,
    TaskCheck,
    TaskValidation,
    TaskVerdict,
    summarise_tasks,
)
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec


def a_validation() -> RunSpec:
    return spec().model_copy(update={"kind": "validate"})


def rows(num_valid: int = 3, num_excluded: int = 2) -> list[TaskValidation]:
    """Valid ones of booking, then excluded ones of github."""
    passed = TaskCheck.PASSED
    return [
        *(
            TaskValidation(
                task_key=f"booking-{index}",
                env_key="booking",
                replay=passed,
                verifier_on_start=passed,
                verifier_on_replay=passed,
                verdict=TaskVerdict.VALID,
            )
            for index in range(num_valid)
        ),
        *(
            TaskValidation(
                task_key=f"github-{index}",
                env_key="github",
                verifier_on_start=TaskCheck.FAILED,
                verdict=TaskVerdict.EXCLUDED,
                reason=Reason.PASSES_UNTOUCHED,
                detail="the verifier gives the untouched start state 1",
            )
            for index in range(num_excluded)
        ),
    ]


def store_rows(blobs: DiskStore, run_id: str, found: Sequence[TaskValidation]) -> None:
    data = "".join(row.model_dump_json() + "\n" for row in found).encode()
    blobs.put(run_key(run_id, attempt_name(1), VALIDATION_ROWS), gzip.compress(data))


def test_a_validation_is_read_with_pages_of_its_rows(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running(a_validation())
    path = f"/v1/runs/{run_id}/validation"
    with served.client() as client:
        early = client.get(path)
        story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
        unstored = client.get(path)
        store_rows(blobs, run_id, rows())
        whole = client.get(path).json()
        first = client.get(path, params={"limit": 2}).json()
        rest = client.get(path, params={"limit": 2, "after": first["next_after"]}).json()
        failed = client.get(path, params={"verdict": "excluded"}).json()
        of_env = client.get(path, params={"env": "booking", "limit": 0}).json()
        typo = client.get(path, params={"verdit": "excluded"})
    assert (early.status_code, early.json()["code"]) == (404, "no_such_validation")
    assert (unstored.status_code, unstored.json()["code"]) == (404, "no_such_validation")
    assert whole["verdicts"] == {"excluded": 2, "valid": 3}
    assert whole["environments"] == {"booking": {"valid": 3}, "github": {"excluded": 2}}
    assert (whole["reasons"], whole["coverage"]) == ({"passes_untouched": 2}, 1.0)
    assert (whole["complete"], whole["dataset"]) == (True, None)
    assert whole["teacher"]["num_requests"] == 9
    assert [row["task_key"] for row in whole["rows"]] == [row.task_key for row in rows()]
    assert (first["has_more"], first["next_after"], first["num_rows"]) == (True, 2, 5)
    assert [row["task_key"] for row in rest["rows"]] == ["booking-2", "github-0"]
    assert {row["reason"] for row in failed["rows"]} == {"passes_untouched"}
    assert (of_env["num_rows"], of_env["rows"]) == (3, [])
    assert typo.status_code == 422


@pytest.mark.parametrize(
    "stored",
    [b"no gzip", gzip.compress(b"[]\n"), gzip.compress(b'{"verdict": "excluded"}\n')],
    ids=["packed otherwise", "no object", "no task"],
)
def test_damaged_rows_are_told(
    story: Story, served: Served, blobs: DiskStore, stored: bytes
) -> None:
    run_id = story.running(a_validation())
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    blobs.put(run_key(run_id, attempt_name(1), VALIDATION_ROWS), stored)
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/validation")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "The rows of the validation are damaged.",
    )


@pytest.mark.parametrize("limit", ["MAX_PACKED_BYTES", "MAX_UNPACKED_BYTES"])
def test_rows_that_unpack_to_more_than_the_service_reads_are_not_read(
    story: Story, served: Served, blobs: DiskStore, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(validation, limit, 200)
    run_id = story.running(a_validation())
    story.push(run_id, story.validated(run_id, summarise_tasks(rows()).model_dump()))
    store_rows(blobs, run_id, rows(num_valid=200))
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/validation", params={"limit": 0})
    assert answer.status_code == 404
    assert "too many rows to be read here" in answer.json()["detail"]


def test_rows_outside_of_the_runs_folder_are_not_read(story: Story, served: Served) -> None:
    run_id = story.running(a_validation())
    told = story.validated(run_id, summarise_tasks(rows()).model_dump())
    story.push(run_id, told.model_copy(update={"rows": "../../run_other/attempt-1/rows.gz"}))
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/validation")
    assert answer.status_code == 404
    assert "are not in its run's folder" in answer.json()["detail"]


def test_a_training_run_has_no_validation(story: Story, served: Served) -> None:
    run_id = story.running()
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/validation")
    assert "it is of kind train, submit one of kind validate" in answer.json()["detail"]
