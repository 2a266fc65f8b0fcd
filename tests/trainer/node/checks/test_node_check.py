"""The acceptance test of a machine, with a stand-in for nvidia-smi where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.node.checks import gpus, node_check
from trainer.node.checks.allreduce import NO_CUDA
from trainer.node.checks.node_check import (
    NodeRequirements,
    check_node,
    compiler_problem,
    memory_bytes,
)

FIT = "0, GPU-a, H100, 4, 31, 0\n1, GPU-b, H100, 600, 40, [N/A]\n"


def demands(folder: Path, **values: object) -> NodeRequirements:
    needs = {"num_gpus": 0, "disk_gb": 0.0, "memory_gb": 0.0, "folder": folder}
    return NodeRequirements.model_validate(needs | values)


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str, code: int = 0) -> None:
    script = folder / "nvidia-smi"
    (folder / "says").write_text(says)
    script.write_text(f"#!/bin/sh\ncat {folder}/says\necho complaint >&2\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_this_machine_is_fit_for_nothing_much(tmp_path: Path) -> None:
    found = check_node(demands(tmp_path / "not there yet"), "127.0.0.1")
    assert found.unfit == ()
    assert memory_bytes() > 2**28


def test_disk_and_memory_are_each_a_sentence(tmp_path: Path) -> None:
    found = check_node(demands(tmp_path, disk_gb=9e5, memory_gb=8e5), "127.0.0.1")
    disk, memory = found.unfit
    assert disk.endswith("GB free and needs 900000")
    assert memory.endswith("GB of memory and needs 800000")


def test_a_compiler_has_to_work_and_not_only_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiler_problem() is None
    monkeypatch.setenv("CC", "false")
    assert "the C compiler false fails" in (compiler_problem() or "")
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    assert "does not work" in (compiler_problem() or "")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no C compiler" in (compiler_problem() or "")


def test_gpus_that_are_well_are_told_with_their_temperature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, FIT)
    monkeypatch.setattr(node_check, "_all_reduce", lambda ranks: (None, f"summed over {ranks}"))
    monkeypatch.setattr(node_check, "kernel_problem", lambda: None)
    found = check_node(demands(tmp_path, num_gpus=2), "127.0.0.1")
    assert found.unfit == ()
    assert found.remarks == ("2 GPUs (H100), 31 to 40 °C", "summed over 2")


@pytest.mark.parametrize(
    ("says", "code", "sentence"),
    [
        ("0, GPU-a, H100, 4, 31, 0\n", 0, "nvidia-smi lists 1 GPU, and 2 are rented"),
        (FIT.replace("31, 0", "31, 3"), 0, "GPU 0 (H100) has 3 uncorrected memory errors"),
        (FIT.replace("600", "40960"), 0, "GPU 1 (H100) has 40.0 GiB in use by other processes"),
        ("No devices were found\n", 6, "nvidia-smi failed with 6: complaint"),
        ("hello\n", 0, "which is not a list of GPUs"),
    ],
)
def test_what_is_wrong_with_gpus_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, code: int, sentence: str
) -> None:
    smi(tmp_path, monkeypatch, says, code)
    found = check_node(demands(tmp_path, num_gpus=2), "127.0.0.1")
    assert any(sentence in each for each in found.unfit), found.unfit


def test_gpus_without_a_driver_and_a_driver_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(gpus.SmiError, match="nvidia-smi, and so the driver, is not installed"):
        gpus.list_gpus({"PATH": str(tmp_path / "empty")})
    monkeypatch.undo()
    smi(tmp_path, monkeypatch, "")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(gpus, "ANSWER_S", 0.3)
    with pytest.raises(gpus.SmiError, match="a GPU hangs"):
        gpus.list_gpus(dict(os.environ))


def test_gpus_given_to_somebody_else_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, FIT)
    for shown, ours in (("1", ["1"]), ("GPU-a", ["0"]), ("0,1", ["0", "1"])):
        found = gpus.list_gpus(dict(os.environ) | {"CUDA_VISIBLE_DEVICES": shown})
        assert [gpu.index for gpu in found] == ours


def all_reduce(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.node.checks.allreduce", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.long
def test_an_all_reduce_over_two_ranks_gives_the_sum_and_its_speed() -> None:
    done = all_reduce("--ranks", "2", "--backend", "gloo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("all-reduce of 64 MiB over 2 ranks by gloo: ")


@pytest.mark.long
def test_without_cuda_no_all_reduce_is_tried() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    assert all_reduce("--ranks", "2").returncode == NO_CUDA


@pytest.mark.invariant("a machine whose GPUs torch does not see is unfit")
def test_rented_gpus_that_torch_does_not_see_make_a_machine_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    smi(tmp_path, monkeypatch, FIT)
    unfit, _ = node_check._gpus(2)
    assert unfit == [
        "torch detects none of the 2 rented GPUs: its build has no CUDA, or one that the machine's"
        " driver is too old for"
    ]
    monkeypatch.setenv(node_check.FAKE_GPUS_VARIABLE, "1")
    assert node_check._gpus(2)[0] == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 0", None),
        (f"exit {NO_CUDA}", None),
        ("echo 'fatal error: Python.h: No such file' >&2; exit 1", "Python.h: No such file (it"),
        ("exit 1", "no Triton kernel runs on the GPU: no error message"),
        ("exec sleep 60", "a Triton kernel was not compiled within 0.5 s"),
    ],
)
def test_a_gpu_on_which_no_kernel_runs_makes_a_machine_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str | None
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    smi(tmp_path, monkeypatch, FIT)
    monkeypatch.setattr(node_check.sys, "executable", str(python))
    monkeypatch.setattr(node_check, "KERNEL_S", 0.5)
    monkeypatch.setattr(node_check, "_all_reduce", lambda ranks: (None, f"summed over {ranks}"))
    unfit = check_node(demands(tmp_path, num_gpus=2), "127.0.0.1").unfit
    if problem is None:
        assert unfit == ()
    else:
        assert [problem in each for each in unfit] == [True]


@pytest.mark.long
def test_without_cuda_no_kernel_is_compiled() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    command = [sys.executable, "-m", "trainer.node.checks.kernel"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == NO_CUDA, done.stderr
