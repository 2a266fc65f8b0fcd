"""A Dockerfile as a build reads it: stages, what each inherits, and what its commands do."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stage:
    """One image: its instructions, those of the stages that it begins from first."""

    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]

    @property
    def environment(self) -> dict[str, str]:
        words = [word for value in self.values("ENV") for word in shlex.split(value)]
        return dict(word.split("=", 1) for word in words)

    @property
    def user(self) -> str:
        return ["root", *self.values("USER")][-1]

    @property
    def command(self) -> list[str]:
        command: list[str] = json.loads(self.values("CMD")[-1])
        return command

    @property
    def copied(self) -> Iterator[str]:
        """Paths of the build context."""
        for value in self.values("COPY"):
            yield from value.split()[:-1]

    @property
    def commands(self) -> Iterator[list[str]]:
        """Each command that the build runs, as its words."""
        for value in self.values("RUN"):
            for command in re.split(r"&&|;", value):
                yield shlex.split(command)

    def owner_of(self, folder: str) -> str | None:
        """The owner of a folder that `install -d` makes; None where no command makes it."""
        for words in self.commands:
            if words[:2] == ["install", "-d"] and folder in words:
                return words[words.index("-o") + 1] if "-o" in words else "root"
        return None

    @property
    def pip_installs(self) -> list[list[str]]:
        """Arguments of each `pip install`, without options that say how and not what."""
        return [pip_arguments(words) for words in self.commands if words[:2] == ["pip", "install"]]


def pip_arguments(words: list[str]) -> list[str]:
    """What a `pip install` installs from where."""
    after = words[words.index("install") + 1 :]
    how = ("--no-cache-dir", "--quiet", "--disable-pip-version-check", "--no-compile")
    return [word for word in after if word not in how]


def stages(text: str) -> dict[str, Stage]:
    """The stages of a Dockerfile by name."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M))
    named: dict[str, Stage] = {}
    stage = Stage()
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, _, value = line.partition(" ")
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            stage = Stage(list(named[base].instructions) if base in named else [])
            named[name] = stage
        else:
            stage.instructions.append((instruction, value.strip()))
    return named
