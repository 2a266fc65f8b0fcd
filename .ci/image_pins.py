"""Foreign images of Dockerfile and docker-compose.yml: a tag can be moved, a digest cannot.

`python .ci/image_pins.py` names the images without a digest, and how to find each; it exits with 1
for one that is not in `WITHOUT_DIGEST`, or that has no tag. With `--release` it exits with 1 for
every one: what is built then could be another image tomorrow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_DIGEST = frozenset(
    {"python:3.11-slim", "postgres:18", "valkey/valkey:9.1", "versity/versitygw:v1.7.0"}
)
"""Their digests are not known where this was written: no registry of images is reachable there."""
FIND = "docker buildx imagetools inspect {image} --format '{{{{.Manifest.Digest}}}}'"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
TAG = re.compile(r":[A-Za-z0-9_][A-Za-z0-9_.-]*$")


def foreign_images(dockerfile: str, compose: str) -> Iterator[str]:
    """Yield the images that are built from or run as they are; stages of our own are left out."""
    stages = set(re.findall(r"^FROM (?:--\S+ )*\S+ AS (\S+)", dockerfile, re.MULTILINE))
    for image in re.findall(r"^FROM (?:--\S+ )*(\S+)", dockerfile, re.MULTILINE):
        if image not in stages:
            yield image
    yield from re.findall(r"^\s+image:\s*[\"']?([^\s\"']+)", compose, re.MULTILINE)


def faults(images: list[str], *, is_release: bool) -> Iterator[str]:
    """Yield a sentence for each image that may not be used."""
    for image in images:
        if DIGEST.search(image):
            continue
        name = image.rpartition("/")[2]
        if not TAG.search(name) or name.endswith(":latest"):
            yield f"{image} has no tag: whatever is newest would be used."
        elif is_release or image not in WITHOUT_DIGEST:
            yield f"{image} has no digest. Find it with `{FIND.format(image=image)}`."


def main() -> int:
    """Print what is missing; return the exit code."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    images = list(foreign_images(dockerfile, (ROOT / "docker-compose.yml").read_text()))
    wrong = list(faults(images, is_release="--release" in sys.argv))
    missing = [image for image in images if not DIGEST.search(image)]
    print(f"{len(images)} foreign images, {len(missing)} without a digest: {', '.join(missing)}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
