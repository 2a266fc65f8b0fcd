"""What SkyPilot is asked for and how long it is waited for; against its real server: tests/e2e."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from hillclimb.spec.backend.skypilot import CandidateSpec, TrainerInstall
from worker.skypilot.port import (
    CloudError,
    CloudsError,
    CloudsUnreachable,
    ClusterPlan,
    ErrorKind,
    RequestState,
)
from worker.skypilot.secrets_staging import SecretsStaging

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("sky") is None,
        reason="SkyPilot is missing: `make setup` installs it",
    ),
    pytest.mark.filterwarnings("ignore"),
]
ON_LAMBDA = CandidateSpec(infra="lambda", accelerators="H100:8", max_hourly_usd=60)
ON_AWS = CandidateSpec(infra="aws/us-east-1", accelerators="H100:8", use_spot=True, disk_gb=500)
ON_PRIME = CandidateSpec(infra="primeintellect", accelerators="H100:8")


@pytest.fixture(scope="module")
def skypilot(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module; what sky writes when it is imported goes into a home of its own."""
    before = dict(os.environ)
    os.environ |= {"HOME": str(tmp_path_factory.mktemp("home"))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("worker.skypilot.skypilot")
    finally:
        os.environ["HOME"] = before["HOME"]


def plan(*candidates: CandidateSpec, **changes: Any) -> ClusterPlan:
    values: dict[str, Any] = {
        "name": "hc-test-run-1",
        "job_name": "att_1",
        "is_ordered": True,
        "num_nodes": 2,
        "trainer": TrainerInstall(),
        "setup": "echo setup",
        "run": "echo run",
        "envs": {"PLAIN": "seen"},
        "secrets": {"TOKEN": "do-not-tell"},
        "secrets_path": "~/secrets/att_1.json",
        "idle_minutes": 30,
    }
    return ClusterPlan(candidates=candidates, **(values | changes))


def asked(skypilot: ModuleType, wanted: ClusterPlan) -> dict[str, Any]:
    config: dict[str, Any] = skypilot._task(wanted).to_yaml_config()
    return config


def test_candidates_in_order_are_tried_in_order(skypilot: ModuleType) -> None:
    config = asked(skypilot, plan(ON_AWS, ON_LAMBDA))
    infras = [each["infra"] for each in config["resources"]["ordered"]]
    assert infras == ["aws/us-east-1", "lambda"]
    assert config["resources"]["ordered"][0]["use_spot"] is True
    assert config["resources"]["ordered"][0]["disk_size"] == 500


def test_the_cheapest_is_taken_of_candidates_without_order(skypilot: ModuleType) -> None:
    config = asked(skypilot, plan(ON_AWS, ON_LAMBDA, is_ordered=False))
    assert {each["infra"] for each in config["resources"]["any_of"]} == {"aws/us-east-1", "lambda"}


def test_the_job_has_the_attempts_name_and_the_gangs_size(skypilot: ModuleType) -> None:
    config = asked(skypilot, plan(ON_LAMBDA))
    assert (config["name"], config["num_nodes"]) == ("att_1", 2)
    assert (config["setup"], config["run"]) == ("echo setup", "echo run")
    assert config["envs"] == {"PLAIN": "seen"}


@pytest.mark.parametrize("is_local", [False, True])
def test_a_secret_is_in_a_file_alone_and_that_is_gone_when_it_is_not_needed(
    skypilot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """A server that the client takes for its own reads the file long after it was asked."""
    seen: list[dict[str, Any]] = []

    def accept(task: Any, cluster_name: str) -> str:
        seen.append(task.to_yaml_config())
        file = Path(seen[0]["file_mounts"]["~/secrets/att_1.json"])
        assert file.is_relative_to(tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert json.loads(file.read_text()) == {"TOKEN": "do-not-tell"}
        with tempfile.NamedTemporaryFile(delete=False) as archive:
            archive.write(b"do-not-tell")
        return f"launch of {cluster_name}"

    def get(request_id: str) -> None:
        raise skypilot.exceptions.RequestCancelled(request_id)

    staged = tmp_path / "launches"
    record = launch("r1", "RUNNING")
    monkeypatch.setattr(skypilot.sdk, "launch", accept)
    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: [record])
    monkeypatch.setattr(skypilot.server_common, "is_api_server_local", lambda: is_local)
    monkeypatch.setattr(skypilot.sdk, "stream_and_get", lambda *_, **__: None)
    monkeypatch.setattr(skypilot.sdk, "get", get)
    clouds = skypilot.SkyPilotClouds("hc-", SecretsStaging(staged))
    assert clouds.launch(plan(ON_LAMBDA)) == "launch of hc-test-run-1"
    assert "do-not-tell" not in json.dumps(seen, default=str)
    assert "TOKEN" not in json.dumps(seen, default=str)
    assert any(staged.iterdir()) is is_local
    assert clouds.get_launch("r1").state is RequestState.WORKING
    assert any(staged.iterdir()) is is_local, "machines may not be up yet"
    record.status = "CANCELLED"
    assert clouds.get_launch("r1").state is RequestState.FAILED
    assert list(staged.iterdir()) == []


def test_the_most_that_may_be_paid_is_said_by_node(skypilot: ModuleType) -> None:
    (resources,) = skypilot._task(plan(ON_LAMBDA)).resources
    assert resources.max_hourly_cost == 30.0


def test_autodown_is_asked_for_where_every_candidate_has_it(skypilot: ModuleType) -> None:
    with_it = skypilot._task(plan(ON_LAMBDA, ON_AWS)).resources
    assert [(each.autostop_config.idle_minutes, each.autostop_config.down) for each in with_it] == [
        (30, True),
        (30, True),
    ]
    without = skypilot._task(plan(ON_PRIME, ON_LAMBDA)).resources
    assert [each.autostop_config for each in without] == [None, None]


def test_one_cluster_is_asked_for_at_its_cloud_and_no_other(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all clusters SkyPilot asks a few clouds at a time: a thousand take minutes."""
    named: list[list[str]] = []

    def status(names: list[str], refresh: Any, *, all_users: bool) -> str:
        named.append(names)
        return "asked"

    record = {"name": "hc-b-1", "status": skypilot.ClusterStatus.UP, "handle": None}
    answers = {"asked": [record]}
    monkeypatch.setattr(skypilot.sdk, "status", status)
    monkeypatch.setattr(skypilot.sdk, "cost_report", lambda **_: "prices")
    monkeypatch.setattr(skypilot.sdk, "get", lambda asked: answers.get(asked, []))
    clouds = skypilot.SkyPilotClouds("hc-")
    assert clouds.get_cluster("hc-b-1").name == "hc-b-1"
    assert set(clouds.list_clusters()) == {"hc-b-1"}
    answers["asked"] = []
    assert clouds.get_cluster("hc-b-1") is None
    assert named == [["hc-b-1"], ["hc-*"], ["hc-b-1"]]


def test_a_server_that_never_answers_is_given_up_in_time(skypilot: ModuleType) -> None:
    session = skypilot.requests.Session()
    session.mount("http://", skypilot._DeadlineAdapter())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        started = time.monotonic()
        with pytest.raises(CloudsUnreachable), skypilot._deadline(0.5):
            session.get(url, timeout=None)
        assert time.monotonic() - started < 3.0
        with pytest.raises(CloudsUnreachable), skypilot._deadline(-1.0):
            session.get(url)


class Overloaded(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def overloaded() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Overloaded) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_without_a_place_is_asked_at_the_next_tick_and_not_for_ten_minutes(
    skypilot: ModuleType, overloaded: str
) -> None:
    started = time.monotonic()
    with pytest.raises(CloudsUnreachable), skypilot._deadline(5.0):
        skypilot.rest.request("GET", f"{overloaded}/api/status")
    assert time.monotonic() - started < 3.0


def http_error(skypilot: ModuleType, status: int) -> Exception:
    response = skypilot.requests.Response()
    response.status_code = status
    error: Exception = skypilot.requests.exceptions.HTTPError(f"{status}", response=response)
    return error


def launching(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception
) -> Exception:
    """Return what a launch comes to whose call raises `error`."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(skypilot.sdk, "launch", fail)
    clouds = skypilot.SkyPilotClouds("hc-", SecretsStaging(folder))
    with pytest.raises(CloudsError) as raised:
        clouds.launch(plan(ON_LAMBDA))
    return raised.value


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_launch_that_the_server_rejects_is_refused_and_not_repeated(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    said = launching(skypilot, monkeypatch, tmp_path, http_error(skypilot, status))
    assert isinstance(said, CloudError)
    assert said.kind is ErrorKind.REFUSED


@pytest.mark.parametrize("status", [401, 404, 408, 429, 500, 502])
def test_an_answer_that_may_be_a_gateways_is_none(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    said = launching(skypilot, monkeypatch, tmp_path, http_error(skypilot, status))
    assert isinstance(said, CloudsUnreachable)


def test_what_is_not_permitted_ends_a_launch_and_no_other_call(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A tick, and the sweep over orphans, must outlive it."""
    denied = skypilot.exceptions.PermissionDeniedError("not your cluster")
    said = launching(skypilot, monkeypatch, tmp_path, denied)
    assert isinstance(said, CloudError)
    assert said.kind is ErrorKind.REFUSED

    def fail(*_: object, **__: object) -> None:
        raise denied

    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: [])
    for name in ("down", "queue", "status"):
        monkeypatch.setattr(skypilot.sdk, name, fail)
    clouds = skypilot.SkyPilotClouds("hc-")
    for call in (clouds.terminate, clouds.list_jobs, lambda _: clouds.list_clusters()):
        with pytest.raises(CloudsUnreachable, match="not your cluster"):
            call("hc-test-run-1")


@pytest.mark.parametrize(
    "words",
    [
        "Failed to upload files to API server.",
        "Failed to upload chunk: 1 / 2: busy (Status code: 503)",
        "Failed to upload chunk: 1 / 2: who are you (Status code: 401)",
        "Failed to check blob existence: 502 bad gateway",
        None,
    ],
)
def test_files_that_do_not_reach_the_server_are_no_launch_that_failed(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str | None
) -> None:
    error = RuntimeError(words) if words else httpx.ReadTimeout("timed out")
    assert isinstance(launching(skypilot, monkeypatch, tmp_path, error), CloudsUnreachable)


@pytest.mark.parametrize(
    "words",
    [
        "Failed to upload chunk: 1 / 2: too big (Status code: 413)",
        "Failed to check blob existence: 403 no",
        "no such task",
    ],
)
def test_files_that_the_server_does_not_take_are(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    assert isinstance(launching(skypilot, monkeypatch, tmp_path, RuntimeError(words)), CloudError)


@pytest.mark.parametrize("how", ["get request ID", "process response"])
def test_a_page_of_what_stands_before_the_server_is_no_answer_and_names_nobody(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    where = "SkyPilot API server at http://operator:s3cr3t@sky.internal:46580"
    error = RuntimeError(f"Failed to {how} from {where}. Response: 200 <html>log in</html>")
    fault = launching(skypilot, monkeypatch, tmp_path, error)
    assert isinstance(fault, CloudsUnreachable)
    assert "http://sky.internal:46580. Response: 200 <html>" in str(fault)

    def answer(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: [])
    monkeypatch.setattr(skypilot.sdk, "down", answer)
    with pytest.raises(CloudsUnreachable, match=r"//sky\.internal"):
        skypilot.SkyPilotClouds("hc-test-").terminate("hc-test-run-1")


class Requested(SimpleNamespace):
    """A launch as `api_status` tells it."""


def launch(request_id: str, status: str) -> Requested:
    return Requested(
        request_id=request_id,
        name="sky.launch",
        status=status,
        cluster_name="hc-test-run-1",
        created_at=1.0,
        finished_at=None,
    )


def test_what_may_wait_keeps_no_answer_back(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log and the prices do not come; that the launch is over does."""

    def silent(*_: object, **__: object) -> None:
        raise skypilot.requests.exceptions.Timeout("no answer")

    handle = SimpleNamespace(
        cluster_name="hc-test-run-1", launched_resources=None, launched_nodes=1
    )
    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: [launch("r1", "SUCCEEDED")])
    monkeypatch.setattr(skypilot.sdk, "stream_and_get", silent)
    monkeypatch.setattr(skypilot.sdk, "cost_report", silent)
    monkeypatch.setattr(skypilot.sdk, "get", lambda _: (7, handle))
    monkeypatch.setattr(skypilot, "facts_of", lambda _, price: price)
    report = skypilot.SkyPilotClouds("hc-test-").get_launch("r1")
    assert (report.state.value, report.job_id, report.offers) == ("done", 7, ())


def test_a_cluster_that_is_not_up_is_not_one_without_jobs(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = skypilot.exceptions
    answers: list[Exception] = [
        errors.ClusterNotUpError("(status: INIT)"),
        errors.ClusterDoesNotExist("does not exist"),
    ]

    def answer(_: object) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(skypilot.sdk, "queue", lambda *_, **__: "r1")
    monkeypatch.setattr(skypilot.sdk, "get", answer)
    clouds = skypilot.SkyPilotClouds("hc-test-")
    assert clouds.list_jobs("hc-test-run-1") is None
    assert clouds.list_jobs("hc-test-run-1") == ()


def test_why_a_cluster_does_not_go_is_the_error_of_its_request(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Requested] = [launch("r1", "RUNNING")]

    def denied(_: object) -> None:
        raise PermissionError("denied at https://me:secret@cloud/v1")

    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: found)
    monkeypatch.setattr(skypilot.sdk, "get", denied)
    clouds = skypilot.SkyPilotClouds("hc-test-")
    assert clouds.termination_fault("r1") is None
    found[0].status = "FAILED"
    assert clouds.termination_fault("r1") == "denied at https://cloud/v1"
    found.clear()
    assert clouds.termination_fault("r1") is None


def test_a_gateway_that_has_no_answer_says_nothing_of_the_request(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gateway(_: object) -> None:
        raise RuntimeError("Failed to get request r1: 502 Bad Gateway")

    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: [launch("r1", "FAILED")])
    monkeypatch.setattr(skypilot.sdk, "stream_and_get", lambda *_, **__: None)
    monkeypatch.setattr(skypilot.sdk, "get", gateway)
    with pytest.raises(CloudsUnreachable, match="502"):
        skypilot.SkyPilotClouds("hc-test-").get_launch("r1")


def test_a_launch_that_waits_is_taken_back_and_one_at_work_is_left_to_skypilot(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [launch("waits", "PENDING"), launch("works", "RUNNING")]
    done: list[object] = []
    monkeypatch.setattr(skypilot.sdk, "api_status", lambda *_, **__: both)
    monkeypatch.setattr(skypilot.sdk, "api_cancel", lambda ids, **_: done.append(ids))
    monkeypatch.setattr(skypilot.sdk, "down", lambda name: done.append(name) or "r9")
    assert skypilot.SkyPilotClouds("hc-test-").terminate("hc-test-run-1") == "r9"
    assert done == [["waits"], "hc-test-run-1"]


@pytest.mark.parametrize("asked", ["H100:8", "h100:8"])
def test_a_price_is_found_however_the_name_is_written_as_a_launch_finds_it(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    machine = SimpleNamespace(
        region="us-west-1",
        instance_type="gpu_8x",
        cpu_count=208,
        memory=1800.0,
        price=23.92,
        spot_price=None,
        accelerator_count=8,
    )

    def listed(name_filter: str, *, case_sensitive: bool = True, **_: object) -> dict[str, Any]:
        """As SkyPilot's catalogs filter."""
        flags = 0 if case_sensitive else re.IGNORECASE
        return {"H100": [machine]} if re.search(name_filter, "H100", flags) else {}

    monkeypatch.setattr(skypilot.sdk, "list_accelerators", listed)
    monkeypatch.setattr(skypilot.sdk, "get", lambda answer: answer)
    wanted = plan(CandidateSpec(infra="lambda", accelerators=asked), num_nodes=1)
    (offer,) = skypilot.SkyPilotClouds("hc-test-").list_offers(wanted)
    assert (offer.infra, offer.hourly_usd) == ("lambda/us-west-1", 23.92)


def test_without_an_address_there_are_no_clouds(
    skypilot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(skypilot.ENDPOINT, raising=False)
    with pytest.raises(ValueError, match="--with-sky"):
        skypilot.make_clouds("hc-test-")
