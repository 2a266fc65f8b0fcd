"""The state directory of a stack: its location, file names, record and lock."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hillclimb.stack.errors import StackRunning, StateUnusable
from hillclimb.stack.state.records import StackRecord

HOME, STATE_DIR = "HILLCLIMB_HOME", "HILLCLIMB_STATE_DIR"
FOLDER = ".hillclimb"
PROJECT_MARKS = (FOLDER, "pyproject.toml", ".git")


def project_root(start: Path) -> Path:
    """Return the nearest directory from `start` upwards that looks like a project, else `start`."""
    for directory in (start, *start.parents):
        if any((directory / mark).exists() for mark in PROJECT_MARKS):
            return directory
    return start


def find_state_directory(environment: Mapping[str, str], cwd: Path) -> Path:
    """Return $HILLCLIMB_STATE_DIR, else `.hillclimb` in $HILLCLIMB_HOME or the project of `cwd`.

    Raises:
        StateUnusable: no directory can be there, or this user may not open it.
    """
    if explicit := environment.get(STATE_DIR):
        path, variable = (cwd / explicit).resolve(), STATE_DIR
    else:
        home = environment.get(HOME)
        path, variable = (cwd / home if home else project_root(cwd)).resolve() / FOLDER, HOME
    why = _why_unusable(path)
    if why is not None:
        raise StateUnusable(f"{path} cannot be the state directory: {why}. {_remedy(variable)}")
    return path


def _why_unusable(path: Path) -> str | None:
    """Return why a directory that is there, or its nearest parent, cannot be used."""
    for each in (path, *path.parents):
        try:
            is_directory = stat.S_ISDIR(each.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{each}: {error.strerror}"
        if not is_directory:
            return f"{each} is not a directory"
        needed = os.R_OK | os.X_OK if each == path else os.X_OK
        return None if os.access(each, needed) else f"you may not open {each}"
    return None


def _remedy(variable: str) -> str:
    return f"Set {variable} to a directory that you may write to."


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """One stack's directory (mode 0700) and the names in it."""

    path: Path

    @property
    def record_file(self) -> Path:
        """`stack.json`: ports, processes, states."""
        return self.path / "stack.json"

    @property
    def secrets_file(self) -> Path:
        """`secrets.json`, mode 0600."""
        return self.path / "secrets.json"

    def log(self, service: str) -> Path:
        """`logs/<service>.log`."""
        return self.path / "logs" / f"{service}.log"

    def ready_file(self, service: str) -> Path:
        """`ready/<service>`: written when ready by a service without another readiness probe."""
        return self.path / "ready" / service

    def create(self) -> None:
        """Create the directory and its folders with mode 0700.

        Raises:
            StateUnusable: it cannot be created, or is another user's.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for folder in ("logs", "ready", "runs", "blobs", "beat"):
                (self.path / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = f"{self.path} cannot be made the state directory: {error.strerror}."
            raise StateUnusable(f"{why} {_remedy(HOME)}") from error

    def read(self) -> StackRecord:
        """Return the record; an empty one if there is none or it is invalid."""
        try:
            return StackRecord.model_validate_json(self.record_file.read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValidationError):
            return StackRecord()

    def write(self, record: StackRecord) -> None:
        """Replace the record atomically."""
        write_private(self.record_file, record.model_dump_json(indent=2) + "\n")

    def locked(self) -> bool:
        """Tell whether a supervisor (or a running `down`) has locked the directory."""
        try:
            with self.hold():
                return False
        except StackRunning:
            return True

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the directory; the kernel releases the lock on exit. Raises StackRunning."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackRunning(
                    f"A stack is already running in {self.path}; stop it with `hillclimb down`."
                ) from None
            yield
        finally:
            os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically by a synced file of mode 0600."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
