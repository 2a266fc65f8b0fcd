"""From the user's choices to ports, keys and the services' environment."""

import errno
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from api.settings import Settings
from api.tables.database import BESIDE_POOL, LARGEST_POOL
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import NotConfigured
from hillclimb.stack import plan as plans
from hillclimb.stack.errors import StackError, StateUnusable
from hillclimb.stack.options import StackOptions
from hillclimb.stack.plan import make_plan
from hillclimb.stack.servers.probes import http_ready, log_says
from hillclimb.stack.services import CLUSTER_PROCESSES, READ_BY, SECRETS, TABLE, services
from hillclimb.stack.state.connection import connection
from hillclimb.stack.state.credentials import ensure_credentials
from hillclimb.stack.state.directory import StateDirectory, find_state_directory
from hillclimb.stack.state.records import ProcessRecord, ServiceRecord, StackRecord
from hillclimb.stack.supervisor.spec import ServiceLog
from hillclimb.stack.system import ports
from hillclimb.stack.system.ports import CHOSEN, LOOPBACK, find_free
from hillclimb.stack.system.processes import identify, spawn


@pytest.fixture
def options(tmp_path: Path) -> StackOptions:
    return StackOptions(state_dir=tmp_path.resolve() / "state", api_port=0)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_the_state_directory_is_the_project_of_the_working_directory(tmp_path: Path) -> None:
    project = tmp_path.resolve() / "project"
    (project / "deep" / "er").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    assert find_state_directory({}, project / "deep" / "er") == project / ".hillclimb"
    home = {"HILLCLIMB_HOME": str(tmp_path.resolve())}
    assert find_state_directory(home, project) == tmp_path.resolve() / ".hillclimb"
    explicit = home | {"HILLCLIMB_STATE_DIR": "here"}
    assert find_state_directory(explicit, project) == project / "here"


def test_a_home_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path.resolve() / "file"
    file.touch()
    with pytest.raises(StateUnusable) as refused:
        find_state_directory({"HILLCLIMB_HOME": str(file)}, tmp_path)
    assert str(refused.value) == (
        f"{file}/.hillclimb cannot be the state directory: {file} is not a directory."
        " Set HILLCLIMB_HOME to a directory that you may write to."
    )
    with pytest.raises(StateUnusable, match="Set HILLCLIMB_STATE_DIR to"):
        find_state_directory({"HILLCLIMB_STATE_DIR": str(file)}, tmp_path)
    with pytest.raises(NotConfigured, match="Set HILLCLIMB_HOME to"):
        find_connection(tmp_path, {"HILLCLIMB_HOME": str(file)})


def test_a_home_that_may_not_be_read_or_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = find_state_directory({"HILLCLIMB_HOME": "/proc/nowhere"}, tmp_path)
    with pytest.raises(StateUnusable, match=f"^{nowhere} cannot be made .* Set HILLCLIMB_HOME to"):
        StateDirectory(nowhere).create()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may open anything
    with pytest.raises(StateUnusable, match=r"you may not open /.* Set HILLCLIMB_HOME to"):
        find_state_directory({"HILLCLIMB_HOME": str(tmp_path)}, tmp_path)


def test_options_survive_the_way_through_the_environment(tmp_path: Path) -> None:
    options = StackOptions(
        state_dir=tmp_path.resolve(),
        api_port=8711,
        api_processes=3,
        postgres_port=0,
        valkey_port=6380,
        database_url="postgresql+psycopg://u:p@h/d",
        redis_url="redis://h/0",
        blobs_url="s3://bucket/prefix",
        trainer_python=Path("/opt/python"),
        runner_stop_s=7,
        with_sky=True,
        sky_port=46777,
        sky_url="http://sky:46580",
    )
    assert StackOptions.from_environment(options.as_environment(), Path("/")) == options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HILLCLIMB_API_PORT", "eighty"),
        ("HILLCLIMB_API_PROCESSES", "all"),
        ("DATABASE_URL", "postgresql://u:p@h/d"),
        ("HILLCLIMB_WITH_SKY", "perhaps"),
    ],
)
def test_a_malformed_variable_is_named_in_the_refusal(name: str, value: str) -> None:
    with pytest.raises(StackError, match=name):
        StackOptions.from_environment({name: value}, Path("/"))


def test_keys_are_made_once_and_kept_private(options: StackOptions) -> None:
    make_plan(options)
    state = StateDirectory(options.state_dir)
    assert stat.S_IMODE(state.secrets_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(options.state_dir.stat().st_mode) == 0o700
    first = ensure_credentials(state)
    assert make_plan(options).environment["HILLCLIMB_BOOTSTRAP_KEY"] == first.api_key
    assert len({*first.model_dump().values()}) == 5


def test_a_port_that_was_asked_for_and_is_taken_is_refused_by_name(
    options: StackOptions, taken_port: int
) -> None:
    with pytest.raises(StackError, match=f"Port {taken_port} for api is in use"):
        make_plan(replace(options, api_port=taken_port))


def remember(options: StackOptions, port: int, pid: int) -> None:
    me = identify(pid)
    assert me is not None
    service = ServiceRecord(
        state="ready",
        process=ProcessRecord(pid=me.pid, started=me.started),
        fingerprint="",
        log="",
        stop_signal=15,
        stop_s=1,
    )
    state = StateDirectory(options.state_dir)
    state.create()
    state.write(StackRecord(ports={"api": port}, services={"api": service}))


def test_the_remembered_port_is_kept_while_our_own_service_listens_on_it(
    options: StackOptions, taken_port: int
) -> None:
    remember(options, taken_port, psutil.Process().pid)
    assert make_plan(replace(options, api_port=None)).ports["api"] == taken_port


def test_a_remembered_port_that_a_stranger_took_is_replaced(
    options: StackOptions, taken_port: int
) -> None:
    state = StateDirectory(options.state_dir)
    state.create()
    state.write(StackRecord(ports={"api": taken_port}))
    assert make_plan(replace(options, api_port=None)).ports["api"] != taken_port


def test_a_chosen_port_is_none_that_the_kernel_gives_away(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API's is chosen long before the API binds it: meanwhile thousands are given away."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    if int(limits[0]) <= CHOSEN[-1]:
        pytest.skip("this kernel gives away lower ports than a usual one")
    chosen = {find_free() for _ in range(200)}
    assert max(chosen) < int(limits[0])
    assert len(chosen) > 150, "two stacks that start at once choose different ones"
    assert max(make_plan(options).ports.values()) < int(limits[0])


def test_a_port_in_use_is_not_chosen_and_none_at_all_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server((LOOPBACK, find_free())) as server:
        monkeypatch.setattr(ports, "CHOSEN", [server.getsockname()[1]])
        with pytest.raises(StackError, match=r"No port from \d+ to \d+ is free on 127.0.0.1"):
            find_free()


def test_where_no_port_may_be_bound_the_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with pytest.raises(PermissionError):
        find_free()


def test_a_requested_port_is_no_other_servers(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API's is chosen first."""
    monkeypatch.setattr(ports, "CHOSEN", pair := [find_free(), find_free()])
    plan = make_plan(replace(options, postgres_port=pair[0], redis_url="redis://cache/3"))
    assert plan.ports == {"api": pair[1], "postgres": pair[0]}


def test_a_port_of_an_earlier_version_is_replaced_unless_its_server_runs(
    options: StackOptions,
) -> None:
    state = StateDirectory(options.state_dir)
    state.create()
    state.write(StackRecord(ports={"api": 45_678, "postgres": 45_679}))
    chosen = make_plan(options).ports
    assert chosen["api"] == 45_678, "people know it"
    assert chosen["postgres"] in CHOSEN


def test_external_servers_replace_our_own_and_nothing_waits_for_them(
    options: StackOptions,
) -> None:
    external = replace(
        options, database_url="postgresql+psycopg://u:p@db/hc", redis_url="redis://cache/3"
    )
    plan = make_plan(external)
    specs = services(plan)
    assert [spec.name for spec in specs] == ["migrate", "api", "worker", "beat", "runner"]
    assert specs[0].needs == ()
    assert plan.environment["DATABASE_URL"] == "postgresql+psycopg://u:p@db/hc"
    assert plan.environment["REDIS_URL"] == "redis://cache/3"
    assert set(plan.ports) == {"api"}


def test_the_runner_starts_last_so_that_it_is_stopped_first(options: StackOptions) -> None:
    specs = services(make_plan(replace(options, runner_stop_s=5)))
    assert len(specs) == len(TABLE) - 3, "all but SkyPilot's API server, who asks it, and Slack"
    assert specs[-1].name == "runner"
    assert specs[-1].stop_s == 5
    assert float(specs[-1].environment["HILLCLIMB_RUNNER_STOP_TIMEOUT_S"]) == 3.75
    names = [spec.name for spec in specs]
    for spec in specs:
        assert all(names.index(need) < names.index(spec.name) for need in spec.needs)


def test_no_password_is_on_a_command_line(options: StackOptions) -> None:
    plan = make_plan(options)
    words = " ".join(" ".join(spec.command) for spec in services(plan))
    for secret in ensure_credentials(plan.state).model_dump().values():
        assert secret not in words


def test_slack_settings_are_handed_to_the_services(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_API_BASE_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("HILLCLIMB_SLACK_CHANNEL", "#fleet-training-runs")
    plan = make_plan(options)
    assert plan.environment["SLACK_API_BASE_URL"] == "http://127.0.0.1:1/api"
    assert plan.environment["HILLCLIMB_SLACK_CHANNEL"] == "#fleet-training-runs"
    assert "slack" not in [spec.name for spec in services(plan)]


@pytest.mark.parametrize(
    ("variable", "opened"), [(None, "loopback"), ("none", "none"), ("10.0.0.7", "10.0.0.7")]
)
def test_runs_reach_servers_of_the_own_machine_unless_its_operator_says_otherwise(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch, variable: str | None, opened: str
) -> None:
    monkeypatch.delenv("HILLCLIMB_RUN_PRIVATE_HOSTS", raising=False)
    if variable is not None:
        monkeypatch.setenv("HILLCLIMB_RUN_PRIVATE_HOSTS", variable)
    (runner,) = [spec for spec in services(make_plan(options)) if spec.name == "runner"]
    assert runner.environment["HILLCLIMB_RUN_PRIVATE_HOSTS"] == opened


def test_a_token_of_the_app_starts_the_process_of_socket_mode(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1-of-a-test")
    (slack,) = [spec for spec in services(make_plan(options)) if spec.name == "slack"]
    assert slack.command[1:] == ("-m", "api.http.slack.socket_mode")
    assert slack.environment["SLACK_APP_TOKEN"] == "xapp-1-of-a-test"
    assert "xapp-1-of-a-test" not in " ".join(slack.command)


def test_a_client_finds_the_url_and_the_first_key(options: StackOptions) -> None:
    assert connection(options.state_dir) is None
    plan = make_plan(options)
    plan.state.write(StackRecord(ports=plan.ports))
    found = connection(options.state_dir)
    assert found is not None
    assert found.url == f"http://127.0.0.1:{plan.api_port}"
    assert found.api_key == plan.environment["HILLCLIMB_BOOTSTRAP_KEY"]


def test_a_log_probe_reads_only_what_the_present_process_wrote(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old: ready.\n")
    probe = log_says(r"ready\.$")
    now = ServiceLog(path=log, offset=log.stat().st_size)
    assert probe(now) == "its log does not say 'ready\\\\.$'"
    with log.open("a") as file:
        file.write("new: ready.\n")
    assert probe(now) is None


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()
        self.wfile.write(b'{"detail": "Run migrations."}')

    def log_message(self, *_: object) -> None:
        return


def test_an_http_probe_needs_a_good_status(tmp_path: Path) -> None:
    log = ServiceLog(path=tmp_path / "log", offset=0)
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert http_ready(server.server_port, "/ready")(log) is None
        assert http_ready(server.server_port, "/other")(log) == (
            "GET /other answers 503: Run migrations."
        )
        server.shutdown()
        thread.join()
    assert http_ready(server.server_port, "/ready")(log) == "GET /ready is not answered"


CANARIES = {
    "HILLCLIMB_MASTER_KEYS": "m1:canary",
    "HILLCLIMB_OIDC_CLIENT_SECRET": "canary-oidc",
    "HILLCLIMB_METRICS_TOKEN": "canary-metrics",
    "HILLCLIMB_SLACK_CHANNEL": "#canary",
    "SLACK_BOT_TOKEN": "xoxb-canary",
    "SLACK_SIGNING_SECRET": "canary-signing",
    "SLACK_APP_TOKEN": "xapp-canary",
}


def test_each_service_gets_the_secrets_that_it_reads_and_no_other(
    options: StackOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the shell that started the stack has them; compose does the same."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HILLCLIMB_RUNNER_TOKEN", "of-the-shell")
    specs = services(make_plan(options))
    assert {spec.name for spec in specs} == READ_BY.keys() - {"cluster-worker", "sky-api"} | {
        "postgres", "valkey",
    }  # fmt: skip
    for spec in specs:
        target = tmp_path / f"{spec.name}.env"
        child = spawn(
            (sys.executable, "-c", "import os; print(*os.environ, sep='\\n')"),
            cwd=tmp_path,
            environment=spec.environment,
            withheld=spec.withheld,
            log=target,
        )
        assert child.popen.wait(30) == 0
        given = set(target.read_text().split())
        assert given & SECRETS <= READ_BY.get(spec.name, frozenset()), spec.name
        assert READ_BY.get(spec.name, frozenset()) - {"HILLCLIMB_OWNER_DATABASE_URL"} <= given
    runner = specs[-1].environment
    assert runner["HILLCLIMB_RUNNER_TOKEN"] != "of-the-shell"


def test_the_stacks_own_postgres_allows_what_the_pools_of_its_processes_add_up_to(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILLCLIMB_DB_POOL", "30")
    plan = make_plan(replace(options, api_processes=4))
    assert plan.postgres is not None
    allowed = int(plan.postgres.settings["max_connections"])
    settings = Settings.model_validate(
        {field.alias: plan.environment[field.alias] for field in Settings.model_fields.values()
         if field.alias in plan.environment}
    )  # fmt: skip
    assert (settings.api_processes, settings.db_pool) == (4, 30)
    api = settings.api_processes * (settings.db_pool + BESIDE_POOL)
    cluster_worker = int(CLUSTER_PROCESSES) * settings.db_worker_pool
    worker_and_slack = 2 * settings.db_worker_pool
    assert api + cluster_worker + worker_and_slack + 10 <= allowed < 200
    monkeypatch.setenv("HILLCLIMB_DB_POOL", "many")
    assert plans.POOLS["HILLCLIMB_DB_POOL"] == LARGEST_POOL
    assert plans.BESIDE_POOL == BESIDE_POOL
    with pytest.raises(StackError, match="HILLCLIMB_DB_POOL must be a whole number"):
        make_plan(options)
