"""Images that we do not build are named so that they stay what they are (`.ci/image_pins.py`)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = runpy.run_path(str(ROOT / ".ci/image_pins.py"))
DIGEST = "@sha256:" + "a" * 64


def our_images() -> list[str]:
    texts = [(ROOT / name).read_text() for name in ("Dockerfile", "docker-compose.yml")]
    return list(CODE["foreign_images"](*texts))


def test_every_image_of_ours_has_a_tag_and_a_new_one_a_digest() -> None:
    assert list(CODE["faults"](our_images(), is_release=False)) == []


def test_no_exception_is_left_for_an_image_that_has_a_digest_or_is_gone() -> None:
    assert set(our_images()) >= CODE["WITHOUT_DIGEST"]


def test_stages_of_our_own_are_no_foreign_images() -> None:
    dockerfile = (
        "FROM --platform=linux/amd64 python:3.11 AS base\nFROM base AS api\nFROM scratch:1\n"
    )
    assert list(CODE["foreign_images"](dockerfile, "  x:\n    image: 'postgres:18'\n")) == [
        "python:3.11",
        "scratch:1",
        "postgres:18",
    ]


@pytest.mark.parametrize(
    ("image", "is_release", "is_refused"),
    [
        ("redis", False, True),
        ("redis:latest", False, True),
        ("redis:8", False, True),
        ("localhost:5000/redis", False, True),
        (f"redis:8{DIGEST}", True, False),
        (f"redis{DIGEST}", True, False),
        ("postgres:18", False, False),
        ("postgres:18", True, True),
    ],
)
def test_what_can_be_moved_is_refused(image: str, is_release: bool, is_refused: bool) -> None:
    found = list(CODE["faults"]([image], is_release=is_release))
    assert bool(found) is is_refused
    assert not found or image in found[0]
