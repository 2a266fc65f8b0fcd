"""Local files that belong to other runs of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.process.identity import HOME_VARIABLE
from hillclimb.protocol.rundir import AttemptDir
from trainer.errors import SpecError
from trainer.inputs.own_files import BLOBS_URL, refuse_others_files


@pytest.mark.parametrize(
    "path",
    [
        "state/runs/run_theirs/attempt-1/checkpoints/step-1/policy",
        "state/runner/secrets/att_1.json",
        "blobs/runs/run_theirs",
        "link/run_theirs",
        "models/../blobs/runs",
    ],
)
def test_a_path_into_files_of_other_runs_is_refused_under_a_runner(
    tmp_path: Path, path: str
) -> None:
    attempt = AttemptDir(tmp_path / "state" / "runs" / "run_mine", 1)
    (tmp_path / "blobs" / "runs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "blobs" / "runs")
    environ = {
        HOME_VARIABLE: str(tmp_path / "state" / "runner"),
        BLOBS_URL: str(tmp_path / "blobs"),
    }
    with pytest.raises(SpecError, match=r"model\.source"):
        refuse_others_files("model.source", tmp_path / path, attempt, environ)
    refuse_others_files("model.source", tmp_path / path, attempt, {})
    refuse_others_files("model.source", tmp_path / "models" / "qwen", attempt, environ)
