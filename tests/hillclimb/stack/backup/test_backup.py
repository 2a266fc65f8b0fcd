"""A backup of a stack's files and database, and what `restore` makes of it or refuses.

PostgreSQL runs only as long as each takes. A whole stack with a run is in `tests/e2e`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from hillclimb.cli.commands import main
from hillclimb.cli.terminal.exits import Exit
from hillclimb.stack.backup import database
from hillclimb.stack.backup.errors import BackupInvalid, BackupRefused
from hillclimb.stack.backup.manifest import MANIFEST, check_files, read_manifest
from hillclimb.stack.backup.restore import restore
from hillclimb.stack.backup.save import save
from hillclimb.stack.options import StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.state.credentials import ensure_credentials, load_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.system.processes import processes_in
from tests.fixtures.migrated import migrate

FILES = {
    "blobs/runs/run_1/checkpoints/global_step_2/attempt-1/policy/model.safetensors": b"w" * 5000,
    "blobs/runs/run_1/attempt-1/model/kept.bin": b"a blob of any name",
    "blobs/.part-unfinished": b"half",
    "runs/run_1/attempt-1/events.jsonl": b"{}\n",
    "runs/run_1/attempt-1/model/weights.bin": b"downloaded again",
    "runner/identity": b"token",
    "runner/secrets/att_1.json": b"FLEET_API_KEY",
}
SAVED = {name for name in FILES if "part-" not in name and "/secrets/" not in name} - {
    "runs/run_1/attempt-1/model/weights.bin"
}


def server_of(options: StackOptions) -> PostgresServer:
    credentials = load_credentials(StateDirectory(options.state_dir))
    assert credentials is not None
    return PostgresServer(
        directory=options.state_dir / "pg", port=0, password=credentials.postgres_password
    )


def names(options: StackOptions) -> list[str]:
    with (
        database.running(server_of(options)) as server,
        psycopg.connect(server.url(driver="postgresql")) as connection,
    ):
        rows = connection.execute("SELECT name FROM projects ORDER BY name").fetchall()
    return [row[0] for row in rows]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackOptions]:
    """A stack that is stopped, with files and a migrated database."""
    folder = tmp_path_factory.mktemp("origin")
    folder.chmod(0o755)  # the server's account has to enter it
    options = StackOptions(state_dir=folder / "state")
    state = StateDirectory(options.state_dir)
    state.create()
    ensure_credentials(state)
    for name, content in FILES.items():
        path = options.state_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with database.running(server_of(options)) as server:
        migrate(server.url())
        with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
            connection.execute("INSERT INTO projects (id, name) VALUES ('prj_1', 'climbers')")
    yield options
    assert processes_in(options.state_dir / "pg" / "data") == []


@pytest.fixture(scope="module")
def backup(origin: StackOptions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("backups") / "monday"
    save(origin, target, with_secrets=False, say=print)
    return target


@pytest.fixture
def fresh(tmp_path: Path) -> StackOptions:
    tmp_path.chmod(0o755)
    return StackOptions(state_dir=tmp_path / "new")


def put_back(
    options: StackOptions, backup: Path, secrets: Path | None = None, *, new: bool = False
) -> None:
    restore(options, backup, secrets=secrets, new_secrets=new, say=print)


@pytest.mark.invariant("a backup restores to the stack that it was made of, keys apart")
def test_a_stopped_stack_comes_back_as_it_was_without_its_secrets_in_the_backup(
    origin: StackOptions, backup: Path, fresh: StackOptions
) -> None:
    manifest = read_manifest(backup)
    assert {saved.path for saved in manifest.files} == SAVED | {"database.dump"}
    in_backup = b"".join(path.read_bytes() for path in backup.rglob("*") if path.is_file())
    credentials = load_credentials(StateDirectory(origin.state_dir))
    assert credentials is not None
    for secret in credentials.model_dump().values():
        assert secret.encode() not in in_backup
    files = [path for path in backup.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (backup, *files))
    put_back(fresh, backup, origin.state_dir / "secrets.json")
    for name in SAVED:
        assert (fresh.state_dir / name).read_bytes() == FILES[name]
    assert load_credentials(StateDirectory(fresh.state_dir)) == credentials
    assert names(fresh) == ["climbers"]
    assert not list(fresh.state_dir.parent.glob("*.restoring"))


@pytest.mark.invariant("a backup restores to the stack that it was made of, keys apart")
def test_the_keys_are_those_of_the_stack_or_new_ones_by_request(
    origin: StackOptions, backup: Path, fresh: StackOptions, tmp_path: Path
) -> None:
    with pytest.raises(BackupRefused, match="--secrets FILE"):
        put_back(fresh, backup)
    other = StateDirectory(tmp_path / "other")
    other.create()
    ensure_credentials(other)
    with pytest.raises(BackupRefused, match="keys of another stack"):
        put_back(fresh, backup, other.secrets_file)
    assert not fresh.state_dir.exists()
    put_back(fresh, backup, new=True)
    made = load_credentials(StateDirectory(fresh.state_dir))
    assert made not in (None, load_credentials(StateDirectory(origin.state_dir)))
    assert names(fresh) == ["climbers"]


def test_every_blob_that_was_there_when_the_database_was_saved_is_in_the_backup(
    origin: StackOptions, tmp_path: Path
) -> None:
    """A trainer saves a checkpoint meanwhile, and deletes the one before."""
    old = next(name for name in sorted(SAVED) if "global_step_2" in name)
    new = old.replace("global_step_2", "global_step_4")

    def train(line: str) -> None:
        if line == "saving the database":
            (origin.state_dir / new).parent.mkdir(parents=True)
            (origin.state_dir / new).write_bytes(b"newer")
            (origin.state_dir / old).unlink()

    try:
        manifest = save(origin, tmp_path / "backup", with_secrets=True, say=train)
    finally:
        (origin.state_dir / old).write_bytes(FILES[old])
        (origin.state_dir / new).unlink()
    assert {old, new, "secrets.json"} <= {saved.path for saved in manifest.files}
    check_files(tmp_path / "backup", manifest)


def test_nothing_is_restored_over_files_and_nothing_saved_over_them(
    origin: StackOptions, backup: Path, fresh: StackOptions
) -> None:
    fresh.state_dir.mkdir()
    (fresh.state_dir / "notes").write_text("mine")
    with pytest.raises(BackupRefused, match="is not empty: move it away"):
        put_back(fresh, backup, origin.state_dir / "secrets.json")
    assert [each.name for each in fresh.state_dir.iterdir()] == ["notes"]
    with pytest.raises(BackupRefused, match="a folder of its own"):
        save(origin, backup, with_secrets=False, say=print)
    nothing = replace(origin, state_dir=fresh.state_dir / "none")
    with pytest.raises(BackupRefused, match="no embedded stack"):
        save(nothing, fresh.state_dir / "b", with_secrets=False, say=print)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("manifest", "no complete backup"),
        ("missing", "is missing: the backup is damaged"),
        ("changed", "is not what was saved"),
        ("newer", "update before you restore it"),
        ("postgres", "update before you restore it"),
        ("layout", "the version that made it"),
        ("escape", "no path in a backup"),
    ],
)
def test_a_damaged_or_newer_backup_is_refused_before_anything_is_written(
    origin: StackOptions,
    backup: Path,
    fresh: StackOptions,
    tmp_path: Path,
    damage: str,
    reason: str,
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(backup, copy)
    blob = copy / next(name for name in sorted(SAVED) if name.startswith("blobs/"))
    facts = json.loads((copy / MANIFEST).read_text())
    if damage == "manifest":
        (copy / MANIFEST).unlink()
    elif damage == "missing":
        blob.unlink()
    elif damage == "changed":
        blob.write_bytes(os.urandom(blob.stat().st_size))
    else:
        changes = {
            "newer": {"schema_revision": "9999"},
            "postgres": {"postgres_version": 99},
            "layout": {"version": 2},
            "escape": {"files": [facts["files"][0] | {"path": "../secrets.json"}]},
        }
        (copy / MANIFEST).write_text(json.dumps(facts | changes[damage]))
    with pytest.raises(BackupInvalid, match=reason):
        put_back(fresh, copy, origin.state_dir / "secrets.json")
    assert not fresh.state_dir.exists()
    assert not list(tmp_path.glob("*.restoring"))


def test_the_commands_say_what_they_did_and_where_the_keys_are(
    origin: StackOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILLCLIMB_STATE_DIR", str(origin.state_dir))
    saved = CliRunner(mix_stderr=False).invoke(main, ["backup", str(tmp_path / "backup")])
    assert saved.exit_code == Exit.OK, saved.stderr
    assert f"{len(SAVED) + 1} files" in saved.stdout
    assert "its keys are not in it" in saved.stdout
    again = CliRunner(mix_stderr=False).invoke(main, ["restore", str(tmp_path / "backup")])
    assert (again.exit_code, "is not empty" in again.stderr) == (Exit.USAGE, True)
