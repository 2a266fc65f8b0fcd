"""Refuses local files that a spec names and that belong to other runs of this machine.

The service compares a spec's paths with what its operator allows, but a symbolic link of this
machine may lead elsewhere: only here can the file that would be read be known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hillclimb.blobs.allowed import NoAddress, is_in_store
from hillclimb.process.identity import HOME_VARIABLE
from hillclimb.protocol.rundir import AttemptDir
from trainer.errors import SpecError

BLOBS_URL = "HILLCLIMB_BLOBS_URL"


def refuse_others_files(
    setting: str, path: Path, attempt: AttemptDir, environ: Mapping[str, str] | None = None
) -> None:
    """Refuse a path into the blob store or into the folder of the runner or node.

    That folder has the directories of every run on the machine, their secrets and their
    checkpoints. A trainer that was started by hand may read all that its user may.

    Raises:
        SpecError: the path leads there, also by symbolic links.
    """
    environ = os.environ if environ is None else environ
    if HOME_VARIABLE not in environ:
        return
    state = attempt.run_dir.parent.parent
    stores = (str(state), *filter(None, [environ.get(BLOBS_URL)]))
    try:
        is_closed = is_in_store(str(path.absolute()), stores)
    except NoAddress as error:
        raise SpecError(f"{setting}: {error}") from error
    if is_closed:
        raise SpecError(
            f"{setting} is {path}, which lies among the files of other runs on this machine: name"
            " a run of the project (run:RUN), or a file elsewhere"
        )
