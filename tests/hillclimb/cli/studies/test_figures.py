"""Figures from payloads: many environments, long and hostile labels, missing values."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from PIL import Image

from hillclimb.cli.studies.figures import DPI, MAX_ARMS, WIDTH_IN, draw_figures
from hillclimb.protocol.payloads.studies.experiments import ExperimentFigures, ExperimentResults

ENVS = ("booking", "fira", "github", "hubspot", "outlook", "reddit", "ticketmaster", "zillow")
Json = dict[str, Any]


def rate(value: float | None, tasks: int = 30) -> Json:
    middle = 0.5 if value is None else value
    return {
        "value": value,
        "low": max(0.0, middle - 0.12),
        "high": min(1.0, middle + 0.12),
        "num_tasks": tasks,
        "num_runs": 3,
        "sd": 0.03,
        "least": middle - 0.03,
        "most": middle + 0.03,
    }


def rates(step: int, value: float, num_envs: int) -> Json:
    keys = ENVS[:num_envs]
    envs = {key: rate(min(1.0, value * (0.5 + number / 7))) for number, key in enumerate(keys)}
    return {"step": step, "all": rate(value, 240), "envs": envs}


def results(arms: dict[str, float], *, num_envs: int = len(ENVS)) -> ExperimentResults:
    facts = [
        {
            "arm": arm,
            "role": "variant" if number else "baseline",
            "settings": None,
            "num_live": 0,
            "runs": [
                {
                    "number": seed + 1,
                    "run_id": "run_0123456789",
                    "seed": seed,
                    "state": "done",
                    "status": "succeeded",
                    "pass_at_1": value + (seed - 1) / 30,
                }
                for seed in range(3)
            ],
            "first": rates(0, 0.3, num_envs),
            "last": rates(80, value, num_envs),
            "own_change": None,
            "against_baseline": None,
            "config_diff": [],
        }
        for number, (arm, value) in enumerate(arms.items())
    ]
    return ExperimentResults.model_validate(
        {
            "key": "v1",
            "rule": "experiment-v1",
            "paired_rule": "v2",
            "decoding": "sampled",
            "word": "inconclusive",
            "why": "",
            "is_complete": True,
            "reference": None,
            "arms": facts,
            "verdicts": [],
        }
    )


def figures(
    arms: dict[str, float], *, sizes: bool = False, num_envs: int = len(ENVS)
) -> ExperimentFigures:
    facts = []
    for number, (arm, value) in enumerate(arms.items()):
        curve = [
            {
                "step": step,
                "value": 0.3 + (value - 0.3) * (1 - math.exp(-step / 30)),
                "low": 0.25 + (value - 0.3) * (1 - math.exp(-step / 30)),
                "high": 0.35 + (value - 0.3) * (1 - math.exp(-step / 30)),
                "num_runs": 3,
                "num_tasks": 240,
            }
            for step in range(0, 81, 10)
        ]
        signal = {
            key: [
                {
                    "first_step": 8 * window + 1,
                    "last_step": 8 * window + 8,
                    "signal_ratio": None
                    if (index, window) == (3, 4)
                    else abs(math.sin(index + window / 3 + number)),
                    "num_groups": 40 + index,
                }
                for window in range(10)
            ]
            for index, key in enumerate(ENVS[:num_envs])
        }
        facts.append(
            {
                "arm": arm,
                "role": "variant" if number else "baseline",
                "num_train_tasks": 800 * 4**number if sizes else 3365,
                "curve": curve,
                "env_curves": {},
                "signal": signal,
            }
        )
    return ExperimentFigures.model_validate({"key": "v1", "decoding": "sampled", "arms": facts})


THREE = {"baseline": 0.43, "learning rate $x^5$, _long_ label that goes on & on": 0.51, "3x": 0.62}


def test_every_figure_is_written_in_both_formats_at_the_width_of_a_page(tmp_path: Path) -> None:
    paths = draw_figures(results(THREE), figures(THREE, sizes=True), tmp_path)
    names = ["learning_curves", "environments", "signal", "dataset_size"]
    assert [path.stem for path in paths] == names
    for path in paths:
        tree = ET.parse(path)
        assert tree.getroot().tag.endswith("svg")
        with Image.open(path.with_suffix(".png")) as image:
            width, height = image.size
        assert abs(width - WIDTH_IN * DPI) <= 0.06 * WIDTH_IN * DPI, path
        assert 0.3 * width < height < 1.6 * width, path


def test_a_lone_arm_shows_before_and_after_and_no_plot_of_sizes(tmp_path: Path) -> None:
    one = {"run": 0.5}
    paths = draw_figures(results(one), figures(one), tmp_path)
    assert [path.stem for path in paths] == ["learning_curves", "environments", "signal"]


def test_more_arms_than_colours_are_left_to_the_tables(tmp_path: Path) -> None:
    many = {f"arm {number}": 0.3 + number / 40 for number in range(MAX_ARMS + 3)}
    # Two environments: each is a row of the map of every arm, and most of the time goes there.
    facts = results(many, num_envs=2), figures(many, num_envs=2)
    assert len(draw_figures(*facts, tmp_path)) == 3


def test_arms_without_rows_draw_nothing(tmp_path: Path) -> None:
    empty = figures({}), results({})
    assert draw_figures(empty[1], empty[0], tmp_path) == []
