"""Finding lines in a log of segments."""

import time
from pathlib import Path

import pytest

from api.results.artifacts import log_search
from api.results.artifacts.log_search import LogFilter, search_log
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import log_segment, run_key

AT = "2026-11-21 20:00:00,123"
FIRST = (
    f"{AT} INFO trainer.node.head: started the trainer, pid 7\n"
    f"{AT} ERROR trainer.rollouts.groups.collector: booking-eu did not answer\n"
    "Traceback (most recent call last):\n"
    "  ConnectionRefusedError: github was away\n"
)
SECOND = (
    f"\x1b[36m(Rolls pid=12, ip=10.0.0.2)\x1b[0m {AT} WARNING trainer.envs: booking is slow\n"
    f"{AT} INFO trainer.nodes: not the node\n"
    f"{AT} DEBUG ray: Booking again\n"
)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    made = DiskStore(tmp_path)
    for number, text in ((1, FIRST), (2, SECOND)):
        made.put(run_key("run_1", log_segment(1, number)), text.encode())
    return made


def found(store: DiskStore, limit: int = 1 << 16, **asked: str) -> str:
    wanted, text, after = LogFilter(**asked), "", 0  # type: ignore[arg-type]
    while True:
        page = search_log(store, "run_1", 1, wanted, after=after, limit=limit)
        text += page.text
        assert page.next_offset > after or not page.has_more
        after = page.next_offset
        if not page.has_more:
            return text


def test_a_level_takes_worse_ones_too_with_what_follows_them(store: DiskStore) -> None:
    lines = found(store, level="WARNING").splitlines()
    assert [line[-21:] for line in lines][-1] == "envs: booking is slow"
    assert len(lines) == 4
    assert "github was away" in lines[2]
    assert found(store, level="CRITICAL") == ""


def test_a_component_is_a_whole_part_of_a_name(store: DiskStore) -> None:
    assert found(store, component="node").count("\n") == 1
    assert "started the trainer" in found(store, component="trainer.node.head")
    assert found(store, component="nod") == ""


def test_an_environment_is_a_whole_word(store: DiskStore) -> None:
    assert "is slow" in found(store, environment="booking")
    assert "booking-eu" not in found(store, environment="booking")
    assert "Traceback" in found(store, environment="github")


def test_text_is_found_in_capitals_or_not_and_filters_add_up(store: DiskStore) -> None:
    assert found(store, text="BOOKING").count("trainer.") == 2
    assert found(store, text="BOOKING").count("\n") == 5
    assert found(store, text="booking", level="ERROR").count("\n") == 3
    assert found(store, text="a+b") == ""


@pytest.mark.parametrize(("limit", "scan"), [(16, 1 << 20), (1 << 16, 1), (16, 1)])
def test_pages_together_are_the_whole_search(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, limit: int, scan: int
) -> None:
    whole = found(store, text="booking")
    monkeypatch.setattr(log_search, "SCAN_BYTES", scan)
    assert found(store, limit, text="booking") == whole


def test_a_log_that_grows_is_searched_on_from_where_it_was(store: DiskStore) -> None:
    wanted = LogFilter(text="late")
    page = search_log(store, "run_1", 1, wanted, after=0, limit=1 << 16)
    assert (page.text, page.has_more) == ("", False)
    line = f"{AT} INFO trainer.jobs.train.loop: late\n"
    store.put(run_key("run_1", log_segment(1, 3)), line.encode())
    later = search_log(store, "run_1", 1, wanted, after=page.next_offset, limit=1 << 16)
    assert later.text == line


def test_a_log_without_a_line_of_ours_is_read_a_bounded_stretch_at_once(tmp_path: Path) -> None:
    store, read = DiskStore(tmp_path), []
    bars = b"Loading: 10%|#         | 1/10 [00:01<00:09]\n" * 20_000
    for number in range(1, 6):
        store.put(run_key("run_1", log_segment(1, number)), bars)

    class Counting(DiskStore):
        def get(self, key: str) -> bytes:
            read.append(key)
            return super().get(key)

    page = search_log(
        Counting(tmp_path), "run_1", 1, LogFilter(text="loading"), after=0, limit=1 << 16
    )
    assert page.has_more
    assert len(page.text) <= 2 * log_search.RECORD_BYTES
    assert len(read) == 1
    nothing = LogFilter(text="nowhere")
    page = search_log(Counting(tmp_path), "run_1", 1, nothing, after=0, limit=1 << 16)
    assert (page.text, page.has_more) == ("", False)
    assert found(store, limit=1 << 16, text="loading").encode() == bars * 5


@pytest.mark.parametrize("piece", [b"\x1b[0m", b"(x) ", b"(", b" ", b"\x1b[0;0;0", b"a.a "])
def test_a_line_that_a_trainer_laid_costs_what_its_length_does(
    tmp_path: Path, piece: bytes
) -> None:
    """64 kB of `ESC[0m` held the GIL for eight seconds, and so every request of the process."""
    laid = DiskStore(tmp_path)
    line = piece * (65_536 // len(piece)) + b"\n"
    laid.put(run_key("run_1", log_segment(1, 1)), line + FIRST.encode())
    began = time.thread_time()
    assert found(laid, level="ERROR").count("\n") == 3
    assert time.thread_time() - began < 0.3


def test_a_line_above_the_limit_of_a_record_is_searched_in_pieces(tmp_path: Path) -> None:
    laid = DiskStore(tmp_path)
    head = f"{AT} ERROR trainer.envs: ".encode()
    line = head + b"x" * (3 * log_search.RECORD_BYTES) + b" needle\n"
    laid.put(run_key("run_1", log_segment(1, 1)), line + FIRST.encode())
    first = found(laid, text="trainer.envs")
    assert len(first) == log_search.RECORD_BYTES
    last = found(laid, text="needle")
    assert last.endswith(" needle\n")
    assert len(last) < log_search.RECORD_BYTES
