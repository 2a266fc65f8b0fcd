"""A W&B offline file is read without W&B; a damaged one is an error, a cut one gives its rows."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from hillclimb.client.errors import ImportSourceError
from hillclimb.client.imports.history import packed
from hillclimb.client.imports.wandb_file import read_offline_run
from tests.fixtures.wandb import EVALUATED, FILE, NAME, STEPS, pass_at_3


def test_every_row_is_read() -> None:
    run = read_offline_run(FILE)
    assert (run.run_id, run.name, run.is_cut_off) == ("abc12345", NAME, False)
    assert [row["_step"] for row in run.rows] == list(STEPS)
    for step in EVALUATED:
        assert run.rows[step]["eval/github/pass_at_3"] == pass_at_3(step)
    assert run.rows[1]["timing/train_critic_and_policy"] == 12
    assert "note" not in run.rows[0]


def test_a_file_that_a_crash_cut_off_gives_the_rows_before(tmp_path: Path) -> None:
    content = FILE.read_bytes()
    path = tmp_path / "run-x.wandb"
    path.write_bytes(content[: len(content) // 2])
    run = read_offline_run(path)
    assert run.is_cut_off
    assert 5 < len(run.rows) < len(STEPS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no file of W&B",
        b":W&B\x00\x00\x00" + struct.pack("<IHB", 0, 3, 9) + b"abc",
        b":W&B\x00\x00\x00" + struct.pack("<IHB", 0, 3, 3) + b"abc",
        b":W&B\x00\x00\x00" + struct.pack("<IHB", 0, 3, 1) + b"\xff\xff\xff",
        b":W&B\x00\x00\x00" + struct.pack("<IHB", 0, 3, 1) + b"\x12\x7fx",
        b":W&B\x00\x00\x00" + struct.pack("<IHB", 0, 2, 1) + b"\x13\x00",
    ],
)
def test_a_file_that_is_not_w_and_bs_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(content)
    with pytest.raises(ImportSourceError, match="cannot be read"):
        read_offline_run(path)


def test_no_damage_is_any_other_error(tmp_path: Path) -> None:
    rng, path = random.Random(7), tmp_path / "run-x.wandb"
    for _ in range(200):
        content = bytearray(FILE.read_bytes())
        for _ in range(rng.randrange(1, 5)):
            content[rng.randrange(7, len(content))] = rng.randrange(256)
        path.write_bytes(content)
        try:
            read_offline_run(path)
        except ImportSourceError:
            continue


def test_a_folder_has_one_file(tmp_path: Path) -> None:
    with pytest.raises(ImportSourceError, match="it has 0"):
        read_offline_run(tmp_path)
    (tmp_path / "run-abc12345.wandb").write_bytes(FILE.read_bytes())
    assert read_offline_run(tmp_path).name == NAME


def test_the_training_step_counts_where_a_row_has_it() -> None:
    rows = [
        {"_step": 9, "trainer/global_step": 3, "a": 1, "_runtime": 1.0, "system/cpu": 5},
        {"_step": 10, "a": float("nan")},
        {"_step": 11, "a": "text", "b": True},
        {"_step": 12.5, "a": 1},
        {"a": 1},
    ]
    with packed(rows) as history:
        assert history.num_rows == 1
    with pytest.raises(ImportSourceError, match="no row"), packed(rows[1:]):
        pass
