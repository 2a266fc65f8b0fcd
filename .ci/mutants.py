"""Mutates the code that numbers and decisions depend on, and counts the mutants that tests kill.

`python .ci/mutants.py [TARGET ...]` copies the tree to a temporary folder, lets mutmut change one
expression at a time, and runs the target's tests on each. It fails when fewer than 90 % of the
mutants are killed that `tests/mutants.json` does not list as equivalent, each with its reason. A
mutant is known there by its function and its changed line, so that other edits do not rename it.
Survivors that change the wording of a sentence alone do not count either.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "mutants.json"
MUTMUT = ROOT / ".venv-mutants" / "bin" / "mutmut"
MIN_KILLED = 0.9
KILLED = ("killed", "timeout", "segfault", "suspicious")
"""What mutmut calls a mutant under which the tests did not end well."""
COPIED = ("api", "hillclimb", "trainer", "worker", "tests", "assets", "docs", "pyproject.toml")

INPUTS = """
from hypothesis import Phase, settings

settings.register_profile(
    "mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")
"""
"""Added to the tests' set-up: the same random inputs for every mutant, none made smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Files to mutate, the tests that have to notice, and the environment they need."""

    package: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    omitted: tuple[str, ...] = ()
    """Tests that start a process of their own, which would not know the mutant."""
    environment: str = ".venv"


TARGETS = {
    "statistics": Target(
        package="hillclimb",
        files=(
            "hillclimb/stats/pass_rate.py",
            "hillclimb/stats/verdicts/*",
            "hillclimb/stats/evidence.py",
            "hillclimb/stats/signal_report.py",
            "hillclimb/stats/paired.py",
            "hillclimb/stats/power.py",
        ),
        tests=(
            "tests/hillclimb/stats/test_pass_rate.py",
            "tests/hillclimb/stats/test_power.py",
            "tests/hillclimb/stats/test_evidence.py",
            "tests/hillclimb/stats/test_signal_report.py",
            "tests/hillclimb/stats/verdicts",
        ),
    ),
    "splits": Target(
        package="hillclimb",
        files=("hillclimb/datasets/split/*",),
        tests=(
            "tests/hillclimb/datasets/split",
            "tests/hillclimb/datasets/test_historic.py",
        ),
        omitted=(
            "tests/hillclimb/datasets/split/test_splits.py"
            "::test_the_split_does_not_depend_on_the_process",
        ),
    ),
    "run states": Target(
        package="api",
        files=(
            "api/runs/status.py",
            "api/runs/transitions.py",
            "api/runs/end_reasons.py",
            "api/scheduling/finalize.py",
        ),
        tests=(
            "tests/api/runs/test_end_reasons.py",
            "tests/api/runs/test_move.py",
            "tests/api/runs/test_status.py",
            "tests/api/scheduling/test_finalize.py",
        ),
    ),
    "clusters": Target(
        package="worker",
        files=("worker/clusters/decide.py", "worker/clusters/transitions.py"),
        tests=(
            "tests/worker/clusters/decisions/test_decide.py",
            "tests/worker/clusters/decisions/test_limits.py",
            "tests/worker/clusters/decisions/test_transitions.py",
        ),
    ),
    "losses": Target(
        package="trainer",
        files=("trainer/algo/loss/*", "trainer/algo/advantage.py", "trainer/algo/batch.py"),
        tests=(
            "tests/trainer/algo/loss",
            "tests/trainer/algo/test_advantage.py",
            "tests/trainer/algo/test_batch.py",
        ),
        environment=".venv-trainer",
    ),
    "packing": Target(
        package="trainer",
        files=("trainer/learners/packing/*",),
        tests=("tests/trainer/learners/packing",),
        environment=".venv-trainer",
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the function it is in and the changed lines."""

    function: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """A name that does not depend on other mutants."""
        return f"{self.function}: {self.before} -> {self.after}"

    @property
    def is_wording(self) -> bool:
        """True where only the letters of a sentence changed, which people read and no code does."""
        before, after = (
            re.findall(r"""(["'])(.*?)\1""", each) for each in (self.before, self.after)
        )
        changed = [
            (old, new) for (_, old), (_, new) in zip(before, after, strict=False) if old != new
        ]
        return bool(changed) and all(
            " " in old and new.removeprefix("XX").removesuffix("XX").casefold() == old.casefold()
            for old, new in changed
        )


def run(name: str, target: Target, children: int) -> tuple[int, list[Mutant]]:
    """Mutate one target; return the number of mutants and the survivors."""
    for each in (*target.files, *(test.split("::")[0] for test in target.tests + target.omitted)):
        if not any(ROOT.glob(each)):
            raise SystemExit(f"mutants: {name}: no file matches {each}")
    with tempfile.TemporaryDirectory(prefix="hillclimb-mutants-") as folder:
        root = Path(folder)
        for entry in COPIED:
            copy = shutil.copytree if (ROOT / entry).is_dir() else shutil.copy
            copy(ROOT / entry, root / entry)
        with (root / "tests" / "conftest.py").open("a") as setup:
            setup.write(INPUTS)
        (root / "setup.cfg").write_text(_settings(target))
        environment = {
            **os.environ,
            "PYTHONPATH": str(_packages(target.environment)),
            "OMP_NUM_THREADS": "1",  # mutmut forks, and torch's threads would not come along
        }
        options = ["run", "--max-children", str(children)]
        with (root / "log").open("w") as log:
            done = subprocess.run(
                [MUTMUT, *options], cwd=root, env=environment, stdout=log, stderr=log, check=False
            )
        if done.returncode:
            raise SystemExit(f"mutants: {name}: {(root / 'log').read_text()[-2000:]}")
        results = _mutmut(root, environment, "results", "--all", "true").splitlines()
        statuses = dict(line.strip().split(": ") for line in results if "__mutmut_" in line)
        if not _survives("", root / "mutants", environment, target):
            raise SystemExit(f"mutants: {name}: the tests fail without a mutant")
        names = [
            mutant
            for mutant, status in statuses.items()
            if status not in KILLED and _survives(mutant, root / "mutants", environment, target)
        ]
        survivors = [_read(each, _mutmut(root, environment, "show", each)) for each in names]
        return len(statuses), survivors


def _survives(mutant: str, root: Path, environment: dict[str, str], target: Target) -> bool:
    """Try it in a process of its own: mutmut's had run what a module runs when it is imported."""
    pytest = (MUTMUT.with_name("python"), "-m", "pytest", "-x", "-q", *_options(target))
    done = subprocess.run(
        [*pytest, *target.tests],
        cwd=root,
        env={**environment, "MUTANT_UNDER_TEST": mutant},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _options(target: Target) -> tuple[str, ...]:
    omitted = (f"--deselect={test}" for test in target.omitted)
    return ("-p", "no:cacheprovider", "-m", "not long", *omitted)


def _packages(environment: str) -> Path:
    return next((ROOT / environment / "lib").glob("python3.*")) / "site-packages"


def _mutmut(root: Path, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [MUTMUT, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def _settings(target: Target) -> str:
    lists = {
        "source_paths": (target.package,),
        "only_mutate": target.files,
        "pytest_add_cli_args_test_selection": target.tests,
        "pytest_add_cli_args": _options(target),
        "also_copy": COPIED,
    }
    body = "\n".join(f"{key}=\n    " + "\n    ".join(values) for key, values in lists.items())
    # A mutant that loops for ever costs 20 s and four times its tests (1 s and fifteen by default).
    limits = "timeout_constant=5.0\ntimeout_multiplier=4.0\n"
    return f"[mutmut]\n{body}\nmutate_only_covered_lines=true\n{limits}"


def _read(name: str, difference: str) -> Mutant:
    """Read the diff that `mutmut show` prints."""
    lines = difference.splitlines()
    removed = " ".join(line[1:].strip() for line in lines if re.match(r"-(?!--)", line))
    added = " ".join(line[1:].strip() for line in lines if re.match(r"\+(?!\+\+)", line))
    return Mutant(_function(name), removed, added)


def _function(name: str) -> str:
    """`a.b.x_f__mutmut_3` is `a.b.f`, and `a.b.xǁCǁm__mutmut_3` is `a.b.C.m`."""
    plain = re.sub(r"__mutmut_\d+$", "", name)
    return re.sub(r"\.xǁ(\w+)ǁ", r".\1.", re.sub(r"\.x_(?=\w)", ".", plain))


def main() -> int:
    """Print the share of killed mutants of each target; 1 if one is below the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--children", type=int, default=2)
    arguments = parser.parse_args()
    equivalent: dict[str, str] = json.loads(EQUIVALENT.read_text())
    failed = False
    for name in arguments.targets:
        total, survivors = run(name, TARGETS[name], arguments.children)
        alive = [each for each in survivors if not each.is_wording and each.key not in equivalent]
        relevant = total - (len(survivors) - len(alive))
        killed = (relevant - len(alive)) / relevant
        failed |= killed < MIN_KILLED
        print(
            f"{name}: {killed:.1%} of {relevant} mutants killed, {len(alive)} survive", flush=True
        )
        for each in alive:
            print(f"  {each.key}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
