"""A stack whose clock can be set and whose disk can be filled: what no blow to a process does.

The clock is that of each process, by a library that is loaded before others (`clock.c`; it takes a
C compiler). Under root PostgreSQL runs as another user without it: its clock stays, as on a machine
of its own. The disk is a file system in memory of a few hundred megabytes, which root may mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "clock.c"
DISK_BYTES = 700 * 2**20
"""PostgreSQL with its log takes 150 MB of it, the checkpoints of a round less than 100."""
PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clock of a stack's processes."""

    library: Path
    offset: Path
    """A file with the seconds by which it was set; processes read it twice a second."""

    def variables(self) -> Mapping[str, str]:
        """Variables of the stack."""
        return {"LD_PRELOAD": str(self.library), "CHAOS_CLOCK": str(self.offset)}

    def set_by(self, seconds: int) -> None:
        """Set it so many seconds before or after the machine's own."""
        self.offset.write_text(f"{seconds:+d}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system with the whole state of a stack: databases, blobs, runs and logs."""

    mounted: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no byte free for the block."""
        ballast = self.mounted / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * PIECE_BYTES):
                    pass
            except OSError:
                yield
            else:
                raise AssertionError("the disk has no end")
            finally:
                ballast.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strains:
    """What this machine lets a test do; null with the reason in `missing`."""

    clock: Clock | None
    disk: Disk | None
    missing: tuple[str, ...]


@contextmanager
def strains(folder: Path) -> Iterator[Strains]:
    """Prepare clock and disk below the folder; the disk is unmounted at the end."""
    folder.chmod(0o755)  # PostgreSQL's user goes through it
    missing = []
    library = compiled(folder)
    if library is None:
        missing.append("a C compiler (cc), to set the clock")
    clock = Clock(library=library, offset=folder / "clock") if library is not None else None
    if clock is not None:
        clock.set_by(0)
    mounted = folder / "disk"
    mounted.mkdir()
    size = f"size={DISK_BYTES},mode=755"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(mounted)]
    may_mount = os.geteuid() == 0 and subprocess.run(command, check=False).returncode == 0
    if not may_mount:
        missing.append("the right to mount a file system, to fill a disk")
    try:
        disk = Disk(mounted=mounted) if may_mount else None
        yield Strains(clock=clock, disk=disk, missing=tuple(missing))
    finally:
        if may_mount:
            subprocess.run(["umount", str(mounted)], check=True)


def compiled(folder: Path) -> Path | None:
    """Return the library that reads the clock; null without a compiler."""
    if shutil.which("cc") is None:
        return None
    library = folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
