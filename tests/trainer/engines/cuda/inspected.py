"""Lets vLLM look at the classes of models where it is: `python -m … ARCHITECTURE...`.

It keeps what it finds in its cache and reads it there the next time, wherever it believes to be.
The process that pretends to have GPUs cannot look itself: to import a model, vLLM's code for GPUs
needs kernels that only its build for GPUs has.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Look at each architecture; raises for one that vLLM cannot import."""
    from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415 - 10 s

    for architecture in sys.argv[1:]:
        ModelRegistry.models[architecture].inspect_model_cls()


if __name__ == "__main__":
    main()
