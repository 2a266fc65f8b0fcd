"""What `benchmarks/gpu/carry.py` packs for a bare image, out of small sites of the same form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.gpu import carry

PARTS_MIB = 1


def install(site: Path, name: str, *files: str, size: int = 10) -> None:
    """Lay a distribution out as pip does, with a script beside the site."""
    module, info = name.replace("-", "_"), site / f"{name.replace('-', '_')}-1.0.dist-info"
    paths = [f"{module}/__init__.py", f"{module}/__pycache__/__init__.pyc", *files]
    for path in paths:
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(b"" if path.endswith(".py") else bytes(size))
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    rows = [*paths, "../../../bin/a-script", f"{info.name}/METADATA", f"{info.name}/RECORD"]
    (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site-packages"
    for name in carry.names_of([*carry.GROUPS], 13):
        install(site, name)
    install(site, "nvidia-cutlass-dsl-libs-cu12")
    (site / "vllm-1.0.dist-info" / "RECORD").unlink()
    (site / "vllm-1.0.dist-info" / "METADATA").unlink()
    (site / "vllm-1.0.dist-info").rmdir()
    install(site, "vllm", "vllm/engine.py", "vllm/vllm-rs", "vllm/_C_stable_libtorch.abi3.so")
    (site / "vllm" / "__init__.py").write_text("raise ImportError('all of vLLM is needed')\n")
    copy = site / carry.COPY
    copy.mkdir(parents=True)
    (copy.parent / "__init__.py").write_text("raise ImportError('all of vLLM is needed')\n")
    (copy / "__init__.py").touch()
    (copy / "interface.py").write_text("HERE = True\n")
    return site


def unpacked(out: Path, into: Path) -> Path:
    data = b"".join(path.read_bytes() for path in sorted(out.iterdir()))
    into.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xz", "-C", into], input=data, check=True)
    return into


def packed(*arguments: str) -> int:
    return carry.main([*arguments, "--part-mib", str(PARTS_MIB)])


def test_the_copy_of_flash_attention_imports_without_the_rest_of_vllm(
    site: Path, tmp_path: Path
) -> None:
    assert packed("--site", str(site), "--out", str(tmp_path / "out")) == 0
    image = unpacked(tmp_path / "out", tmp_path / "image")
    code = "import vllm.vllm_flash_attn.cute.interface as it; print(it.HERE, it.__file__)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=image, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", str(image / carry.COPY / "interface.py")]
    names = {path.name for path in image.iterdir()}
    assert {"pydantic", "liger_kernel", "fla_core", "quack_kernels-1.0.dist-info"} <= names
    # Neither the other CUDA's, nor vLLM as a distribution, nor scripts and bytecode.
    assert not {"nvidia_cutlass_dsl_libs_cu12", "vllm-1.0.dist-info", "a-script"} & names
    assert not list(image.rglob("*.pyc"))


def test_vllm_comes_whole_but_for_what_is_never_called_and_finds_its_plugin(
    site: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert packed("--site", str(site), "--out", str(out), "--only", "base", "vllm") == 0
    image = unpacked(out, tmp_path / "image")
    assert "all of vLLM" in (image / "vllm" / "__init__.py").read_text(), (
        "its own, not an empty one"
    )
    assert (image / "vllm" / "_C_stable_libtorch.abi3.so").exists()
    assert not (image / "vllm" / "vllm-rs").exists()
    code = (
        "from importlib.metadata import entry_points as of;"
        "print([each.value for each in of(group='vllm.general_plugins')])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=image, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["['trainer.engines.vllm.plugin:register']"]


def test_no_part_is_larger_than_it_may_be_and_together_they_are_the_tar(
    site: Path, tmp_path: Path
) -> None:
    big = site / "liger_kernel" / "__init__.py"
    big.write_bytes(Random(0).randbytes(20_000))
    out = tmp_path / "out"
    out.mkdir()
    parts = carry.Parts(out, 4096)
    files = dict(carry.files_of([site], ["liger"], 13))
    carry.pack(files, parts)
    assert len(parts.paths) > 4
    assert {path.stat().st_size for path in parts.paths[:-1]} == {4096}
    again = unpacked(out, tmp_path / "image") / "liger_kernel" / "__init__.py"
    assert again.read_bytes() == big.read_bytes()


def test_another_pythons_packages_come_first_and_the_copy_from_where_it_is(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    install(other, "pydantic-core", "pydantic_core/_core.cpython-312-x86_64-linux-gnu.so")
    out = tmp_path / "out"
    assert packed("--site", str(other), str(site), "--out", str(out)) == 0
    assert "for Python 3.12, CUDA 13" in capsys.readouterr().out
    packed_too = unpacked(out, tmp_path / "image")
    assert (packed_too / carry.COPY / "interface.py").exists()
    assert carry.main(["--site", str(site), "--only", "liger", "--pins"]) == 0
    assert capsys.readouterr().out.split() == ["liger-kernel==1.0"]


def test_what_an_environment_lacks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path / "site", "liger-kernel")
    site, out = ["--site", str(tmp_path / "site")], ["--out", str(tmp_path / "out")]
    assert packed(*site, *out, "--only", "liger") == 0
    assert packed(*site, *out, "--only", "fla") == 1
    assert "has no flash-linear-attention: install" in capsys.readouterr().err
