"""Does a model with experts learn, and is that more than noise?

    .venv/bin/python -m benchmarks.experiments.experts [--steps 30]

The demo's spec on the shipped model with its MLPs made into four experts each, of which a token
gets two (`upcycling.py`): two seeds, and one run whose rewards are permuted over the rollouts of a
step. Figures as in `learning.py`. Writes `benchmarks/results/learning_experts.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile

from benchmarks.experiments.learning import ROOT, TRAINER_PYTHON, Variant, rows, train

RESULTS = ROOT / "benchmarks" / "results" / "learning_experts.json"


def main() -> None:
    """Make the model, train, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, help="training steps instead of the demo's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hillclimb-experts-") as model:
        command = [str(TRAINER_PYTHON), "-m", "benchmarks.experiments.upcycling", "--out", model]
        subprocess.run(command, cwd=ROOT, check=True)
        variants = (
            Variant(name="four experts, seed 0", model=model, seed=0),
            Variant(name="four experts, seed 1", model=model, seed=1),
            Variant(name="control: shuffled rewards", model=model, seed=0, shuffle_rewards=True),
        )
        results = []
        for variant in variants:
            results.append(train(variant, options.steps))
            print("\n".join(rows(results[-1:])), flush=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
