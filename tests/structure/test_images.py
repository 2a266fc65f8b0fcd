"""No process of the service or of a trainer decodes an image: screenshots stay text or files."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.structure.statements import statements

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "worker", "hillclimb", "trainer")
DECODERS = {"PIL", "cv2", "imageio", "skimage", "torchvision", "wand", "pyvips"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    text = path.read_text()
    if not any(name in text for name in DECODERS):  # parsing all takes a second
        return names
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_no_module_imports_a_decoder_of_images() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(paths) > 500
    assert {str(path): found for path in paths if (found := imported(path) & DECODERS)} == {}
