"""Services of the stack: one function and one entry in `TABLE` per service."""

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from hillclimb.process.launcher import WITHHELD_VARIABLES
from hillclimb.stack.options import CODE_ROOT
from hillclimb.stack.plan import StackPlan
from hillclimb.stack.servers.probes import file_written, http_ready, log_says, server_ready
from hillclimb.stack.supervisor.spec import ServiceSpec
from hillclimb.stack.system.cloud_keys import CLOUD_KEYS
from hillclimb.stack.system.ports import LOOPBACK

READY_FILE_VARIABLE = "HILLCLIMB_READY_FILE"
RUNNER_STOP_VARIABLE = "HILLCLIMB_RUNNER_STOP_TIMEOUT_S"
TRAINERS_SHARE = 0.75
CLUSTER_PROCESSES = "4"
"""Clusters that the cluster worker handles concurrently."""
NO_SECRETS = frozenset({"HILLCLIMB_READY_FILE", "PYTHONPATH", "VIRTUAL_ENV"})
SECRETS = WITHHELD_VARIABLES - NO_SECRETS | {"HILLCLIMB_SLACK_CHANNEL"}
"""Secrets of the control plane, and what is no setting without one of them."""
_BROKER = frozenset({"DATABASE_URL", "REDIS_URL", "HILLCLIMB_SECRET_KEY"})
_WORKER = _BROKER | {"HILLCLIMB_MASTER_KEYS", "SLACK_BOT_TOKEN", "HILLCLIMB_SLACK_CHANNEL"}
READ_BY: Mapping[str, frozenset[str]] = {
    "migrate": frozenset({"DATABASE_URL", "HILLCLIMB_OWNER_DATABASE_URL"}),
    "api": _WORKER
    | {"HILLCLIMB_BOOTSTRAP_KEY", "HILLCLIMB_RUNNER_TOKEN", "HILLCLIMB_METRICS_TOKEN"}
    | {"HILLCLIMB_OIDC_CLIENT_SECRET", "SLACK_SIGNING_SECRET"},
    "worker": _WORKER,
    "cluster-worker": _WORKER,
    "beat": _BROKER,
    "slack": _WORKER | {"SLACK_APP_TOKEN"},
    "sky-api": frozenset(CLOUD_KEYS),
    "runner": frozenset({"HILLCLIMB_RUNNER_TOKEN"}),
}
"""Of these secrets, what each service reads; a service that is not listed reads none."""


def services(plan: StackPlan) -> tuple[ServiceSpec, ...]:
    """Return the services of `plan` in start order; they stop in reverse order."""
    specs = [build(plan) for build in TABLE]
    present = [spec for spec in specs if spec is not None]
    names = {spec.name for spec in present}
    # External servers are not started here, so no service waits for them.
    return tuple(_with_its_secrets(_without_absent_needs(spec, names)) for spec in present)


def _postgres(plan: StackPlan) -> ServiceSpec | None:
    server = plan.postgres
    if server is None:
        return None
    return ServiceSpec(
        name="postgres",
        command=server.command(),
        cwd=server.data,
        prepare=server.prepare,
        ready=server_ready(server),
        account=server.account,
        port=server.port,
        stop_signal=signal.SIGINT,  # fast shutdown: roll back, checkpoint, leave
        stop_s=30.0,
    )


def _valkey(plan: StackPlan) -> ServiceSpec | None:
    server = plan.valkey
    if server is None:
        return None
    return ServiceSpec(
        name="valkey",
        command=server.command(),
        cwd=plan.state.path,
        prepare=server.initialise,
        ready=server_ready(server),
        port=server.port,
    )


def _sky_api(plan: StackPlan) -> ServiceSpec | None:
    server = plan.sky
    if server is None:
        return None
    return ServiceSpec(
        name="sky-api",
        command=server.command(),
        cwd=plan.state.path,
        environment=server.environment(),
        prepare=server.initialise,
        ready=http_ready(server.port, "/api/health"),
        port=server.port,
        start_s=180.0,
        stop_s=20.0,
    )


def _migrate(plan: StackPlan) -> ServiceSpec:
    ini = str(CODE_ROOT / "alembic.ini")
    return ServiceSpec(
        name="migrate",
        command=_python("-m", "alembic", "-c", ini, "upgrade", "head"),
        cwd=CODE_ROOT,
        environment={**plan.environment, **plan.owner},
        needs=("postgres",),
        one_shot=True,
    )


def _api(plan: StackPlan) -> ServiceSpec:
    place = ("--host", LOOPBACK, "--port", str(plan.api_port))
    shared = ("--shared", str(plan.state.path / "api"))
    return ServiceSpec(
        name="api",
        command=_python("-m", "api.http.live.serving", *place, *shared),
        cwd=CODE_ROOT,
        environment={**plan.environment, **plan.clouds},
        needs=("postgres", "valkey", "migrate"),
        ready=http_ready(plan.api_port, "/v1/health/ready"),
        port=plan.api_port,
    )


def _worker(plan: StackPlan) -> ServiceSpec:
    name = ("--hostname", "hillclimb@%h")
    quick = ("--without-gossip", "--without-mingle")
    options = ("--concurrency", "1", "--loglevel", "INFO", *name, *quick)
    return ServiceSpec(
        name="worker",
        command=_python("-m", "celery", "-A", "worker.app", "worker", *options),
        cwd=CODE_ROOT,
        environment={**plan.environment, **plan.clouds},
        needs=("postgres", "valkey", "migrate"),
        ready=log_says(r"hillclimb@[^\s@]+ ready\.$"),
    )


def _cluster_worker(plan: StackPlan) -> ServiceSpec | None:
    """Return the worker for slow cloud requests; None if the stack rents no clusters."""
    if "HILLCLIMB_CLOUDS" not in plan.clouds:
        return None
    name = ("--hostname", "clusters@%h")
    quick = ("--without-gossip", "--without-mingle")
    options = ("--queues", "clusters", "--concurrency", CLUSTER_PROCESSES, "--loglevel", "INFO")
    return ServiceSpec(
        name="cluster-worker",
        command=_python("-m", "celery", "-A", "worker.app", "worker", *options, *name, *quick),
        cwd=CODE_ROOT,
        environment={**plan.environment, **plan.clouds},
        needs=("postgres", "valkey", "migrate"),
        ready=log_says(r"clusters@[^\s@]+ ready\.$"),
    )


def _beat(plan: StackPlan) -> ServiceSpec:
    schedule = str(plan.state.path / "beat" / "schedule")
    # Beat refuses to start on the pid file of a killed one; the supervisor already ensures one.
    options = ("--loglevel", "INFO", "-s", schedule, "--pidfile=")
    # Beat schedules cluster tasks only if clusters are rented; it needs no other cloud variable.
    clouds = {name: plan.clouds[name] for name in ("HILLCLIMB_CLOUDS",) if name in plan.clouds}
    return ServiceSpec(
        name="beat",
        command=_python("-m", "celery", "-A", "worker.app", "beat", *options),
        cwd=CODE_ROOT,
        environment={**plan.environment, **clouds},
        # Most of its tasks are the worker's, and a start leaves the processors to worker and API.
        needs=("valkey", "migrate", "worker"),
        ready=log_says(r"beat: Starting\.\.\."),
    )


def _slack(plan: StackPlan) -> ServiceSpec | None:
    """Return the process of Socket Mode; None without an app-level token.

    It is ready although Slack is away: nothing waits for Slack.
    """
    if "SLACK_APP_TOKEN" not in plan.environment:
        return None
    return ServiceSpec(
        name="slack",
        command=_python("-m", "api.http.slack.socket_mode"),
        cwd=CODE_ROOT,
        environment={**plan.environment, **plan.clouds},
        needs=("postgres", "valkey", "migrate"),
        ready=log_says(r"Socket Mode: "),
    )


def _runner(plan: StackPlan) -> ServiceSpec:
    ready = plan.state.ready_file("runner")
    limit_s = plan.options.runner_stop_s
    # Trainers get a shorter limit than the runner, so that it can still report their end.
    own = {
        READY_FILE_VARIABLE: str(ready),
        RUNNER_STOP_VARIABLE: str(max(1.0, TRAINERS_SHARE * limit_s)),
    }
    return ServiceSpec(
        name="runner",
        command=_python("-m", "worker.runner"),
        cwd=CODE_ROOT,
        environment={**plan.environment, **own},
        needs=("api",),
        prepare=lambda: ready.unlink(missing_ok=True),
        ready=file_written(ready),
        stop_s=limit_s,
    )


TABLE: tuple[Callable[[StackPlan], ServiceSpec | None], ...] = (
    _postgres,
    _valkey,
    _sky_api,
    _migrate,
    _api,
    _worker,
    _cluster_worker,
    _beat,
    _slack,
    _runner,
)


def _python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def _without_absent_needs(spec: ServiceSpec, present: set[str]) -> ServiceSpec:
    return replace(spec, needs=tuple(name for name in spec.needs if name in present))


def _with_its_secrets(spec: ServiceSpec) -> ServiceSpec:
    """Return the service without the secrets that are others': not in /proc either."""
    withheld = SECRETS - READ_BY.get(spec.name, frozenset())
    own = {name: value for name, value in spec.environment.items() if name not in withheld}
    return replace(spec, environment=own, withheld=withheld)
