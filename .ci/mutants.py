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
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "mutants.json"
MUTMUT = ROOT / ".venv-mutants" / "bin" / "mutmut"
MIN_KILLED = 0.9
KILLED = ("killed", "timeout", "segfault", "suspicious")
"""What mutmut calls a mutant under which the tests did not end well."""
COPIED = (
    *("api", "hillclimb", "trainer", "worker", "tests", "assets", "docs", "benchmarks"),
    "pyproject.toml",
)

SETUP = """
import json
import sys
from hypothesis import Phase, settings

settings.register_profile(
    "mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")


def pytest_collection_modifyitems(items):
    stored = Path("mutmut-stats.json")
    seconds = json.loads(stored.read_text())["duration_by_test"] if stored.exists() else {}
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("api", "hillclimb", "trainer", "worker"):
            for each in vars(module).values():
                if hasattr(each, "cache_clear"):
                    each.cache_clear()
"""
"""Added to the tests' set-up: the same random inputs for every mutant, none made smaller; the
quickest tests first, which most mutants do not survive; and no results of the code without a mutant
in its caches, from the process that every mutant's is forked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Files to mutate, the tests that have to notice, and the environment they need."""

    package: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    omitted: tuple[str, ...] = ()
    """Tests that start a process of their own, which would not know the mutant, and simulations of
    seconds, whose formulas other tests compare with numbers."""
    environment: str = ".venv"


TARGETS = {
    "statistics": Target(
        package="hillclimb",
        files=("hillclimb/stats/*.py",),
        tests=("tests/hillclimb/stats/test_*.py",),
        omitted=(
            "tests/hillclimb/stats/test_evidence.py"
            "::test_the_expected_value_of_a_fair_task_is_the_value_before_it",
        ),
    ),
    "verdicts": Target(
        package="hillclimb",
        files=("hillclimb/stats/verdicts/**/*.py",),
        tests=("tests/hillclimb/stats/verdicts", "tests/hillclimb/stats/test_pass_rate.py"),
        omitted=(
            "tests/hillclimb/stats/verdicts/stopping/test_reward_drop.py"
            "::test_the_tail_with_many_degrees_of_freedom_is_the_normal_one",
            "tests/hillclimb/stats/verdicts/experiments/test_families.py"
            "::test_the_intervals_cover_the_truth_over_tasks_and_seeds",
        ),
    ),
    "splits": Target(
        package="hillclimb",
        files=("hillclimb/datasets/split/*.py",),
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
        files=("trainer/algo/loss/*.py",),
        tests=("tests/trainer/algo/loss",),
        environment=".venv-trainer",
    ),
    "advantages": Target(
        package="trainer",
        files=("trainer/algo/*.py",),
        tests=("tests/trainer/algo/test_*.py",),
        environment=".venv-trainer",
    ),
    "packing": Target(
        package="trainer",
        files=("trainer/learners/packing/*.py",),
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


def run(
    name: str, target: Target, children: int, equivalent: Collection[str]
) -> tuple[int, list[Mutant]]:
    """Mutate one target; return the number of mutants and the survivors."""
    target = replace(target, files=_matching(target.files), tests=_matching(target.tests))
    _matching(test.split("::")[0] for test in target.omitted)
    with tempfile.TemporaryDirectory(prefix="hillclimb-mutants-") as folder:
        root = Path(folder)
        for entry in COPIED:
            copy = shutil.copytree if (ROOT / entry).is_dir() else shutil.copy
            copy(ROOT / entry, root / entry)
        with (root / "tests" / "conftest.py").open("a") as setup:
            setup.write(SETUP)
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
        trial = _Trial(root / "mutants", environment, target)
        if not trial.survives(""):
            raise SystemExit(f"mutants: {name}: the tests fail without a mutant")
        names = [mutant for mutant, status in statuses.items() if status not in KILLED]
        read = [_read(each, _mutmut(root, environment, "show", each)) for each in names]
        with ThreadPoolExecutor(children) as pool:
            survives = pool.map(
                lambda mutant, each: each.key in equivalent or trial.survives(mutant), names, read
            )
            return len(statuses), [
                each for each, alive in zip(read, survives, strict=True) if alive
            ]


def _matching(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the files and folders that are meant, of which there is one for each pattern."""
    paths = {pattern: sorted(ROOT.glob(pattern)) for pattern in patterns}
    for pattern, files in paths.items():
        if not files:
            raise SystemExit(f"mutants: no file matches {pattern}")
    return tuple(str(path.relative_to(ROOT)) for each in paths.values() for path in each)


class _Trial:
    """Tries mutants in processes of their own: mutmut's ran what modules run on import before."""

    def __init__(self, root: Path, environment: dict[str, str], target: Target) -> None:
        self._root, self._environment, self._target = root, environment, target
        stored = json.loads((root / "mutmut-stats.json").read_text())
        self._tests: dict[str, list[str]] = stored["tests_by_mangled_function_name"]

    def survives(self, mutant: str) -> bool:
        """Run the tests that call the function; all of them where it runs on import alone."""
        tests = self._tests.get(re.sub(r"__mutmut_\d+$", "", mutant)) or self._target.tests
        pytest = (MUTMUT.with_name("python"), "-m", "pytest", "-x", "-q", *_options(self._target))
        done = subprocess.run(
            [*pytest, *tests],
            cwd=self._root,
            env={**self._environment, "MUTANT_UNDER_TEST": mutant},
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
        total, survivors = run(name, TARGETS[name], arguments.children, equivalent)
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
