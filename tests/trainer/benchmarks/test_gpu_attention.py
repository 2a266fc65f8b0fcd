"""The GPU's check of attention, rehearsed on a CPU, on an image without the trainer's packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import attention

WITHOUT_PACKAGES = """
import runpy, sys
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "pydantic_core", "ray", "vllm", "peft"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Bare())
path = sys.argv.pop(1)
sys.argv[0] = path
runpy.run_path(path, run_name="__main__")
"""


@pytest.mark.invariant("the first script on a GPU needs torch and transformers alone")
def test_a_rehearsal_runs_where_there_is_torch_and_transformers_alone(tmp_path: Path) -> None:
    out = tmp_path / "attention.json"
    script = [str(attention.__file__), "--device", "cpu", "--tiny", "--out", str(out)]
    subprocess.run([sys.executable, "-c", WITHOUT_PACKAGES, *script], check=True, timeout=120)
    results = json.loads(out.read_text())
    assert results["agrees"]["per_branch"]["equal"] is True
    assert results["new_lengths"]["one_call"]["first_s"] > 0.0


def test_a_branch_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fifth, at a single token."""
    right = attention.prefix_group_attention

    def wrong(*parts: torch.Tensor, **options: object) -> tuple[torch.Tensor, None]:
        output, _ = right(*parts, **options)  # type: ignore[arg-type]
        if parts[1].dtype is torch.bfloat16:
            output = torch.cat((output[:, :-1], output[:, -1:] * 1.2), dim=1)
        return output, None

    monkeypatch.setattr(attention, "prefix_group_attention", wrong)
    assert attention.agrees("cpu", tiny=True)["per_branch"]["equal"] is False
