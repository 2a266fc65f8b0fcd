"""Types the commands of docs/own-environment.md and stores what came of them.

A running stack (`hillclimb up --detach`) and `.venv-peers` are needed:
`python -m benchmarks.envs.own_environment --out benchmarks/results/own_environment.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "own-environment.md"
ADDRESS = "http://127.0.0.1:8765"
START_TIMEOUT_S = 600.0
SERVES = ".venv-peers/bin/python -m uvicorn"


def commands(page: str) -> list[str]:
    """Return the commands of the page's code blocks without a language, in order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    own = [block for language, block in blocks if not language]
    return [line for block in own for line in block.splitlines() if line]


def main() -> int:
    """Run the whole way and write the figures; 1 if pass@1 did not rise significantly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = run_page(Path(folder))
    args.out.write_text(json.dumps(figures, indent=1) + "\n")
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["verdict"] == "improved" else 1


def run_page(folder: Path) -> dict[str, Any]:
    """Run every command of the page in `folder`; return the figures of the last run."""
    server, seconds = None, {}
    try:
        for line in commands(PAGE.read_text()):
            began = time.perf_counter()
            if line.startswith(SERVES):
                server = _serve(line, folder)
            else:
                _run(line, folder)
            seconds[line] = round(time.perf_counter() - began, 1)
        return {"seconds": seconds, "total_s": round(sum(seconds.values()), 1), **_figures()}
    finally:
        if server is not None:
            server.terminate()
            server.wait(30)


def _run(line: str, folder: Path) -> str:
    words = [str(ROOT / ".venv" / "bin" / "hillclimb"), *line.split()[1:]]
    home = {"HILLCLIMB_HOME": str(ROOT), **os.environ}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=home)
    if done.returncode:
        raise SystemExit(f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _serve(line: str, folder: Path) -> subprocess.Popen[bytes]:
    words = [str(ROOT / line.split()[0]), *line.split()[1:]]
    server = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            httpx.get(f"{ADDRESS}/schema", timeout=5.0)
        except httpx.HTTPError:
            time.sleep(0.5)
        else:
            return server
    server.kill()
    raise SystemExit("the environment did not start")


def _figures() -> dict[str, Any]:
    report = json.loads(_run("hillclimb show @last --json", ROOT))
    conclusion = report.get("run", report)["conclusion"]
    return {
        "verdict": conclusion["word"],
        "sentence": conclusion["sentence"],
        "verdicts": json.loads(_run("hillclimb verdicts @last --json", ROOT)),
        "machine": {"cores": os.cpu_count(), "processor": platform.processor()},
        "load_average": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main())
