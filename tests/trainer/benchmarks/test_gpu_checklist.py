"""The GPU's checklist, rehearsed on a CPU: every check runs, and a wrong answer is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import checklist
from benchmarks.gpu.checklist import CHECKS, DIFFERENT, ENDED, FAILED, LATE
from benchmarks.gpu.right import correctness, positions
from benchmarks.gpu.right.resuming import resumes
from benchmarks.gpu.setting import Cases, Check, Setting
from tests.trainer.fixtures.forked import run_forked
from trainer.learners.model.scoring import token_logprobs
from trainer.learners.packing.packing import MicroBatch, micro_batches
from trainer.learners.rank import LearnerRank

REHEARSAL = Setting(device="cpu", rehearses=True)
NOT_ON_THE_IMAGE = ("ray", "vllm", "fastapi", "tinker", "starlette")
BARE = f"""
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_ON_THE_IMAGE}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
path = sys.argv.pop(1)
runpy.run_path(path, run_name="__main__")
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def verdicts(path: Path) -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in lines(path) if "verdict" in each}


def run_main(arguments: Sequence[str]) -> int:
    """Run the checklist in a process of its own: its ranks join a world."""
    return checklist.main(arguments)


@pytest.mark.long
def test_a_rehearsal_runs_every_check_of_every_block_and_finds_all_as_it_should_be(
    tmp_path: Path,
) -> None:
    out = tmp_path / "results.jsonl"
    arguments = ["A", "B", "C", "D", "--rehearse", "--out", str(out), "--limit-s", "600"]
    done = run_forked(run_main, arguments, timeout_s=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    every = {name for checks in CHECKS.values() for name in checks}
    assert verdicts(out) == dict.fromkeys(every, ENDED)
    cases = {(each["check"], each["case"]) for each in lines(out) if "case" in each}
    assert ("attention", "per_branch") in cases
    assert ("learner", "offloaded") in cases
    assert ("all_weights", "256") in cases
    [drawn] = [each for each in lines(out) if each.get("case") == "shipped"]
    assert 0.0 < drawn["rollout_train_logprobs_abs_diff_mean"] < 0.3
    again = run_forked(run_main, arguments, timeout_s=300)
    assert again.returncode == 0
    assert again.stdout.splitlines() == ["ok"], "nothing is left to do"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        checklist.main(["A"])
    assert refused.value.code == 2
    assert "torch finds no GPU on this machine: --rehearse" in capsys.readouterr().err


@pytest.mark.long
def test_the_first_block_runs_on_an_image_without_the_trainers_other_packages(
    tmp_path: Path,
) -> None:
    out = tmp_path / "results.jsonl"
    script = [str(checklist.__file__), "A", "--rehearse", "--limit-s", "300", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *script],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert verdicts(out) == dict.fromkeys(CHECKS["A"], ENDED)


def test_a_later_call_goes_on_after_what_ended_and_block_e_repeats_what_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def check(name: str, *cases: dict[str, Any], fails: bool = False) -> Check:
        def run(_setting: Setting) -> Cases:
            calls.append(name)
            yield from (("case", case) for case in cases)
            if fails:
                raise RuntimeError("no kernel")

        return run

    out = tmp_path / "results.jsonl"
    broken = check("broken", {"gib": 1}, fails=True)
    first = {
        "right": check("right", {"is_same": True}),
        "wrong": check("wrong", {"is_same": False}),
    }
    monkeypatch.setattr(checklist, "CHECKS", {"A": first, "B": {"broken": broken}})
    common = ["--rehearse", "--out", str(out)]
    assert checklist.main(["A", "B", *common]) == 1
    assert verdicts(out) == {"right": ENDED, "wrong": DIFFERENT, "broken": FAILED}
    assert [each["error"] for each in lines(out) if "error" in each] == ["RuntimeError: no kernel"]
    calls.clear()
    mended = {"right": first["right"], "wrong": check("wrong", {"is_same": True})}
    monkeypatch.setattr(checklist, "CHECKS", {"A": mended, "B": {"broken": check("broken")}})
    with out.open("a") as file:
        file.write('{"check": "right", "verd')
    assert checklist.main(["E", "--rehearse", "--earlier", str(out)]) == 0
    assert calls == ["wrong", "broken"]


def test_a_check_that_takes_too_long_ends_and_those_behind_it_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_setting: Setting) -> Cases:
        yield "begun", {}
        while True:
            torch.ones(1).add_(1)

    out = tmp_path / "results.jsonl"
    blocks = {"A": {"endless": endless, "behind": endless}}
    monkeypatch.setattr(checklist, "CHECKS", blocks)
    assert checklist.main(["A", "--rehearse", "--out", str(out), "--limit-s", "0.2"]) == 1
    assert verdicts(out) == {"endless": LATE, "behind": LATE}


def is_found(check: Check) -> bool:
    """Tell whether a check has found a difference."""
    return not all(checklist.is_right(figures) for _, figures in check(REHEARSAL))


def test_a_branch_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a fifth, at a single token."""
    assert not is_found(correctness.attention)
    right = correctness.attend

    def wrong(*parts: Any) -> torch.Tensor:
        output = right(*parts)
        if output.dtype is torch.bfloat16:
            output = torch.cat((output[:, :-1], output[:, -1:] * 1.2), dim=1)
        return output

    monkeypatch.setattr(correctness, "attend", wrong)
    assert is_found(correctness.attention)


def test_a_head_that_scores_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_found(correctness.head)

    def shifted(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs, entropies = token_logprobs(*given, **options)
        return logprobs + 0.03, entropies

    monkeypatch.setattr(correctness, "token_logprobs", shifted)
    assert is_found(correctness.head)


def test_wrong_positions_in_a_packed_family_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_found(positions.far_positions)

    def shifted(*sequences: Any, **options: Any) -> list[MicroBatch]:
        (micro,) = micro_batches(*sequences, **options)
        return [replace(micro, positions_N=torch.arange(len(micro.positions_N)))]

    monkeypatch.setattr(positions, "micro_batches", shifted)
    assert is_found(positions.far_positions)


def test_a_load_that_leaves_a_moment_as_it_was_is_no_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [REHEARSAL.batch(64, seed=seed) for seed in range(2)]
    assert resumes(REHEARSAL.rank(1), batches, tmp_path / "a")["is_bit_equal"]
    load = LearnerRank.load

    def forgetful(rank: LearnerRank, directory: Path) -> None:
        load(rank, directory)
        next(iter(rank._optimizer.state.values()))["exp_avg"].add_(1e-3)

    monkeypatch.setattr(LearnerRank, "load", forgetful)
    assert not resumes(REHEARSAL.rank(1), batches, tmp_path / "b")["is_bit_equal"]
