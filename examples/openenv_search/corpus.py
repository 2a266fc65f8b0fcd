"""A closed library of pages made from a seed, and questions that take two or three of them.

Train and eval have libraries of their own: no person, firm, town or river is in both.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

NUM_FIRMS = 300
"""Of a library; each is asked about in three ways."""
NUM_HITS = 5
"""Pages that a search lists at the most."""
_SYLLABLES = {
    "train": ("bar", "del", "fin", "gor", "hul", "kam", "lod", "mer", "nis", "pol"),
    "eval": ("ash", "bru", "cer", "dov", "eck", "jun", "orm", "tav", "urs", "wyn"),
}


@dataclass(frozen=True)
class Page:
    """A page by its title and text."""

    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """What is asked, and the one right answer."""

    text: str
    answer: str


@dataclass(frozen=True)
class Library:
    """The pages by id and the questions, in a fixed order."""

    pages: dict[str, Page]
    questions: tuple[Question, ...]

    @staticmethod
    @cache
    def of(split: str) -> Library:
        """Return the library of `train` or `eval`."""
        return _made(random.Random(f"library/{split}"), _SYLLABLES[split])

    def question(self, seed: int) -> Question:
        """Return the question of a seed; 900 seeds in a row have one each."""
        return self.questions[seed % len(self.questions)]

    def search(self, query: str) -> str:
        """Return ids and titles of the pages that share most words with a query."""
        wanted = set(_words(query))
        found = [
            (len(wanted & set(_words(page.title))), len(wanted & set(_words(page.text))), page_id)
            for page_id, page in self.pages.items()
        ]
        best = sorted((hit for hit in found if any(hit[:2])), key=lambda h: (-h[0], -h[1], h[2]))
        hits = [f"{page_id}: {self.pages[page_id].title}" for _, _, page_id in best[:NUM_HITS]]
        return "\n".join(hits) or "nothing found"

    def read(self, page_id: str) -> str:
        """Return a page."""
        page = self.pages.get(page_id.strip())
        return f"{page.title}. {page.text}" if page else f"no page {page_id}"


def matches(given: str, right: str) -> bool:
    """Whether an answer is the right one, whatever its case, spaces and full stops."""
    return _words(given) == _words(right)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _made(rng: random.Random, syllables: tuple[str, ...]) -> Library:
    names = [a + b + c for a in syllables for b in syllables for c in syllables]
    rng.shuffle(names)
    taken = iter(names)
    rivers = [next(taken).capitalize() for _ in range(20)]
    towns = {next(taken).capitalize(): rng.choice(rivers) for _ in range(40)}
    texts = {town: f"{town} is a town on the river {river}." for town, river in towns.items()}
    questions = []
    for _ in range(NUM_FIRMS):
        firm, founder = f"{next(taken).capitalize()} Works", f"Ada {next(taken).capitalize()}"
        home, birthplace = rng.sample(sorted(towns), 2)
        texts[firm] = f"{firm} was founded in {home} by {founder}."
        texts[founder] = f"{founder} was born in {birthplace}."
        questions += [
            Question(f"Where was the founder of {firm} born?", birthplace),
            Question(f"On which river is the town where {firm} was founded?", towns[home]),
            Question(
                f"On which river is the town where the founder of {firm} was born?",
                towns[birthplace],
            ),
        ]
    rng.shuffle(questions)
    titles = sorted(texts)
    rng.shuffle(titles)
    pages = {f"p{number}": Page(title, texts[title]) for number, title in enumerate(titles)}
    return Library(pages, tuple(questions))
