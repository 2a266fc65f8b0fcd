"""Precision, recall and speed of the failure patterns on labelled rollouts.

    .venv/bin/python benchmarks/statistics/patterns.py

The labels come from agents scripted to fail in known ways (tests/hillclimb/stats/trajectories/
labelled); their author wrote them before the detectors and without seeing them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from hillclimb.stats.trajectories.patterns.registry import (
    PATTERNS,
    PATTERNS_VERSION,
    detect_patterns,
)
from tests.hillclimb.stats.trajectories.labelled import labelled_conversations

RESULT = Path(__file__).resolve().parents[1] / "results" / "patterns.json"


def main() -> None:
    labelled = labelled_conversations()
    began = time.process_time()
    shown = [set(detect_patterns(each.conversation)) for each in labelled]
    seconds = time.process_time() - began
    rows = {}
    print(f"{'pattern':26}{'labels':>8}{'near misses':>13}{'precision':>11}{'recall':>8}")
    for name in PATTERNS:
        pairs = [
            (name in names, name in each.patterns)
            for names, each in zip(shown, labelled, strict=True)
        ]
        both = sum(detected and labels for detected, labels in pairs)
        row = {
            "num_labels": sum(labels for _, labels in pairs),
            "num_near_misses": sum(each.near_miss_of == name for each in labelled),
            "precision": both / sum(detected for detected, _ in pairs),
            "recall": both / sum(labels for _, labels in pairs),
        }
        rows[name] = row
        numbers = f"{row['num_labels']:>8}{row['num_near_misses']:>13}"
        print(f"{name:26}{numbers}{row['precision']:>11.3f}{row['recall']:>8.3f}")
    rate = len(labelled) / seconds
    print(f"{len(labelled)} conversations, {rate:.0f} per second of processor time")
    facts = {"version": PATTERNS_VERSION, "num_conversations": len(labelled), "patterns": rows}
    RESULT.write_text(json.dumps(facts | {"per_cpu_second": round(rate)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
