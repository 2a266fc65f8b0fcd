"""Replays and searches rollouts in a process of its own, one at a time and bounded in time.

Thousands of rollouts are seconds of pure Python: in a thread they would block every event stream.
The process gets a folder and none of the service's secrets.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.results.errors import NotRescorable, RescoringBusy

JOB, RESULT, LOG = "job.json", "result.json", "log"
REPLAY, SEARCH = "api.results.rescoring.job", "api.results.rescoring.search_job"
DEADLINE_S = 300.0
WAIT_S = 20.0
"""A request waits this long for another one's process."""
PASSED_ON = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HILLCLIMB_STATE_DIR", "SYSTEMROOT", "TMPDIR")
"""The embedded stack recognizes its own processes by the state directory."""
ROOT = Path(__file__).resolve().parents[3]

_log = logging.getLogger(__name__)
_turn = threading.Semaphore(1)


def replay_all(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Grade the rollouts of the job by their files in `folder`; return the verifier and results.

    Raises:
        NotRescorable: it took too long.
        RescoringBusy: other rollouts were being replayed or searched for `WAIT_S`.
    """
    return _work(folder, job, REPLAY)


def search_all(folder: Path, job: Mapping[str, Any]) -> dict[str, Any]:
    """Search the rollouts of the job for failure patterns; return version and results.

    Raises what `replay_all` does.
    """
    return _work(folder, job, SEARCH)


def _work(folder: Path, job: Mapping[str, Any], module: str) -> dict[str, Any]:
    (folder / JOB).write_text(json.dumps(job))
    if not _turn.acquire(timeout=WAIT_S):
        raise RescoringBusy("Other rollouts are being rescored: try again in a minute.")
    try:
        code = _run(folder, module)
    finally:
        _turn.release()
    if code != 0:
        _log.error("%s ended with %d: %s", module, code, (folder / LOG).read_text()[-4000:])
        raise RuntimeError(f"{module} ended with {code}")
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


def _run(folder: Path, module: str) -> int:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    with (folder / LOG).open("wb") as output:
        try:
            return subprocess.run(
                [sys.executable, "-m", module, str(folder)],
                cwd=ROOT,
                env=environment | {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=DEADLINE_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise NotRescorable(
                f"The rollouts take over {DEADLINE_S:.0f} s: rescore one step at a time."
            ) from error
