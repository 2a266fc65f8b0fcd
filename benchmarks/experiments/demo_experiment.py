"""An experiment about the demo: baseline, learning rate times five, larger data; three seeds each.

    hillclimb up
    .venv/bin/python benchmarks/experiments/demo_experiment.py --out demo-experiment/

It goes through the command line as a researcher would: `experiment create`, one `experiment sweep`
per configuration, then `experiment report` with the changelog and the figures. The runs are
launched once: a repetition adopts them, waits for those that have not ended, and writes the report
again. Nine demo runs take about nine times the demo; `--set schedule.total_steps=2` and few tasks
try the script alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.experiments.through_cli import cli, experiment, wait  # noqa: E402

SPEC = ROOT / "examples" / "demo.yaml"
LEARNING_RATE = 2.5e-4
"""That of the demo."""
FACTOR = 5
HYPOTHESIS = (
    "The demo's learning rate is too conservative, and its policy is limited by the number of"
    " different training tasks: five times the rate, or many more tasks, raise held-out pass@1 by"
    " five points or more."
)
WATCH = (
    "eval/all/pass_at_1 >= +0.05",
    "eval/held_out_templates/pass_at_1 >= -0.05",
    "reward/signal_ratio > 0.25",
)


def main() -> int:
    """Run the experiment; exits with 1 if a run ended without a result."""
    options = _options()
    _create(options)
    for arm, role, settings in _configurations(options):
        pairs = [each for setting in settings for each in ("--set", setting)]
        sweep = ["sweep", str(options.spec), "--experiment", options.key, "--arm", arm]
        sweep += ["--role", role, "--seeds", options.seeds, *pairs]
        experiment([*sweep, "--retry"] if options.retry else sweep)
    states = wait(options.key, options.timeout_h)
    print(cli(["experiment", "show", options.key]).stdout)
    print(cli(["experiment", "report", options.key, "--out", str(options.out)]).stdout)
    return 0 if set(states) == {"done"} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of pages and figures")
    parser.add_argument("--key", default="demo-1", help="key of the experiment")
    parser.add_argument("--spec", type=Path, default=SPEC)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--few", type=int, default=40, help="training tasks per environment")
    parser.add_argument("--many", type=int, default=2000, help="the same of the larger data")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="shared")
    parser.add_argument("--retry", action="store_true", help="launch failed runs again")
    parser.add_argument("--timeout-h", type=float, default=24.0)
    return parser.parse_args()


def _configurations(options: argparse.Namespace) -> list[tuple[str, str, list[str]]]:
    few = f"data.train_tasks_per_env={options.few}"
    many = f"data.train_tasks_per_env={options.many}"
    rate = f"optimizer.lr={LEARNING_RATE * FACTOR:g}"
    shared: list[str] = options.shared
    return [
        ("baseline", "baseline", [*shared, few]),
        (f"learning rate x{FACTOR}", "variant", [*shared, few, rate]),
        ("larger data", "variant", [*shared, many]),
    ]


def _create(options: argparse.Namespace) -> None:
    """Create the experiment, or leave the one of an earlier start as it is."""
    if cli(["experiment", "show", options.key, "--json"], check=False).returncode == 0:
        return
    command = ["create", options.key, "--title", "Rate and data of the demo"]
    command += ["--hypothesis", HYPOTHESIS]
    for threshold in WATCH:
        command += ["--watch", threshold]
    command += ["--change", "optimizer.lr=five times the demo's rate, as in v0.2.4"]
    command += [
        "--change",
        "data.train_tasks_per_env=few tasks are seen again and again; many are hardly seen twice",
    ]
    experiment(command)


if __name__ == "__main__":
    sys.exit(main())
