"""Import of one module of transformers that vLLM's Qwen3.5 needs, where torchvision is missing.

vLLM's text models of this line import its models of images, and those a function of transformers'
image processor, whose file imports torchvision. The package index has torchvision for CUDA alone,
and beside a CPU build of torch that does not even import. Text needs nothing of it: the import gets
empty modules, which disappear again.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

_IMPORTED = "transformers.models.qwen2_vl.image_processing_qwen2_vl"
_MISSING = (
    "torchvision",
    "torchvision.transforms",
    "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional",
)


def import_image_processor() -> None:
    """Import the module; images would fail in it, with an attribute that an empty module lacks."""
    if _IMPORTED in sys.modules or importlib.util.find_spec(_MISSING[0]) is not None:
        return
    # Before the empty modules are there.
    from transformers.utils.import_utils import is_torchvision_available  # noqa: PLC0415

    # transformers remembers the answer, which has to be that torchvision is not there.
    is_torchvision_available()
    modules = {name: ModuleType(name) for name in _MISSING}
    for name in _MISSING[1:]:
        parent, _, own = name.rpartition(".")
        setattr(modules[parent], own, modules[name])
    sys.modules.update(modules)
    try:
        importlib.import_module(_IMPORTED)
    finally:
        for name in _MISSING:
            del sys.modules[name]
