"""`python -m hillclimb.stack`: the supervisor in the foreground, configured by the environment."""

import os
import sys
from pathlib import Path

from hillclimb.stack.control import up
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import StackOptions


def main() -> int:
    """Run the stack until a signal; 0 after a clean stop, 1 with a sentence on stderr."""
    try:
        return up(StackOptions.from_environment(os.environ, Path.cwd()), say=_say)
    except StackError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
