"""What every backend does, each case written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.backends import BackendUnderTest
from tests.conformance.service import Service, halted

STEPS = 4
LOOKED_AT = 60
"""Steps of a run that is asked for something while it works."""
TYPE = "https://hillclimb.dev/problems/"
Case = Callable[[BackendUnderTest], None]


def spec_for(backend: BackendUnderTest, name: str, **sections: Any) -> dict[str, Any]:
    """A run of seconds, real in every part."""
    decoding = {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": 2}
    return {
        "name": name,
        "model": {"source": backend.service.model},
        "data": {"env_keys": ["booking"], "train_tasks_per_env": 30, "eval_tasks_per_env": 2},
        "environment": {"max_turns": 2},
        "rollout": {
            "n_samples_per_prompt": 4,
            "max_input_length": 1700,
            "max_generate_length": 16,
            "max_sequence_length": 1800,
        },
        "schedule": {"total_steps": STEPS, "train_batch_size": 2, "mini_batch_size": 2},
        "eval": {"interval": 0, "decodings": [decoding]},
        "checkpoints": {"interval": 1, "keep_last": 2},
        **backend.sections(),
        **sections,
    }


def trains_to_its_end(backend: BackendUnderTest) -> None:
    """Submit, progress, pass@n, metrics, checkpoints, log; what it held is given back."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "to its end"))
    service.until_step(run_id, 1)
    service.until_status(run_id, "succeeded")
    check_results(service, run_id)
    check_nothing_left(backend, run_id)


def crash_is_recovered_from(backend: BackendUnderTest) -> None:
    """`kill -9` of the trainer: on from the newest checkpoint, and no committed event is lost."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "crash", schedule=looked_at()))
    victim = service.trainer(run_id, 1)
    # A checkpoint's files are stored while the next steps run.
    service.until(run_id, lambda _: service.of_type(run_id, "checkpoint.saved"))
    with halted(victim.pid):
        before = service.events(run_id)
        victim.kill()
    service.until(run_id, lambda run: run["attempt"] == 2)
    service.trainer(run_id, 2)
    run = service.until_status(run_id, "succeeded")
    assert run["attempts"][0]["end_code"] == "trainer_crashed", run["attempts"][0]
    assert service.events(run_id)[: len(before)] == before
    first, second = service.of_type(run_id, "trainer.started")
    assert first["resumed_from_step"] is None
    assert second["resumed_from_step"] >= 1
    check_results(service, run_id, num_steps=LOOKED_AT)
    check_nothing_left(backend, run_id)


def pause_gives_back_and_resume_goes_on(backend: BackendUnderTest) -> None:
    """A run at work checkpoints and rests without holding anything, then goes on as the same."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "pause", schedule=looked_at()))
    service.trainer(run_id, 1)
    service.until_step(run_id, 1)
    service.ask(run_id, "pause")
    paused = service.until_status(run_id, "paused")
    check_nothing_left(backend, run_id)
    assert service.ask(run_id, "resume").status_code == 200
    service.trainer(run_id, 2)
    run = service.until_status(run_id, "succeeded")
    assert run["attempt"] == 2
    second = service.of_type(run_id, "trainer.started")[1]
    assert second["resumed_from_step"] >= int(paused["progress"]["step"]) >= 1
    check_results(service, run_id, num_steps=LOOKED_AT)
    check_nothing_left(backend, run_id)


def cancelled_run_resumes_as_a_new_one(backend: BackendUnderTest) -> None:
    """Cancel at work: the trainer checkpoints and leaves; a resume is a new run from there."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "cancel at work", schedule=looked_at()))
    service.trainer(run_id, 1)
    service.until_step(run_id, 1)
    cancel(backend, run_id, "running", then="cancelling")
    newest = service.get(run_id, "/checkpoints")["data"][0]
    answer = service.ask(run_id, "resume")
    assert answer.status_code == 201
    next_id = answer.json()["id"]
    assert next_id != run_id
    service.trainer(next_id, 1)
    service.until_status(next_id, "succeeded")
    assert service.of_type(next_id, "trainer.started")[0]["resumed_from_step"] == newest["step"]
    assert service.run(run_id)["status"] == "cancelled"
    check_nothing_left(backend, next_id)


def cancelled_while_queued(backend: BackendUnderTest) -> None:
    """Nothing is ever asked for."""
    with backend.nothing_free():
        run_id = backend.service.submit(spec_for(backend, "cancel queued"))
        cancel(backend, run_id, "queued")
    assert backend.service.run(run_id)["attempts"] == []


def cancelled_while_provisioning(backend: BackendUnderTest) -> None:
    """What was asked for is given back, and no trainer starts."""
    with backend.slow():
        run_id = backend.service.submit(spec_for(backend, "cancel provisioning"))
        cancel(backend, run_id, "provisioning")
    check_nothing_left(backend, run_id)
    assert backend.service.of_type(run_id, "trainer.started") == []


def cancelled_while_starting(backend: BackendUnderTest) -> None:
    """A trainer that has not said anything yet leaves too."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "cancel starting", schedule=long_schedule()))
    with halted(service.trainer(run_id, 1).pid):
        service.until_status(run_id, "starting")
        service.ask(run_id, "cancel")
        assert service.run(run_id)["status"] == "cancelling"
    check_cancelled(backend, run_id)


def cancelled_while_recovering(backend: BackendUnderTest) -> None:
    """A run that lost its trainer and has no place to go on asks for nothing more."""
    service = backend.service
    run_id = service.submit(spec_for(backend, "cancel recovering", schedule=long_schedule()))
    trainer = service.trainer(run_id, 1)
    service.until_step(run_id, 1)
    with backend.nothing_free():
        if trainer.is_running():
            trainer.kill()
        cancel(backend, run_id, "recovering")
    assert service.run(run_id)["attempt"] == 1


def bad_spec_is_refused(backend: BackendUnderTest) -> None:
    """Every mistake has its place and a sentence, and nothing is stored."""
    service = backend.service
    spec = spec_for(backend, "bad", schedule={"total_steps": 0}, unheard_of=1)
    answer = service.http.post("/v1/runs", json=spec)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert (problem["type"], problem["code"]) == (f"{TYPE}invalid_spec", "invalid_spec")
    pointers = {each["pointer"] for each in problem["errors"]}
    assert pointers == {"/schedule/total_steps", "/unheard_of"}, problem
    assert service.http.get("/v1/runs", params={"name": "bad"}).json()["data"] == []


CASES: tuple[Case, ...] = (
    trains_to_its_end,
    crash_is_recovered_from,
    pause_gives_back_and_resume_goes_on,
    cancelled_run_resumes_as_a_new_one,
    cancelled_while_queued,
    cancelled_while_provisioning,
    cancelled_while_starting,
    cancelled_while_recovering,
    bad_spec_is_refused,
)


def looked_at() -> dict[str, int]:
    """Of a run that is asked for something while it works, and then goes on to its end.

    Steps are as short as 0.1 s, and a request waits for a heartbeat, which comes every 2 s.
    """
    return {"total_steps": LOOKED_AT, "train_batch_size": 2, "mini_batch_size": 2}


def long_schedule() -> dict[str, int]:
    """Of a run that has to be at work when it is looked at."""
    return {"total_steps": 200, "train_batch_size": 2, "mini_batch_size": 2}


def cancel(backend: BackendUnderTest, run_id: str, when: str, *, then: str = "cancelled") -> None:
    """Cancel a run in a status, and wait until it is over."""
    backend.service.until_status(run_id, when)
    answer = backend.service.ask(run_id, "cancel").json()
    assert answer["status"] in (then, "cancelled"), answer
    check_cancelled(backend, run_id)


def check_cancelled(backend: BackendUnderTest, run_id: str) -> None:
    run = backend.service.until_status(run_id, "cancelled")
    assert run["end_reason"]["code"] == "cancelled_by_user", run["end_reason"]
    check_nothing_left(backend, run_id)
    repeated = backend.service.ask(run_id, "cancel").json()
    assert repeated["status"] == "cancelled"


def check_results(service: Service, run_id: str, *, num_steps: int = STEPS) -> None:
    """Everything a run makes is to be read through the API, whole and once."""
    events = service.events(run_id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    steps = {each["step"] for each in service.of_type(run_id, "step.completed")}
    assert steps == set(range(1, num_steps + 1))
    rows = {row["step"]: row for row in service.get(run_id, "/evals")["data"]}
    assert set(rows) == {0, num_steps}
    for row in rows.values():
        assert row["all"]["pass_at_n"]["k"] == 2
        assert 0.0 <= row["all"]["pass_at_n"]["value"] <= 1.0
    names = {"reward/avg_raw_reward", "policy/num_updates"}
    found = service.get(run_id, "/metrics", names="*")["data"]
    series = {each["name"]: each["points"] for each in found if each["decoding"] != "sampled"}
    assert names <= set(series), sorted(series)
    for name in names:
        assert [point["step"] for point in series[name]] == list(range(1, num_steps + 1)), name
    check_checkpoints(service, run_id, newest=num_steps)
    text = service.log(run_id, service.run(run_id)["attempt"])
    assert " INFO " in text
    assert "Traceback" not in text


def check_checkpoints(service: Service, run_id: str, *, newest: int) -> None:
    kept = service.get(run_id, "/checkpoints")["data"]
    assert [each["step"] for each in kept] == [newest, newest - 1]
    manifest = service.get(run_id, f"/checkpoints/{newest}")["manifest"]
    assert manifest["files"]
    for file in manifest["files"]:
        path = f"/v1/runs/{run_id}/checkpoints/{newest}/files/{file['path']}"
        answer = service.http.get(path, headers={"Range": f"bytes={file['size_bytes'] - 1}-"})
        assert answer.status_code in (200, 206), file


def check_nothing_left(backend: BackendUnderTest, run_id: str) -> None:
    service = backend.service
    service.until_so(lambda: not (backend.left(run_id) or service.left(run_id)))
