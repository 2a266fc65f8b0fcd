"""The GPU's benchmark, rehearsed on a CPU: every check runs, and a wrong answer ends it with 1."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import learner as benchmark
from tests.trainer.fixtures.forked import run_forked
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.packing.packing import MicroBatch, micro_batches
from trainer.learners.rank import LearnerRank


def run_script(_arguments: Sequence[str]) -> int:
    """Run the file as `python FILE` does; it finds its arguments in `sys.argv`."""
    runpy.run_path(str(benchmark.__file__), run_name="__main__")
    raise AssertionError("the script ends by an exit status")


@pytest.mark.long
def test_a_rehearsal_runs_every_check_and_finds_all_equal(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = run_forked(run_script, ["--device", "cpu", "--tiny", "--out", str(out)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ok"
    results = json.loads(out.read_text())
    assert set(benchmark.CHECKS) == set(results) - {"device", "torch", "tiny"}
    assert results["resume"]["bit_equal"] is True
    assert results["cuda_ipc"]["equal"] is True
    assert results["yarn"]["positions_agree"] is True
    assert results["yarn"]["max_far_gap"] < 1e-4
    assert results["chunked_logprobs"]["logprobs_agree"] is True
    assert results["lora_by_packed_tokens"]["256"]["tokens_per_second"] > 0


def test_what_is_not_equal_ends_it_with_1_after_the_results_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {"resume": lambda _bench: {"bit_equal": False}, "yarn": lambda _bench: {}}
    out = tmp_path / "results.json"
    monkeypatch.setattr(benchmark, "CHECKS", checks)
    monkeypatch.setattr(sys, "argv", ["learner.py", "--device", "cpu", "--out", str(out)])
    assert benchmark.main() == 1
    assert json.loads(out.read_text())["resume"] == {"bit_equal": False}
    assert "yarn" in json.loads(out.read_text())


def test_a_check_that_fails_ends_it_with_1_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_bench: benchmark.Bench) -> benchmark.Figures:
        raise RuntimeError("no kernel")

    out = tmp_path / "results.json"
    monkeypatch.setattr(benchmark, "CHECKS", {"resume": fails, "yarn": lambda _bench: {"gap": 1}})
    monkeypatch.setattr(sys, "argv", ["learner.py", "--device", "cpu", "--out", str(out)])
    assert benchmark.main() == 1
    results = json.loads(out.read_text())
    assert results["resume"] == {"failed": "RuntimeError: no kernel"}
    assert results["yarn"] == {"gap": 1}


def test_a_load_that_leaves_a_moment_as_it_was_is_no_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = benchmark.Bench(device="cpu", tiny=True)
    assert benchmark.resume(bench)["bit_equal"] is True
    load = LearnerRank.load

    def forgetful(rank: LearnerRank, directory: Path) -> None:
        load(rank, directory)
        some = next(iter(rank._optimizer.state.values()))
        some["exp_avg"].add_(1e-3)

    monkeypatch.setattr(LearnerRank, "load", forgetful)
    assert benchmark.resume(bench)["bit_equal"] is False


def test_a_head_that_scores_wrongly_in_chunks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = benchmark.Bench(device="cpu", tiny=True)
    assert benchmark.chunked_logprobs(bench)["logprobs_agree"] is True

    def shifted(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, entropies = token_logprobs(*given, **options)
        return logprobs + 0.01, entropies

    monkeypatch.setattr(benchmark, "token_logprobs", shifted)
    assert benchmark.chunked_logprobs(bench)["logprobs_agree"] is False


def test_wrong_positions_in_a_packed_family_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(*sequences: Any, **options: Any) -> list[MicroBatch]:
        (micro,) = micro_batches(*sequences, **options)
        return [replace(micro, positions_N=torch.arange(len(micro.positions_N)))]

    monkeypatch.setattr(benchmark, "micro_batches", shifted)
    found = benchmark.positions_agree(benchmark.Bench(device="cpu", tiny=True))
    assert found["positions_agree"] is False
