"""The doctor's findings on a real state directory."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.stack.doctor import Check, examine
from hillclimb.stack.options import StackOptions
from hillclimb.stack.state.credentials import ensure_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord
from tests.hillclimb.stack.tiny import TinyStack


def findings(options: StackOptions) -> dict[str, Check]:
    return {check.name: check for check in examine(options)}


@pytest.fixture
def options(tmp_path: Path) -> StackOptions:
    return StackOptions(
        state_dir=tmp_path.resolve() / "state", trainer_python=tmp_path / "no" / "python"
    )


def test_a_fresh_machine_lacks_only_the_trainers_environment(options: StackOptions) -> None:
    checks = findings(options)
    assert {name for name, check in checks.items() if check.level == "fail"} == {"trainer"}
    assert "make setup" in checks["trainer"].fix
    assert "will be created" in checks["state"].detail


def test_a_trainer_environment_without_torch_is_named(options: StackOptions) -> None:
    bare = StackOptions(state_dir=options.state_dir, trainer_python=Path(sys.executable))
    assert "torch" in findings(bare)["trainer"].detail


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A trainer's interpreter with toys in the places of torch, transformers and Ray."""
    for name in ("torch", "transformers", "ray"):
        (tmp_path / f"{name}.py").write_text("__version__ = '1.0'\n")
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def test_a_trainer_without_vllm_is_no_fault(options: StackOptions, python: Path) -> None:
    checks = findings(StackOptions(state_dir=options.state_dir, trainer_python=python))
    assert checks["trainer"].level == checks["ray"].level == checks["vllm"].level == "ok"
    assert checks["ray"].detail == "ray 1.0"
    assert checks["vllm"].detail == "not installed: the torch engine samples"


def test_a_vllm_built_for_another_machine_is_named(
    options: StackOptions, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "vllm.py").write_text("print('INFO')\nraise OSError('no AVX-512')\n")
    checks = findings(StackOptions(state_dir=options.state_dir, trainer_python=python))["vllm"]
    assert checks.level == "warn"
    assert "no AVX-512" in checks.detail
    assert "engine.type to torch" in checks.fix


def test_keys_that_others_can_read_are_a_failure(options: StackOptions) -> None:
    state = StateDirectory(options.state_dir)
    state.create()
    ensure_credentials(state)
    state.secrets_file.chmod(0o644)
    options.state_dir.chmod(0o755)
    checks = findings(options)
    assert checks["secrets"].level == "fail"
    assert "chmod 600" in checks["secrets"].fix
    assert checks["state"].level == "warn"


def test_processes_without_a_supervisor_are_reported(
    tiny: TinyStack, options: StackOptions
) -> None:
    tiny.describe({"name": "api"})
    tiny.start_ready()
    own = StackOptions(state_dir=tiny.state.path, trainer_python=options.trainer_python)
    assert findings(own)["supervisor"].level == "ok"
    pid = tiny.pid("api")
    tiny.kill_supervisor()
    checks = findings(own)["supervisor"]
    assert checks.level == "warn"
    assert str(pid) in checks.detail
    os.kill(pid, signal.SIGKILL)


def test_a_database_that_cannot_be_reached_or_is_not_migrated_is_told_apart(
    options: StackOptions, postgres_url: str
) -> None:
    empty = StackOptions(
        state_dir=options.state_dir,
        trainer_python=options.trainer_python,
        database_url=postgres_url,
    )
    assert findings(empty)["database"].detail == "reachable, not migrated"
    wrong = StackOptions(
        state_dir=options.state_dir,
        trainer_python=options.trainer_python,
        database_url="postgresql+psycopg://u:p@127.0.0.1:1/none",
    )
    assert findings(wrong)["database"].level == "fail"


def test_each_check_is_printed_as_soon_as_it_is_known(tmp_path: Path) -> None:
    go, gave_up = tmp_path / "go", tmp_path / "gave-up"
    slow = tmp_path / "python"
    slow.write_text(
        f"#!/bin/sh\nn=0; while [ ! -e {go} ]; do\n"
        f"  n=$((n+1)); [ $n -gt 300 ] && touch {gave_up} && exit 1; sleep 0.1\ndone\nexit 1\n"
    )
    slow.chmod(0o755)
    own = {"HILLCLIMB_STATE_DIR": str(tmp_path / "state"), "HILLCLIMB_TRAINER_PYTHON": str(slow)}
    process = subprocess.Popen(
        [sys.executable, "-m", "hillclimb.cli", "doctor"],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    names = []
    while "valkey" not in names:
        names.append(process.stdout.readline().split()[1].rstrip(":"))
    assert names == ["python", "packages", "postgres", "valkey"]
    assert not gave_up.exists(), "nothing was printed before the slow check had ended"
    go.touch()
    rest, _ = process.communicate(timeout=60)
    assert "supervisor" in rest
    assert process.returncode == 1


def test_restarts_of_a_service_are_told_with_their_cause(
    tiny: TinyStack, options: StackOptions
) -> None:
    tiny.describe({"name": "api"}, {"name": "runner"})
    tiny.start_ready()
    own = StackOptions(state_dir=tiny.state.path, trainer_python=options.trainer_python)
    assert findings(own)["services"].detail == "running, never restarted: api, runner"
    os.kill(tiny.pid("runner"), signal.SIGKILL)
    tiny.await_record(lambda record: _is_back(record.services["runner"]))
    checks = findings(own)
    assert checks["services"].detail == "running, never restarted: api"
    assert checks["service runner"].level == "warn"
    assert checks["service runner"].detail == "restarted once: killed by SIGKILL"
    assert "logs/runner.log" in checks["service runner"].fix


def _is_back(service: ServiceRecord) -> bool:
    return service.restarts == 1 and service.state == "ready"


def test_a_broker_is_asked_and_its_password_never_printed(
    options: StackOptions, redis_url: str
) -> None:
    def broker(url: str) -> Check:
        return findings(replace(options, redis_url=url))["broker"]

    assert findings(options)["broker"].detail == "not running"
    assert broker(redis_url).level == "ok"
    for wrong in ("redis://:sesame@127.0.0.1:1/0", "redis://:ses/ame@127.0.0.1:1/0", "sesame"):
        check = broker(wrong)
        assert check.level == "fail"
        assert "ses" not in check.detail


def test_a_store_that_takes_no_file_is_named(options: StackOptions, tmp_path: Path) -> None:
    def blobs(url: Path | None) -> Check:
        own = None if url is None else str(url)
        return findings(replace(options, blobs_url=own))["blobs"]

    assert "will be created" in blobs(None).detail
    assert blobs(tmp_path / "store").level == "ok"
    (tmp_path / "file").touch()
    check = blobs(tmp_path / "file")
    assert check.level == "fail"
    assert "HILLCLIMB_BLOBS_URL" in check.fix
