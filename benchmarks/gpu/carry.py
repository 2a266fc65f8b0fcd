"""Packs what a bare image needs for the checklist out of an environment, in parts of a size.

    python -m benchmarks.gpu.carry --site .venv-gpu/lib/python3.11/site-packages --out .carried
    python -m benchmarks.gpu.carry --pins    # the same as requirements of pip, for another Python

The parts are one gzipped tar; the last lines printed unpack it. Needs no library.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from io import BytesIO
from pathlib import Path
from typing import IO

MIB = 1024**2
NAME = "carried.tar.gz"
INSTALL = "install requirements/trainer-gpu.txt there"
GROUPS: Mapping[str, tuple[str, ...]] = {
    # The checklist's own imports, beside torch, transformers, safetensors, peft and numpy.
    "base": (
        *("pydantic", "pydantic-core", "annotated-types", "typing-inspection"),
        "typing-extensions",
    ),
    "liger": ("liger-kernel",),
    "fla": ("flash-linear-attention", "fla-core", "einops"),
    "flash4": (
        *("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-core", "nvidia-cutlass-dsl-libs-base"),
        "nvidia-cutlass-dsl-libs-cu{cuda}",
        *("quack-kernels", "apache-tvm-ffi", "torch-c-dlpack-ext", "einops", "ml-dtypes"),
        *("cuda-bindings", "cuda-pathfinder"),
    ),
    "triton": ("triton",),
    "ray": ("ray", "msgpack", "protobuf", "click", "filelock", "requests"),
    "vllm": (
        *("vllm", "flashinfer-python", "nvidia-ml-py", "nvidia-cudnn-frontend", "nvtx", "tabulate"),
        *("anyio", "annotated-doc", "anthropic", "astor", "blake3", "cachetools", "cbor2", "cffi"),
        *("compressed-tensors", "depyf", "dill", "distro", "docstring-parser", "fastapi", "fsspec"),
        *("httpcore2", "httpx2", "idna", "ijson", "interegular", "jiter", "jsonschema"),
        *("jsonschema-specifications", "lark", "llguidance", "lm-format-enforcer", "loguru", "mcp"),
        *("mcp-types", "mistral-common", "model-hosting-container-standards", "msgspec", "openai"),
        *("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-semantic-conventions"),
        *("opentelemetry-semantic-conventions-ai", "opentelemetry-proto", "oss-harmony"),
        *("outlines-core", "partial-json-parser", "prometheus-fastapi-instrumentator", "pybase64"),
        *("pycountry", "pydantic-extra-types", "pydantic-settings", "pyjwt", "pytest-asyncio"),
        *("python-dotenv", "python-json-logger", "python-multipart", "pyzmq", "referencing"),
        *("rpds-py", "setproctitle", "sniffio", "sse-starlette", "starlette", "supervisor"),
        *("truststore", "uvicorn", "watchfiles", "websockets", "xgrammar", "xxhash", "zstandard"),
    ),
}
"""Distributions by what they are for."""
USUAL = ("base", "liger", "fla", "flash4")
"""Groups that the checklist's blocks A, B and C need."""
LEFT_OUT = re.compile(
    r"^vllm/(vllm-rs$|third_party/(deep_gemm|fmha_sm100)/|_(flashkda|deepselect|flashmla|qutlass)_C"
    r"|vllm_flash_attn/_vllm_fa2_C)|^ray/(jars|rllib|llm|dashboard/client)/"
)
"""Three fifths of vLLM, which no model of ours calls on a Hopper GPU, and parts of Ray."""
PLUGIN = "hillclimb-0.dist-info"
"""vLLM finds our transports of weights by an entry point, which a checkout alone does not have."""
COPY = "vllm/vllm_flash_attn/cute"
"""FlashAttention 4, of which vLLM brings a copy; its package's own start needs all of vLLM."""
GROUP_OF_PLUGINS = "vllm.general_plugins"
PYTHONPATH = ("{site}", "{site}/nvidia_cutlass_dsl/dsl_packages")
"""The second is what a .pth file names, which Python reads in its own site-packages alone."""


class NotThere(Exception):
    """A distribution is not in the environment."""


@dataclass(slots=True)
class Parts:
    """A file that goes on in another after so many bytes."""

    folder: Path
    limit: int
    paths: list[Path] = field(default_factory=list)
    _file: IO[bytes] | None = None
    _left: int = 0

    def write(self, data: bytes) -> int:
        """Write everything, over the border between two files where it comes."""
        view = memoryview(data)
        while view:
            if not self._left:
                self._begin()
            assert self._file is not None
            written = self._file.write(view[: self._left])
            self._left -= written
            view = view[written:]
        return len(data)

    def flush(self) -> None:
        """Keep what is buffered: a part is complete when it is closed."""

    def close(self) -> None:
        """Close the last file."""
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        self.close()
        self.paths.append(self.folder / f"{NAME}.{len(self.paths):02d}")
        self._file, self._left = self.paths[-1].open("wb"), self.limit


def names_of(groups: Sequence[str], cuda: int) -> list[str]:
    """Return the distributions of some groups, each once."""
    return [*dict.fromkeys(each.format(cuda=cuda) for name in groups for each in GROUPS[name])]


def files_of(sites: Sequence[Path], groups: Sequence[str], cuda: int) -> Iterator[tuple[str, Path]]:
    """Yield the files to carry, by their names below the new site; of two the first site's.

    Raises:
        NotThere: a sentence that names the distribution.
    """
    present = {name: each for site in reversed(sites) for name, each in _distributions(site)}
    for name in names_of(groups, cuda):
        if name not in present:
            raise NotThere(f"{_list(sites)} has no {name}: {INSTALL}")
        for each in present[name].files or ():
            path = Path(str(present[name].locate_file(each)))
            # Scripts are beside the site, and bytecode is written anew.
            usual = ".." not in each.parts and path.suffix != ".pyc" and path.is_file()
            if usual and not LEFT_OUT.match(str(each)):
                yield str(each), path
    if "flash4" in groups and "vllm" not in groups:
        copies = [site for site in sites if (site / COPY).is_dir()]
        if not copies:
            raise NotThere(f"{_list(sites)} has no {COPY}: {INSTALL}")
        for path in sorted((copies[0] / COPY).rglob("*.py")):
            yield str(path.relative_to(copies[0])), path


def pack(files: Mapping[str, Path], parts: Parts) -> None:
    """Write the tar; the packages above the copy of FlashAttention are empty."""
    with (
        gzip.GzipFile(NAME, "wb", fileobj=parts, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w|") as tar,
    ):
        for name, path in files.items():
            tar.add(path, name, recursive=False)
        if any(name.startswith(COPY) for name in files) and "vllm/__init__.py" not in files:
            for package in Path(COPY).parents[:-1]:
                tar.addfile(tarfile.TarInfo(f"{package}/__init__.py"), BytesIO())
        if "vllm/__init__.py" in files:
            for name, text in plugin().items():
                entry = tarfile.TarInfo(f"{PLUGIN}/{name}")
                entry.size = len(text)
                tar.addfile(entry, BytesIO(text.encode()))
    parts.close()


def plugin() -> dict[str, str]:
    """Return the metadata by which vLLM finds the plugin of the checkout."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"][GROUP_OF_PLUGINS]
    lines = [f"{name} = {target}" for name, target in entries.items()]
    return {
        "METADATA": "Metadata-Version: 2.1\nName: hillclimb\nVersion: 0\n",
        "entry_points.txt": "\n".join([f"[{GROUP_OF_PLUGINS}]", *lines, ""]),
    }


def other_python(files: Mapping[str, Path]) -> str | None:
    """Return the only Python that compiled files are for, such as 3.11; None: any."""
    tags = (re.search(r"\.cpython-(\d)(\d+)-", name) for name in files)
    versions = {f"{tag[1]}.{tag[2]}" for tag in tags if tag}
    return ", ".join(sorted(versions)) or None


def _distributions(site: Path) -> Iterator[tuple[str, Distribution]]:
    for each in distributions(path=[str(site)]):
        yield re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(), each


def _list(sites: Sequence[Path]) -> str:
    return " and ".join(map(str, sites))


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack, or print the pins; return 1 where something is not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(sysconfig.get_path("purelib"))
    parser.add_argument(
        "--site", type=Path, nargs="+", default=[default], help="default: this Python's own"
    )
    parser.add_argument("--out", type=Path, default=Path(".carried"))
    parser.add_argument("--part-mib", type=int, default=60, help="size of a part")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=USUAL, metavar="GROUP")
    parser.add_argument("--cuda", type=int, choices=(12, 13), default=13, help="of the image")
    parser.add_argument("--pins", action="store_true", help="print requirements and pack nothing")
    given = parser.parse_args(arguments)
    if given.pins:
        present = dict(_distributions(given.site[0]))
        print(*(f"{name}=={present[name].version}" for name in names_of(given.only, given.cuda)))
        return 0
    try:
        files = dict(files_of(given.site, given.only, given.cuda))
    except NotThere as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    for old in given.out.glob(f"{NAME}.*"):
        old.unlink()
    parts = Parts(given.out, given.part_mib * MIB)
    pack(files, parts)
    for path in parts.paths:
        print(f"{path}  {path.stat().st_size / MIB:.1f} MiB")
    print(f"for Python {other_python(files) or '3'}, CUDA {given.cuda}; in the image:")
    site = "/tmp/site"
    where = ":".join(each.format(site=site) for each in PYTHONPATH)
    print(f"mkdir -p {site} && cat {given.out}/{NAME}.* | tar -xz -C {site}")
    print(f"export PYTHONPATH={where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
