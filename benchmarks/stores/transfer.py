"""A file up and down: our S3 store against boto3's own transfers, on one loopback server.

Both sides in turn, several rounds, the order changing; ratios are of the same round. Prints a
table and writes `benchmarks/results/stores_transfer.json`. Needs the control plane's environment
with the extra `dev` (rclone's server). On loopback the figures say what our parts, retries and
checks cost, not how fast a network is.

    .venv/bin/python benchmarks/stores/transfer.py --mib 256 --rounds 5
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hillclimb.blobs.locate import open_store  # noqa: E402
from tests.hillclimb.blobs.servers import BUCKET, KEY, REGION, SECRET, make_client, serve_rclone  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "stores_transfer.json"
OURS, PLAIN = "our store", "boto3"


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "buckets" / BUCKET).mkdir(parents=True)
        source, back = place / "source", place / "back"
        with source.open("wb") as file:
            for _ in range(given.mib):
                file.write(os.urandom(1 << 20))
        with serve_rclone(place / "buckets") as url:
            rounds = [measure(url, source, back, number) for number in range(given.rounds)]
    found = {"mib": given.mib, "cpus": os.cpu_count(), "load": os.getloadavg()[0], "rounds": rounds}
    for way in ("up", "down"):
        ratios = [each[way][PLAIN] / each[way][OURS] for each in rounds]
        found[f"{way}_ratio"] = round(statistics.median(ratios), 3)
        speeds = {
            name: given.mib / statistics.median(r[way][name] for r in rounds)
            for name in rounds[0][way]
        }
        print(
            f"{way:>4}: {OURS} {speeds[OURS]:.0f} MiB/s, {PLAIN} {speeds[PLAIN]:.0f} MiB/s, ratio"
            f" {found[f'{way}_ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def measure(url: str, source: Path, back: Path, number: int) -> dict[str, dict[str, float]]:
    """One round: each side up and down, whose turn is first alternates."""
    store = open_store(f"s3://{BUCKET}/ours?endpoint_url={url}&region={REGION}")
    client = make_client(url)
    ups = {
        OURS: lambda: store.put_file("f", source),
        PLAIN: lambda: client.upload_file(str(source), BUCKET, "plain/f"),
    }
    downs = {
        OURS: lambda: store.get_file("f", back),
        PLAIN: lambda: client.download_file(BUCKET, "plain/f", str(back)),
    }
    order = [OURS, PLAIN] if number % 2 else [PLAIN, OURS]
    found: dict[str, dict[str, float]] = {"up": {}, "down": {}}
    for name in order:
        found["up"][name] = round(timed(ups[name]), 4)
    for name in order:
        back.unlink(missing_ok=True)
        found["down"][name] = round(timed(downs[name]), 4)
        assert filecmp.cmp(source, back, shallow=False)
    return found


if __name__ == "__main__":
    main()
