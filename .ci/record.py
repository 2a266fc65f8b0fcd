"""Reads the record of both default suites: the slowest tests, and coverage of each package.

`make test RECORD=FOLDER` writes one JUnit file and one coverage file per suite. `python
.ci/record.py FOLDER` prints the 60 slowest tests and the covered lines and branches; it fails when
a package lost more than `TOLERANCE` points against `tests/coverage.json`, or when a test takes
longer than `too_slow_s` and names no invariant that only it holds. `--accept` stores the figures.

Coverage is slipcover's: on Python 3.11 the tracer of `coverage` took 33 % more CPU time where
slipcover took 2 % (the tests of losses, rollouts, the loop and the Tinker server). Tests with hot
loops pay more (statistics: `tests/conftest.py`), and each process parses every module at its end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT / "tests" / "coverage.json"
SUITES = ("control", "trainer")
PACKAGES = ("api", "hillclimb", "trainer", "worker")
NUM_SLOWEST = 60
SLOW_S = 5.0
TOO_SLOW_S = 20.0
"""Four times `SLOW_S`, because machines are busy; a test in between is only printed."""
TOO_SLOW_SHARE = 0.008
"""Of the seconds of all tests: on a slower machine every one takes longer."""
TOLERANCE = 0.6
"""Points (%): branches that depend on timing."""


@dataclass(frozen=True, slots=True)
class Test:
    """One test of a suite, with its set-up and its end."""

    name: str
    seconds: float
    invariant: str | None
    """The reason of its marker `invariant`."""


def read_tests(path: Path) -> list[Test]:
    """Return all tests of a JUnit file."""
    return [_read_test(case) for case in ElementTree.parse(path).iter("testcase")]


def _read_test(case: ElementTree.Element) -> Test:
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    name = f"{case.get('classname')}::{case.get('name')}"
    return Test(name, float(case.get("time", "0")), properties.get("invariant"))


def covered_percentages(paths: list[Path]) -> dict[str, dict[str, float]]:
    """Return the covered lines and branches (%) of each package, over both suites."""
    missing: dict[str, dict[str, set[str]]] = {"lines": {}, "branches": {}}
    total: dict[str, dict[str, set[str]]] = {"lines": {}, "branches": {}}
    for path in paths:
        for file, body in json.loads(path.read_text())["files"].items():
            for kind in missing:
                absent = set(map(str, body[f"missing_{kind}"]))
                present = set(map(str, body[f"executed_{kind}"]))
                total[kind][file] = total[kind].get(file, set()) | absent | present
                missing[kind][file] = missing[kind].get(file, absent | present) - present
    return {package: _share(package, missing, total) for package in PACKAGES}


def _share(
    package: str,
    missing: dict[str, dict[str, set[str]]],
    total: dict[str, dict[str, set[str]]],
) -> dict[str, float]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for kind, files in total.items():
        for file, all_of_it in files.items():
            if Path(file).parts[0] == package:
                counts[kind][0] += len(missing[kind][file])
                counts[kind][1] += len(all_of_it)
    return {kind: round(100 * (1 - lost / max(1, num)), 2) for kind, (lost, num) in counts.items()}


def drops(found: dict[str, dict[str, float]], floor: dict[str, dict[str, float]]) -> list[str]:
    """Return a sentence for each package that covers less than the floor."""
    return [
        f"{package}: {found[package][kind]} % of {kind} covered, before {before} %"
        for package, kinds in floor.items()
        for kind, before in kinds.items()
        if found[package][kind] < before - TOLERANCE
    ]


def unexplained(tests: list[Test]) -> list[str]:
    """Return a sentence for each test that is too slow and names no invariant."""
    too_slow_s = max(TOO_SLOW_S, TOO_SLOW_SHARE * sum(test.seconds for test in tests))
    return [
        f"{test.name} takes {test.seconds:.1f} s and has no marker `invariant`"
        for test in tests
        if test.seconds > too_slow_s and test.invariant is None
    ]


def main() -> int:
    """Print the record; 1 if coverage dropped or a slow test has no reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--floor", type=Path, default=FLOOR)
    parser.add_argument("--accept", action="store_true", help="store the figures as the new floor")
    arguments = parser.parse_args()
    tests = [t for suite in SUITES for t in read_tests(arguments.folder / f"{suite}.xml")]
    found = covered_percentages([arguments.folder / f"{suite}.json" for suite in SUITES])
    print(f"record: {len(tests)} tests, {sum(test.seconds for test in tests):.0f} s in all")
    for test in sorted(tests, key=lambda test: -test.seconds)[:NUM_SLOWEST]:
        reason = f"  [{test.invariant or 'names no invariant'}]" if test.seconds > SLOW_S else ""
        print(f"  {test.seconds:6.1f} s  {test.name}{reason}")
    for package, kinds in found.items():
        print(f"record: {package}: {kinds['lines']} % of lines, {kinds['branches']} % of branches")
    if arguments.accept:
        arguments.floor.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    faults = drops(found, json.loads(arguments.floor.read_text())) + unexplained(tests)
    for fault in faults:
        print(f"record: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
