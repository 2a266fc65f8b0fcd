"""A thought as its sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thought:
    """Sentences of a thought, so that nobody has to split its text."""

    sentences: tuple[str, ...]
    joint: str = " "

    def __post_init__(self) -> None:
        for sentence in self.sentences:
            assert not re.search(r"[.!?]\s|\n", sentence.strip()), sentence

    @property
    def text(self) -> str:
        return self.joint.join(self.sentences)

    @property
    def normal(self) -> str:
        """The text without regard to case and white space."""
        return " ".join(self.text.casefold().split())

    def parts(self) -> Iterator[str]:
        """Yield every sentence, and every line that is not a sentence."""
        whole = {" ".join(each.casefold().split()) for each in self.sentences}
        yield from (" ".join(each.casefold().split()) for each in self.sentences)
        for line in self.text.splitlines():
            normal = " ".join(line.casefold().split())
            if normal not in whole:
                yield normal


NO_THOUGHT = Thought(())
