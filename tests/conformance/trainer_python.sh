#!/bin/sh
# The data plane's interpreter with the code of this checkout. The environment may be another
# checkout's (a worktree links it), and trainers are not told the PYTHONPATH of who starts them. What
# is installed beside the environment, as on a node, goes before.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root exec "$root/.venv-trainer/bin/python" "$@"
