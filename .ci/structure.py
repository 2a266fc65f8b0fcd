"""Measures the structure of the source tree: sizes, folders, import circles, names, broad excepts.

`python .ci/structure.py` prints every measure; with `--check` it exits with 1 and names each
violation of a limit. It reads files only: nothing of the project is imported.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("api", "worker", "hillclimb", "trainer")

MAX_LINES = 500
MAX_ENTRIES = 12
MORE_ENTRIES = {"trainer": 15, "tests/trainer": 15, ".": 24}
"""Folders with a limit of their own; the repository's root holds what tools expect there."""
DATA_SUFFIXES = (".json", ".html", ".css", ".js", ".svg", ".png", ".yaml", ".md", ".txt")
SEVERAL_MEANINGS = {
    "AttemptSuperseded": "one event on both sides of the wire: the API raises it for a request that"
    " it refuses, the trainer once it was refused; no process has both",
    "ClusterFacts": "the same facts as a payload of the API and as SkyPilot's adapter reports them:"
    " the adapter is not to know payloads",
    "RequestRefused": "what OpenAI's and Tinker's clients call it: a teacher that refuses our"
    " request, and our Tinker server that refuses somebody's",
    "Results": "the client's part for results of runs, and the results of the tool calls of one"
    " answer, which the formats of both teachers call so",
    "Runner": "the row of a registered runner, and the runner itself: as with Run, Attempt and"
    " Cluster the table has the name of the thing",
    "SavedState": "Tinker's word for a saved state: the server's own on its disk, and the client's"
    " reference to one in a checkpoint",
    "ServiceUnreachable": "the same fault of two processes that share no client yet, node and"
    " runner (docs/proposals/one_holder.md)",
    "TinkerService": "Tinker's word for both ends of its protocol: the server's operations, and the"
    " client's session with them",
}
"""Class names that several modules may define, each with the reason; any other one may not."""
MAX_SEVERAL_MEANINGS = 8
MAX_BROAD_PER_KLOC = 0.3
EDGES = (
    "api/http/middleware.py",  # a request
    "trainer/attempt/sinks/",  # a sink
    "trainer/jobs/process.py",  # an attempt
    "trainer/rollouts/worker.py",  # a rollout
    "worker/tasks.py",  # a task
)
"""Where every exception is caught on purpose: one broken part must not end the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A source file: its dotted name, its syntax tree and its number of lines."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    is_package: bool


@dataclass(frozen=True)
class Tree:
    """All modules of the four packages, and the imports between them."""

    modules: Mapping[str, Module]

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules of this project that each module imports, lazily or for types included."""
        return {name: set(self._imported(module)) for name, module in self.modules.items()}

    def _imported(self, module: Module) -> Iterator[str]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    if submodule in self.modules:
                        yield submodule
                    elif node.module in self.modules:
                        yield node.module


def read_tree(root: Path, packages: Sequence[str]) -> Tree:
    """Parse every tracked or new `.py` file of the packages."""
    modules = {}
    for path in tracked_files(root, packages):
        if path.suffix != ".py":
            continue
        parts = path.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = (root / path).read_text()
        modules[name] = Module(
            name=name,
            path=path,
            tree=ast.parse(text),
            lines=text.count("\n"),
            is_package=is_package,
        )
    return Tree(modules)


def tracked_files(root: Path, folders: Iterable[str]) -> list[Path]:
    """Return files that git tracks or would add, relative to `root`."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *folders]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return sorted({Path(line) for line in done.stdout.splitlines() if (root / line).is_file()})


def circles(tree: Tree) -> list[list[str]]:
    """Return import circles between siblings: files and subfolders of one folder.

    An import between two modules counts as an import between the two entries of their nearest
    common folder, so neither files nor folders at any depth may import each other in a circle.
    """
    siblings: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for importer, imported in tree.imports.items():
        for target in imported:
            parent, a, b = _siblings(_entry(tree, importer), _entry(tree, target))
            if a != b:
                siblings[parent][a].add(b)
    found = (component for graph in siblings.values() for component in _components(graph))
    return sorted(found)


def _entry(tree: Tree, name: str) -> list[str]:
    """A package's own code is an entry beside its modules."""
    parts = name.split(".")
    return [*parts, "__init__"] if tree.modules[name].is_package else parts


def _siblings(importer: list[str], target: list[str]) -> tuple[str, str, str]:
    shared = 0
    while shared < min(len(importer), len(target)) - 1 and importer[shared] == target[shared]:
        shared += 1
    parent = ".".join(importer[:shared])
    return parent, ".".join(importer[: shared + 1]), ".".join(target[: shared + 1])


def _components(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components with more than one node: nodes that reach each other."""
    reach = {node: _reachable(graph, node) for node in graph}
    done: set[str] = set()
    for node in graph:
        circle = {other for other in reach[node] if node in reach.get(other, ())}
        if node not in done and len(circle | {node}) > 1:
            yield sorted(circle | {node})
        done |= circle


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    stack = [start]
    while stack:
        new = graph.get(stack.pop(), set()) - reached
        reached |= new
        stack += new
    return reached


def folder_entries(root: Path) -> dict[str, int]:
    """Return the number of entries of each folder; `__init__.py` and data files do not count."""
    entries: dict[str, set[str]] = defaultdict(set)
    for path in tracked_files(root, ["."]):
        if path.name == "__init__.py":
            continue
        for parent, child in zip(path.parents, (path, *path.parents), strict=False):
            if child == path and _is_data(path):
                continue
            entries[str(parent)].add(child.name)
    return {folder: len(names) for folder, names in entries.items()}


def _is_data(path: Path) -> bool:
    return path.suffix in DATA_SUFFIXES or path.parts[0] in ("assets", "migrations")


def duplicate_classes(tree: Tree) -> dict[str, list[str]]:
    """Return public class names that several modules define, with those modules."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in tree.modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module.name)
    return {name: modules for name, modules in sorted(where.items()) if len(modules) > 1}


def broad_excepts(tree: Tree) -> list[str]:
    """Return handlers outside the edges that swallow every exception, as `path:line`."""
    return [
        f"{module.path}:{node.lineno}"
        for module in tree.modules.values()
        if not str(module.path).startswith(EDGES)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _passes_on(node)
    ]


def _passes_on(handler: ast.ExceptHandler) -> bool:
    """A handler whose last statement raises only tidies up, or names the error anew."""
    return isinstance(handler.body[-1], ast.Raise)


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(n, ast.Name) and n.id in ("Exception", "BaseException") for n in names)


def crossings(tree: Tree) -> Counter[tuple[str, str]]:
    """Return how many imports lead from one package to another."""
    return Counter(
        (importer.partition(".")[0], target.partition(".")[0])
        for importer, imported in tree.imports.items()
        for target in imported
        if importer.partition(".")[0] != target.partition(".")[0]
    )


def function_lengths(tree: Tree) -> list[int]:
    """Return the physical lines of every function, docstring included."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def report(tree: Tree, root: Path) -> None:
    """Print every measure."""
    for package in PACKAGES:
        own = [m for m in tree.modules.values() if m.name.partition(".")[0] == package]
        folders = {m.path.parent for m in own}
        print(
            f"{package:10} {sum(m.lines for m in own):6} lines"
            f" {len(own):4} files {len(folders):3} folders"
        )
    files = [m.lines for m in tree.modules.values() if not m.is_package]
    functions = function_lengths(tree)
    for what, lengths in (("file", files), ("function", functions)):
        p90 = quantiles(lengths, n=10)[-1]
        print(f"{what} lines: median {median(lengths):g}, p90 {p90:g}, longest {max(lengths)}")
    fan_in = Counter(target for imported in tree.imports.values() for target in imported)
    print("imported most: " + ", ".join(f"{name} {n}" for name, n in fan_in.most_common(5)))
    for (a, b), number in sorted(crossings(tree).items()):
        print(f"imports {a} -> {b}: {number}")
    largest = sorted(folder_entries(root).items(), key=lambda item: -item[1])[:5]
    print("largest folders: " + ", ".join(f"{folder} {n}" for folder, n in largest))
    print(f"import circles: {len(circles(tree))}")
    print(f"class names with several meanings: {len(duplicate_classes(tree))}")
    broad = broad_excepts(tree)
    rate = len(broad) / _kloc(tree)
    print(f"broad excepts outside the edges: {len(broad)} ({rate:.2f} per 1,000 lines)")


def violations(tree: Tree, root: Path) -> Iterator[str]:
    """Yield a sentence for every limit that is passed."""
    yield from _too_large(tree, root)
    for component in circles(tree):
        yield "these import each other in a circle: " + ", ".join(component)
    for (importer, target), number in crossings(tree).items():
        if target == "trainer":
            yield f"{importer} imports trainer {number} times; nothing imports trainer"
    yield from _unjustified(duplicate_classes(tree))
    broad = broad_excepts(tree)
    if len(broad) / _kloc(tree) > MAX_BROAD_PER_KLOC:
        yield f"{len(broad)} broad excepts outside the edges: {', '.join(broad)}"


def _unjustified(duplicates: Mapping[str, list[str]]) -> Iterator[str]:
    for name, where in duplicates.items():
        if name not in SEVERAL_MEANINGS:
            yield f"{name} is a class of {' and '.join(where)}: rename the rarer one"
    if len(SEVERAL_MEANINGS) > MAX_SEVERAL_MEANINGS:
        yield f"more than {MAX_SEVERAL_MEANINGS} class names may have several meanings"


def _too_large(tree: Tree, root: Path) -> Iterator[str]:
    for module in tree.modules.values():
        if module.lines > MAX_LINES:
            yield f"{module.path} has {module.lines} lines; the limit is {MAX_LINES}"
    for folder, number in sorted(folder_entries(root).items()):
        limit = MORE_ENTRIES.get(folder, MAX_ENTRIES)
        if number > limit:
            yield f"{folder} has {number} entries; the limit is {limit}"


def _kloc(tree: Tree) -> float:
    return sum(module.lines for module in tree.modules.values()) / 1000


def main() -> int:
    """Print the measures; with `--check` fail on any violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    tree = read_tree(ROOT, PACKAGES)
    report(tree, ROOT)
    found = list(violations(tree, ROOT)) if arguments.check else []
    for sentence in found:
        print(f"structure: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
