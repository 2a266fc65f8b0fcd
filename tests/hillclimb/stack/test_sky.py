"""SkyPilot's API server in the embedded stack: where it is, who hears of it, what it may read."""

import importlib.util
import json
import os
import stat
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.process.launcher import WITHHELD_VARIABLES
from hillclimb.stack.options import StackOptions
from hillclimb.stack.plan import make_plan
from hillclimb.stack.servers.sky import ENDPOINT_VARIABLE, SkyServer, find_sky_port, queue_port
from hillclimb.stack.services import services
from hillclimb.stack.supervisor.spec import ServiceSpec
from hillclimb.stack.system.cloud_keys import CLOUD_KEYS, cloud_keys
from hillclimb.stack.system.processes import spawn

NEEDS_SKY = pytest.mark.skipif(
    importlib.util.find_spec("sky") is None, reason="SkyPilot is missing: `make setup` installs it"
)


@pytest.fixture
def options(tmp_path: Path) -> StackOptions:
    return StackOptions(state_dir=tmp_path.resolve() / "state", api_port=0)


def by_name(options: StackOptions) -> dict[str, ServiceSpec]:
    return {spec.name: spec for spec in services(make_plan(options))}


def test_without_being_asked_for_there_is_no_server_and_nobody_looks_for_one(
    options: StackOptions,
) -> None:
    specs = by_name(options)
    assert not {"sky-api", "cluster-worker"} & specs.keys()
    assert all(ENDPOINT_VARIABLE not in spec.environment for spec in specs.values())


def test_api_and_workers_alone_are_told_where_it_is(options: StackOptions) -> None:
    specs = by_name(replace(options, with_sky=True))
    port = specs["sky-api"].port
    told = {name for name, spec in specs.items() if ENDPOINT_VARIABLE in spec.environment}
    assert told == {"api", "worker", "cluster-worker"}
    assert specs["worker"].environment[ENDPOINT_VARIABLE] == f"http://127.0.0.1:{port}"
    kept = Path(specs["worker"].environment["SKY_RUNTIME_DIR"])
    assert kept.is_relative_to(options.state_dir)


def test_a_server_that_runs_elsewhere_is_used_and_none_is_started(options: StackOptions) -> None:
    specs = by_name(replace(options, sky_url="https://sky.example"))
    assert "sky-api" not in specs
    for name in ("api", "worker", "cluster-worker"):
        assert specs[name].environment[ENDPOINT_VARIABLE] == "https://sky.example"
        assert specs[name].environment["HILLCLIMB_CLOUDS"] == "skypilot"


def test_it_listens_on_loopback_with_a_home_of_its_own(options: StackOptions) -> None:
    spec = by_name(replace(options, with_sky=True))["sky-api"]
    assert "--host 127.0.0.1" in " ".join(spec.command)
    assert spec.environment["HOME"] == str(options.state_dir / "sky" / "home")
    assert spec.environment["SKYPILOT_API_SERVER_LOCAL_PORT"] == str(spec.port)


def test_the_operators_own_runtime_folder_is_not_the_servers(
    options: StackOptions, tmp_path: Path
) -> None:
    """With it a server started anew would know none of the clusters that it has rented."""
    spec = by_name(replace(options, with_sky=True))["sky-api"]
    *before, _ = spec.command[: spec.command.index("-m")]
    shown = 'echo "${SKY_RUNTIME_DIR-unset}"'
    done = subprocess.run(
        [*before, "sh", "-c", shown],
        env={**os.environ, "SKY_RUNTIME_DIR": str(tmp_path), **spec.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "unset"


def test_its_port_is_remembered_like_the_others(options: StackOptions) -> None:
    asked = replace(options, with_sky=True, sky_port=find_sky_port())
    assert make_plan(asked).ports["sky-api"] == asked.sky_port


def test_the_port_is_never_the_one_on_which_a_client_would_start_its_own() -> None:
    assert find_sky_port(preferred=46580) != 46580


def test_the_queue_moves_with_the_port_as_skypilot_moves_it() -> None:
    assert (queue_port(46580), queue_port(46777), queue_port(46000)) == (50011, 50208, 59431)


@NEEDS_SKY
def test_credentials_are_linked_and_what_is_its_own_stays_private(tmp_path: Path) -> None:
    origin = tmp_path / "operator"
    (origin / ".aws").mkdir(parents=True)
    (origin / ".aws" / "credentials").write_text("[default]")
    (origin / ".sky").mkdir()
    (origin / ".sky" / "config.yaml").write_text("slurm: {}")
    (origin / ".sky" / "state.db").write_text("the operator's own clusters")
    server = SkyServer(directory=tmp_path / "sky", port=1, origin=origin)
    server.initialise()
    server.initialise()
    assert (server.home / ".aws" / "credentials").read_text() == "[default]"
    assert (server.home / ".sky" / "config.yaml").read_text() == "slurm: {}"
    assert not (server.home / ".sky" / "state.db").exists()
    assert not (server.home / ".lambda_cloud").exists()
    assert stat.S_IMODE(server.home.stat().st_mode) == 0o700


@NEEDS_SKY
def test_credentials_that_went_away_are_not_linked_any_more(tmp_path: Path) -> None:
    origin = tmp_path / "operator"
    (origin / ".runpod").mkdir(parents=True)
    server = SkyServer(directory=tmp_path / "sky", port=1, origin=origin)
    server.initialise()
    (origin / ".runpod").rmdir()
    server.initialise()
    assert not (server.home / ".runpod").is_symlink()


@NEEDS_SKY
def test_keys_of_clouds_are_written_where_their_clients_read_them(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    (own / ".lambda_cloud").mkdir(parents=True)
    (own / ".lambda_cloud" / "lambda_keys").write_text("api_key = mine\n")
    keys = cloud_keys({name: f" {name}-value\r\n" for name in CLOUD_KEYS} | {"OTHER": "x"})
    server = SkyServer(directory=tmp_path / "sky", port=1, origin=own, keys=keys)
    for _ in range(2):
        server.initialise()
    home = server.home
    lambda_keys = home / ".lambda_cloud" / "lambda_keys"
    assert lambda_keys.read_text() == "api_key = LAMBDA_API_KEY-value\n"
    assert (own / ".lambda_cloud" / "lambda_keys").read_text() == "api_key = mine\n"
    assert stat.S_IMODE(lambda_keys.stat().st_mode) == 0o600
    runpod = tomllib.loads((home / ".runpod" / "config.toml").read_text())
    assert runpod == {"default": {"api_key": "RUNPOD_API_KEY-value"}}
    assert (home / ".config/vastai/vast_api_key").read_text().strip() == "VAST_API_KEY-value"
    prime = json.loads((home / ".prime" / "config.json").read_text())
    assert prime == {"api_key": "PRIME_INTELLECT_API_KEY-value"}
    assert "value" not in repr(server)


def test_no_service_inherits_the_keys_of_clouds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CLOUD_KEYS:
        monkeypatch.setenv(name, f"the-key-of-{name}")
    log = tmp_path / "log"
    child = spawn((sys.executable, "-c", "import os; print(dict(os.environ))"), cwd=tmp_path,
                  environment={"GIVEN": "yes"}, log=log)  # fmt: skip
    while child.running():
        time.sleep(0.01)
    assert "'GIVEN': 'yes'" in log.read_text()
    assert "the-key-of" not in log.read_text()
    assert CLOUD_KEYS.keys() <= WITHHELD_VARIABLES, "nor does a trainer, whoever starts its runner"
