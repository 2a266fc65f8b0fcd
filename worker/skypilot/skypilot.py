"""`Clouds` over SkyPilot's API server; the only file that imports sky.

SKYPILOT_API_SERVER_ENDPOINT names the server, which is never started from here. Importing this
module takes seconds and 150 MB: only a worker with clusters does.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from worker.deadlines import (
    ABANDONED_REQUEST_S,
    CLOUD_CALL_S,
    CONNECT_S,
    LOCAL_CALL_S,
    OPTIONAL_CALL_S,
)

# Read when sky is imported. The client must not start a server: nobody would stop it.
os.environ.setdefault("SKYPILOT_DISABLE_LOCAL_API_SERVER", "1")
os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
os.environ.setdefault("SKYPILOT_USER_ID", "68636c62")

import httpx
import requests
import sky
from sky import exceptions
from sky.client import sdk
from sky.server import common as server_common
from sky.server import rest
from sky.utils.common import StatusRefreshMode
from sky.utils.status_lib import ClusterStatus

from hillclimb.hardware.features import has_autodown
from hillclimb.hardware.offers import Offer
from hillclimb.spec.backend.skypilot import CandidateSpec
from worker.skypilot.catalog import PriceKey, matching_offers, price_key
from worker.skypilot.launch_errors import cloud_error
from worker.skypilot.launch_log import parse_offers, sentence
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudsError,
    CloudState,
    CloudsUnreachable,
    ClusterPlan,
    ErrorKind,
    RequestReport,
    RequestState,
    TriedOffer,
)
from worker.skypilot.responses import facts_of, hourly_of, jobs_of
from worker.skypilot.secrets_staging import SecretsStaging

T = TypeVar("T")
D = TypeVar("D")
log = logging.getLogger(__name__)

ENDPOINT = "SKYPILOT_API_SERVER_ENDPOINT"
_FIELDS = (
    *("request_id", "name", "entrypoint", "status", "created_at", "user_id", "return_value"),
    *("error", "pid", "schedule_type", "cluster_name", "finished_at", "status_msg"),
)
"""Fields of a request to fetch: without its body, which may be large."""
_LAUNCH = ("sky.launch", "launch")
_UNFINISHED = ("PENDING", "RUNNING")
_STATES = {
    ClusterStatus.UP: CloudState.UP,
    ClusterStatus.INIT: CloudState.INIT,
    ClusterStatus.PENDING: CloudState.INIT,
    ClusterStatus.STOPPED: CloudState.STOPPED,
    ClusterStatus.AUTOSTOPPING: CloudState.STOPPED,
}
_UNREACHABLE_ERRORS = (
    requests.exceptions.RequestException,
    exceptions.ApiServerConnectionError,
    exceptions.ApiServerAuthenticationError,
    exceptions.APIVersionMismatchError,
    exceptions.ServerTemporarilyUnavailableError,
    exceptions.RequestInterruptedError,
    exceptions.ConcurrentWorkerExhaustedError,
)

_FINAL_STATUSES = (400, 403, 413, 422)
"""HTTP statuses of a final refusal. Others may come from a gateway, from a server that is starting,
or from one whose token has expired, and are retried."""
_UPLOAD_FAULT = re.compile(
    r"Failed to (?:check blob existence: (\d+)"
    r"|upload (?:files|chunk)(?:.*\(Status code: (\d+)\))?)",
    re.DOTALL,
)
"""The client's message about files that it could not upload, with the server's HTTP status."""

_FOREIGN_ANSWER = ("Failed to get request ID from", "Failed to process response from")
"""Start of the client's message about an answer that is not SkyPilot's: an error page of a proxy
before the server, or a redirection."""

_ends_at: ContextVar[float] = ContextVar("ends_at")  # monotonic, seconds


class _DeadlineAdapter(requests.adapters.HTTPAdapter):
    """Limits every HTTP request of sky's client to the remaining time of the current call.

    The client waits for some answers for ever, and retries a 503 for ten minutes. A launch sent by
    a call whose deadline has passed would rent machines that no tick expects.
    """

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Send within the deadline. Raises requests' Timeout, or ConnectionError on a 503 too."""
        remaining_s = _ends_at.get(time.monotonic() + CLOUD_CALL_S) - time.monotonic()
        if remaining_s <= 0:
            raise requests.exceptions.Timeout("the deadline of this call has passed")
        kwargs["timeout"] = (min(CONNECT_S, remaining_s), remaining_s)
        answer = super().send(request, *args, **kwargs)
        if answer.status_code == 503:
            answer.close()
            raise requests.exceptions.ConnectionError("the server accepts no requests now (503)")
        return answer


for _scheme in ("http://", "https://"):
    rest._session.mount(_scheme, _DeadlineAdapter(pool_maxsize=20))  # noqa: SLF001 - no other way in


def make_clouds(prefix: str) -> SkyPilotClouds:
    """Return the clouds of the environment's API server. Raises ValueError where none is set."""
    if not os.environ.get(ENDPOINT):
        raise ValueError(f"{ENDPOINT} is not set: `hillclimb up --with-sky` sets it")
    return SkyPilotClouds(prefix)


class SkyPilotClouds:
    """The port over SkyPilot, for clusters whose names begin with `prefix`."""

    def __init__(self, prefix: str, secrets: SecretsStaging | None = None) -> None:
        self.prefix = prefix
        self._secrets = secrets or SecretsStaging()
        self._unanswered: dict[Hashable, _PendingRequest] = {}

    def launch(self, plan: ClusterPlan) -> str:
        """See `Clouds.launch`. The files are uploaded before the launch is requested."""
        try:
            file = self._secrets.put(plan.name, plan.secrets) if plan.secrets else None
            with (
                _deadline(CLOUD_CALL_S),
                contextlib.redirect_stdout(io.StringIO()),
                _archive_in(file),
            ):
                return _submit(_task(plan, file), plan.name)
        except CloudsError:
            raise
        except Exception as error:
            raise cloud_error(error) from error
        finally:
            # A server on this machine gets no upload: it reads the file once machines are up.
            if not server_common.is_api_server_local():
                self._secrets.drop(plan.name)

    def list_launches(self, name: str) -> tuple[str, ...]:
        """See `Clouds.list_launches`."""
        with _deadline(LOCAL_CALL_S):
            return self._launches(name, *_UNFINISHED)

    def get_launch(self, request_id: str) -> RequestReport:
        """See `Clouds.get_launch`."""
        with _deadline(CLOUD_CALL_S):
            matches = sdk.api_status([request_id], fields=list(_FIELDS))
            if not matches:
                return RequestReport(state=RequestState.FORGOTTEN)
            (request,) = matches
            has_started = request.status != "PENDING"
            offers = _best_effort(lambda: self._logged_offers(request), ()) if has_started else ()
            if request.status in _UNFINISHED:
                return RequestReport(state=RequestState.WORKING, offers=offers)
            self._secrets.drop(str(request.cluster_name))
            return self._final_report(request.request_id, offers)

    def list_clusters(self) -> Mapping[str, CloudCluster]:
        """See `Clouds.list_clusters`. Where a cloud is silent SkyPilot keeps the old status."""
        return self._status(f"{self.prefix}*")

    def get_cluster(self, name: str) -> CloudCluster | None:
        """See `Clouds.get_cluster`. Faster than a list, which queries a few clouds at a time."""
        return self._status(name).get(name)

    def _status(self, pattern: str) -> Mapping[str, CloudCluster]:
        """Return the clusters of a name, or of all names with a prefix (`PREFIX*`)."""
        with _deadline(CLOUD_CALL_S):
            answer = self._query(
                ("status", pattern),
                lambda: sdk.status([pattern], StatusRefreshMode.FORCE, all_users=True),
            )
            records = [each for each in answer.unwrap() if each["name"].startswith(self.prefix)]
            prices = _best_effort(_hourly_prices, {}) if records else {}
        return {each["name"]: _cluster(each, prices.get(each["name"])) for each in records}

    def list_jobs(self, name: str) -> tuple[CloudJob, ...] | None:
        """See `Clouds.list_jobs`."""
        with _deadline(CLOUD_CALL_S):
            answer = self._query(("jobs", name), lambda: sdk.queue(name, all_users=True))
            if isinstance(answer.error, exceptions.ClusterDoesNotExist):
                return ()
            if isinstance(answer.error, exceptions.ClusterNotUpError):
                return None
        return jobs_of(answer.unwrap())

    def cancel_jobs(self, name: str, ids: tuple[int, ...]) -> str:
        """See `Clouds.cancel_jobs`. Without `all_users`, which would cancel all jobs."""
        with _deadline(LOCAL_CALL_S):
            return str(sdk.cancel(name, job_ids=list(ids)))

    def terminate(self, name: str) -> str:
        """See `Clouds.terminate`. A missing cluster is an error of the request, not of this call.

        SkyPilot ends an existing cluster, and a running launch with it. A launch that is still
        queued would rent machines afterwards, so it is cancelled first.
        """
        self._secrets.drop(name)
        with _deadline(CLOUD_CALL_S):
            queued = _best_effort(lambda: self._launches(name, "PENDING"), ())
            if queued:
                _best_effort(
                    lambda: sdk.api_cancel(list(queued), all_users=True, silent=True), None
                )
            return str(sdk.down(name))

    def termination_fault(self, request_id: str) -> str | None:
        """See `Clouds.termination_fault`."""
        with _deadline(LOCAL_CALL_S):
            matches = sdk.api_status([request_id], fields=list(_FIELDS))
            if not matches or matches[0].status != "FAILED":
                return None
            error = _wait_for(request_id).error
        return _message_of(error) if error else None

    def list_offers(self, plan: ClusterPlan) -> tuple[Offer, ...]:
        """See `Clouds.list_offers`. GPU candidates only: catalogs list no other machines."""
        candidates = [(n, each) for n, each in enumerate(plan.candidates) if each.accelerators]
        with _deadline(CLOUD_CALL_S):
            lists = {
                key: self._price_list(key) for key in {price_key(each) for _, each in candidates}
            }
        return tuple(
            offer
            for number, candidate in candidates
            for offer in matching_offers(
                number, candidate, plan.num_nodes, lists[price_key(candidate)]
            )
        )

    def _launches(self, name: str, *statuses: str) -> tuple[str, ...]:
        """Return ids of the launches of a cluster in these statuses, oldest first."""
        launches = [
            each
            for each in sdk.api_status(cluster_name=name, fields=list(_FIELDS))
            if each.name in _LAUNCH and each.status in statuses and each.cluster_name == name
        ]
        return tuple(each.request_id for each in sorted(launches, key=lambda r: r.created_at))

    def _query(self, question: Hashable, send: Callable[[], Any]) -> _Result:
        """Return a fresh result, after waiting for an earlier request of the same question.

        Else a server slower than the deadline would get one more request at every tick. One older
        than `ABANDONED_REQUEST_S` is not waited for. A late result is dropped: clusters may have
        changed since.
        """
        late = self._unanswered.get(question)
        if late is not None and time.monotonic() - late.sent_at < ABANDONED_REQUEST_S:
            _wait_for(late.request_id)
        request_id = send()
        self._unanswered[question] = _PendingRequest(request_id, time.monotonic())
        answer = _wait_for(request_id)
        self._unanswered.pop(question, None)
        return answer

    def _price_list(self, key: PriceKey) -> list[Any]:
        """Return the machines of a cloud's catalog; empty where the catalog has an error."""
        cloud, gpu, count = key
        answer = self._query(
            key,
            lambda: sdk.list_accelerators(
                name_filter=f"^{gpu}$",
                quantity_filter=count,
                clouds=[cloud],
                all_regions=True,
                case_sensitive=False,  # as a launch takes the name
            ),
        )
        # Each cloud's catalog raises its own error for a machine that it does not offer.
        catalog: Mapping[str, list[Any]] = {} if answer.error else answer.value
        return [machine for machines in catalog.values() for machine in machines]

    def _final_report(self, request_id: str, offers: tuple[TriedOffer, ...]) -> RequestReport:
        """Return the report of a finished launch."""
        answer = _wait_for(request_id)
        if isinstance(answer.error, exceptions.RequestCancelled):
            error = CloudError(
                ErrorKind.UNKNOWN, "the launch was cancelled at SkyPilot's API server", offers
            )
            return RequestReport(state=RequestState.FAILED, error=error, offers=offers)
        if answer.is_forgotten:
            return RequestReport(state=RequestState.FORGOTTEN)
        if answer.error is not None:
            error = cloud_error(answer.error, offers)
            return RequestReport(state=RequestState.FAILED, error=error, offers=error.offers)
        job_id, handle = answer.value
        facts = facts_of(handle, _best_effort(_hourly_prices, {}).get(handle.cluster_name))
        return RequestReport(state=RequestState.DONE, job_id=job_id, cluster=facts, offers=offers)

    def _logged_offers(self, request: Any) -> tuple[TriedOffer, ...]:
        """Parse the launch's log; without a log the ledger stays empty, which harms nothing."""
        output = io.StringIO()
        try:
            sdk.stream_and_get(request.request_id, follow=False, output_stream=output)
        except exceptions.ClientError:
            return ()
        ended = request.finished_at
        return parse_offers(
            output.getvalue(),
            began_at=datetime.fromtimestamp(request.created_at),  # noqa: DTZ006 - as the log has it
            ended_at=datetime.fromtimestamp(ended) if ended else None,  # noqa: DTZ006
        )


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request without an answer yet; `sent_at` by the monotonic clock (seconds)."""

    request_id: Any
    sent_at: float


@dataclass(frozen=True, slots=True)
class _Result:
    """Result of a finished request: a value, or the error that it ended with."""

    value: Any = None
    error: Exception | None = None

    @property
    def is_forgotten(self) -> bool:
        """True where the server restarted since; the client has no error class for it."""
        return isinstance(self.error, RuntimeError) and ": 404 " in str(self.error)

    def unwrap(self) -> Any:
        """Return the value. Raises CloudsUnreachable: errors here say nothing about a cluster."""
        if self.error is not None:
            raise CloudsUnreachable(f"SkyPilot: {_message_of(self.error)}") from self.error
        return self.value


def _wait_for(request_id: Any) -> _Result:
    """Wait for a request to finish, within the deadline of the call."""
    try:
        return _Result(value=sdk.get(request_id))
    except _UNREACHABLE_ERRORS:
        raise
    except Exception as error:
        answer = _Result(error=error)
        if str(error).startswith("Failed to get request") and not answer.is_forgotten:
            # A proxy before the server answered (502, 504), not the request.
            raise CloudsUnreachable(f"SkyPilot: {_message_of(error)}") from error
        return answer


def _message_of(error: Exception) -> str:
    """Return the error's message in one line, or its class name."""
    return sentence(str(error)) or type(error).__name__


def _best_effort(query: Callable[[], T], default: D) -> T | D:
    """Return an optional answer, or `default` where none comes within `OPTIONAL_CALL_S`."""
    remaining_s = _ends_at.get(time.monotonic() + OPTIONAL_CALL_S) - time.monotonic()
    try:
        with _deadline(min(OPTIONAL_CALL_S, remaining_s)):
            return query()
    except (CloudsUnreachable, exceptions.ClientError, RuntimeError) as fault:
        log.info("no answer to an optional query: %s", _message_of(fault))
        return default


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Limit all requests of the block together to a time. Raises CloudsUnreachable."""
    token = _ends_at.set(time.monotonic() + seconds)
    try:
        yield
    except (*_UNREACHABLE_ERRORS, exceptions.PermissionDeniedError) as error:
        raise CloudsUnreachable(f"SkyPilot's API server: {_message_of(error)}") from error
    except RuntimeError as error:
        if not str(error).startswith(_FOREIGN_ANSWER):
            raise
        raise CloudsUnreachable(f"SkyPilot's API server: {_message_of(error)}") from error
    finally:
        _ends_at.reset(token)


def _submit(task: sky.Task, name: str) -> str:
    """Request a launch. Raises CloudError on a final refusal, else errors for `_deadline`."""
    try:
        return str(sdk.launch(task, cluster_name=name))
    except exceptions.PermissionDeniedError as error:
        raise cloud_error(error) from error
    except requests.exceptions.HTTPError as error:
        if error.response is None or error.response.status_code not in _FINAL_STATUSES:
            raise
        raise CloudError(ErrorKind.REFUSED, _message_of(error)) from error
    except (httpx.HTTPError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_upload_retryable(str(error)):
            raise
        # The launch was not requested yet, so calling it again is safe.
        raise CloudsUnreachable(
            f"SkyPilot's API server took no upload: {_message_of(error)}"
        ) from error


def _is_upload_retryable(message: str) -> bool:
    """True for a failed upload that the server has not refused for good."""
    fault = _UPLOAD_FAULT.search(message)
    return fault is not None and int(fault[1] or fault[2] or 0) not in _FINAL_STATUSES


@contextlib.contextmanager
def _archive_in(file: Path | None) -> Iterator[None]:
    """Make the client write its archive of the files into our private folder, which is deleted.

    The client itself leaves the archive of a failed upload in the temporary folder.
    """
    before = tempfile.tempdir
    if file is not None:
        tempfile.tempdir = str(file.parent)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _task(plan: ClusterPlan, secrets: Path | None = None) -> sky.Task:
    task = sky.Task(
        name=plan.job_name,
        setup=plan.setup or None,
        run=plan.run,
        num_nodes=plan.num_nodes,
        envs=dict(plan.envs),
    )
    files = {remote: str(local) for remote, local in plan.files.items()}
    if secrets is not None:
        files |= {plan.secrets_path: str(secrets)}
    if files:
        task.set_file_mounts(files)
    resources = [_resources(each, plan) for each in plan.candidates]
    # A list is tried in its order, a set by price.
    task.set_resources(resources if plan.is_ordered else set(resources))
    return task


def _resources(candidate: CandidateSpec, plan: ClusterPlan) -> sky.Resources:
    has_autostop = plan.idle_minutes is not None and has_autodown(plan.candidates)
    usd = candidate.max_hourly_usd
    return sky.Resources(
        infra=candidate.infra,
        accelerators=candidate.accelerators,
        cpus=f"{candidate.cpus}+" if candidate.cpus else None,
        memory=f"{candidate.memory_gb}+" if candidate.memory_gb else None,
        disk_size=candidate.disk_gb,
        use_spot=candidate.use_spot,
        max_hourly_cost=usd / plan.num_nodes if usd else None,
        image_id=candidate.image,
        labels=dict(plan.labels) or None,
        autostop={"idle_minutes": plan.idle_minutes, "down": True} if has_autostop else None,
    )


def _cluster(record: Mapping[str, Any], hourly_usd: float | None) -> CloudCluster:
    handle = record["handle"]
    return CloudCluster(
        name=record["name"],
        state=_STATES.get(record["status"], CloudState.INIT),
        cluster=facts_of(handle, hourly_usd) if handle is not None else None,
    )


def _hourly_prices() -> dict[str, float]:
    """Return USD an hour of the existing clusters, all nodes together, by the server's prices."""
    return hourly_of(_wait_for(sdk.cost_report(days=0)).unwrap())
