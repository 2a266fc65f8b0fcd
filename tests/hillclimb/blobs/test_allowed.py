"""Which files a tenant may name: below a prefix, in no blob store, and with no second meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.blobs.allowed import NoAddress, is_below, is_in_store, place_of


@pytest.mark.parametrize(
    "address",
    [
        "s3://store?endpoint_url=http://evil",
        "s3://store/models?endpoint_url=http://evil",
        "s3://store/models#x",
        "s3://store/models/../runs",
        "s3://store/runs%2Frun_1",
        "s3://user@store/models",
        "s3://store:9000/models",
        "s3://store/mo\tdels",
        "S3://store/models",
        " s3://store/models",
        "file://host/models",
        "file:///models%2F..",
        "/models/../runs",
        "models",
        "../runs",
        "",
    ],
)
def test_an_address_with_a_second_meaning_is_none(address: str) -> None:
    with pytest.raises(NoAddress):
        place_of(address)


@pytest.mark.parametrize(
    ("address", "prefix", "is_allowed"),
    [
        ("s3://models/qwen", "s3://models", True),
        ("s3://models/qwen", "s3://models/qwen/", True),
        ("s3://models/qwen-2", "s3://models/qwen", False),
        ("s3://models-2/qwen", "s3://models", False),
        ("/srv/models/qwen", "file:///srv/models", True),
        ("/srv//models/qwen", "file:///srv/models", True),
        ("/srv/models-2/qwen", "file:///srv/models", False),
        ("/anything", "file:///", True),
        ("s3://models/qwen", "file:///", False),
    ],
)
def test_a_prefix_covers_whole_segments(address: str, prefix: str, *, is_allowed: bool) -> None:
    assert is_below(address, ["s3://other", prefix]) == is_allowed


@pytest.mark.parametrize(
    ("address", "store", "is_inside"),
    [
        ("s3://store/hillclimb/runs/run_1", "s3://store/hillclimb", True),
        ("s3://store/hillclimb//runs", "s3://store/hillclimb?endpoint_url=http://minio", True),
        ("s3://store/models", "s3://store/hillclimb", False),
        ("s3://store/models", "s3://store", True),
        ("s3://store/a b/runs", "s3://store/a%20b", True),
        ("/blobs/runs", "/blobs", True),
        ("/blobs/runs", "file:///blobs", True),
        ("/blobs-2/runs", "/blobs", False),
    ],
)
def test_a_store_is_closed_whatever_its_address_looks_like(
    address: str, store: str, *, is_inside: bool
) -> None:
    assert is_in_store(address, ["s3://elsewhere", store]) == is_inside


def test_a_link_does_not_lead_into_a_store(tmp_path: Path) -> None:
    store = tmp_path / "blobs"
    (store / "runs").mkdir(parents=True)
    (tmp_path / "models").symlink_to(store / "runs")
    (tmp_path / "store").symlink_to(store)
    assert is_in_store(str(tmp_path / "models" / "run_1"), [str(store)])
    assert is_in_store(str(store / "runs"), [str(tmp_path / "store")])
    assert not is_in_store(str(tmp_path / "other"), [str(store)])
