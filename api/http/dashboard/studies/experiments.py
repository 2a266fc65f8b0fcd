"""Contents of the pages of experiments: the hypothesis, its arms, the verdict, learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.http.dashboard.studies.compare import VERDICT_TONES

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 42, 12, 10, 24
MAX_ARMS = 5
"""Arms that the figure shows, as many as there are colours; the table has all."""
WORD_TONES = {"confirmed": "good", "refuted": "bad", "inconclusive": "warn"}


def experiment_contents(described: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment as plain values; both come as JSON of the API."""
    return {
        "experiment": described,
        "results": results,
        "tone": WORD_TONES.get(results["word"], ""),
        "arms": [_arm(each) for each in results["arms"]],
    }


def _arm(arm: Mapping[str, Any]) -> dict[str, Any]:
    change = arm["against_baseline"]
    paired = None if change is None else change["all"]["paired"]
    verdict = None if paired is None else paired["verdict"]
    return {
        "name": arm["arm"],
        "role": arm["role"],
        "runs": arm["runs"],
        "num_live": arm["num_live"],
        "first": arm["first"],
        "last": arm["last"],
        "change": None if change is None else change["all"],
        "verdict": verdict,
        "tone": VERDICT_TONES.get(verdict or "", ""),
        "differences": arm["config_diff"],
    }


def learning_curves(arms: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the figure of pass@1 by step as SVG coordinates; null without two points."""
    drawn = [arm for arm in arms if arm["curve"]][:MAX_ARMS]
    last = max((point["step"] for arm in drawn for point in arm["curve"]), default=0)
    if not last:
        return None

    def x(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / last, 1)

    def y(share: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)

    def path(points: Sequence[tuple[int, float]]) -> str:
        return "M" + "L".join(f"{x(step)} {y(share)}" for step, share in points)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "base": HEIGHT - BOTTOM,
        "rows": [(y(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)],
        # Whole steps: of fewer than four, some quarters are the same one.
        "ticks": [(x(step), str(step)) for step in sorted({last * part // 4 for part in range(5)})],
        "lines": [
            {
                "name": arm["arm"],
                "color": f"c{number}",
                "path": path([(p["step"], p["value"]) for p in arm["curve"]]),
                "band": path(
                    [(p["step"], p["high"]) for p in arm["curve"]]
                    + [(p["step"], p["low"]) for p in reversed(arm["curve"])]
                )
                + "Z",
                "points": [(x(p["step"]), y(p["value"])) for p in arm["curve"]],
                "last": arm["curve"][-1],
            }
            for number, arm in enumerate(drawn)
        ],
    }
