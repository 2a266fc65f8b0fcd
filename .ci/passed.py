"""Which parts of the long suite passed as they are now, so that CI need not repeat them.

The long tests of one part (`PARTS`) can only break by a change of what they import and start:
`watches`. `tests/passed.json` has, for each part, the digest of that when all its long tests passed
last, and how many they were. `make test-long` stores both. `python .ci/passed.py PART` ends with 0
where the part's digest is the stored one, and with 1 where its tests have to run: `.ci/run` asks.
Whole stacks belong to no part: their tests always run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RECORD = "tests/passed.json"


@dataclass(frozen=True, slots=True)
class Part:
    """Long tests of one part of the tree, and all that they import, start or read."""

    tests: tuple[str, ...]
    watches: tuple[str, ...]


EVERY = ("tests/__init__.py", "tests/conftest.py", "pyproject.toml")
# Without the command line, and of the embedded stack only where the client looks for one.
CORE = tuple(
    f"hillclimb/{name}"
    for name in (
        *("__init__.py", "blobs", "client", "datasets", "environment", "hardware", "minifleet"),
        *("process", "protocol", "spec", "stats"),
        *("stack/__init__.py", "stack/errors.py", "stack/state", "stack/system"),
    )
)
PARTS = {
    "trainer": Part(
        tests=("tests/trainer", "tests/assets"),
        watches=(
            *EVERY,
            *CORE,
            *("trainer", "assets", "tests/trainer", "tests/assets"),
            *("tests/fixtures/factories.py", "tests/fixtures/otlp.py", "tests/hillclimb/minifleet"),
            "tests/hillclimb/spec/test_old_metrics.py",
            "tests/hillclimb/stats/trajectories/stored_tokens.py",
            *("benchmarks/envs/collection.py", "benchmarks/gpu/*.py"),
            *("requirements/trainer.txt", "requirements/torch.txt"),
        ),
    ),
    "api": Part(
        tests=("tests/api",),
        watches=(
            *EVERY,
            *("hillclimb", "api", "worker", "migrations", "alembic.ini", "examples/*.yaml"),
            *("docs/*.md", "docs/*.yaml", "assets/*.json"),
            *(
                "tests/api",
                "tests/fixtures",
                "tests/worker/__init__.py",
                "tests/worker/api_presence.py",
            ),
            *(
                "tests/hillclimb/cli/conftest.py",
                "tests/hillclimb/cli/first_hour/test_conclusion.py",
            ),
            *("tests/hillclimb/client/payloads.py", "tests/hillclimb/hardware/rented.py"),
            *("tests/hillclimb/datasets", "tests/hillclimb/minifleet", "tests/hillclimb/blobs"),
            "tests/hillclimb/stats/trajectories/stored_tokens.py",
            *("requirements/service.txt", "requirements/development.txt", "requirements/peers.txt"),
        ),
    ),
}


def watched_files(part: Part, root: Path = ROOT) -> list[str]:
    """Return the files of a part that git tracks, or would, sorted.

    Raises:
        SystemExit: the part watches a path where nothing is.
    """
    found = set()
    for path in part.watches:
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", path]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        names = {name for name in done.stdout.split("\0") if (root / name).is_file()}
        if not names:
            raise SystemExit(f"passed: nothing is at {path}")
        found |= names
    return sorted(found)


def digest_of(part: Part, root: Path = ROOT) -> str:
    """Return the digest of the names and contents of a part's files."""
    whole = hashlib.sha256()
    for name in watched_files(part, root):
        content = (root / name).read_bytes()
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def num_passed(part: Part, report: Path) -> int:
    """Return how many of a part's tests passed, by pytest's JUnit file."""
    names = tuple(test.replace("/", ".") + "." for test in part.tests)
    return sum(
        (case.get("classname") or "").startswith(names) and not _left_out(case)
        for case in ElementTree.parse(report).iter("testcase")
    )


def _left_out(case: ElementTree.Element) -> bool:
    return any(each.tag in ("skipped", "failure", "error") for each in case)


def _failed(report: Path) -> list[str]:
    """Return the names of all tests that failed, also in what pytest does before and after them."""
    return [
        str(case.get("name"))
        for case in ElementTree.parse(report).iter("testcase")
        if any(each.tag in ("failure", "error") for each in case)
    ]


def store(name: str, report: Path, root: Path = ROOT) -> str:
    """Store that a part passed; return a sentence about it.

    Raises:
        SystemExit: a test failed.
    """
    record = root / RECORD
    stored = json.loads(record.read_text()) if record.exists() else {}
    if failed := _failed(report):
        raise SystemExit(f"passed: {failed[0]} and {len(failed) - 1} others failed: not stored")
    count, before = num_passed(PARTS[name], report), stored.get(name, {}).get("tests", 1)
    if count < before:
        # Fewer machines can run all of them than some: without vLLM's wheel many are skipped.
        return f"passed: {count} long tests of {name} ran here, {before} before: not stored"
    stored[name] = {"digest": digest_of(PARTS[name], root), "tests": count}
    record.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    return f"passed: {count} long tests of {name}, stored in {RECORD}"


def has_passed(name: str, root: Path = ROOT) -> bool:
    """Return whether a part's tests passed on the tree as it is."""
    record = root / RECORD
    stored = json.loads(record.read_text()) if record.exists() else {}
    digest: str | None = stored.get(name, {}).get("digest")
    return digest == digest_of(PARTS[name], root)


def main() -> int:
    """Read the command line; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--store", type=Path, metavar="JUNIT", help="all its long tests passed")
    options = parser.parse_args()
    if options.store is not None:
        print(store(options.part, options.store))
        return 0
    return 0 if has_passed(options.part) else 1


if __name__ == "__main__":
    sys.exit(main())
