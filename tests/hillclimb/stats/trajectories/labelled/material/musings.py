"""Thoughts of a policy: sentences that never repeat within one rollout."""

from __future__ import annotations

import random

from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought

_OPENINGS = (
    "So far I know that",
    "From the last answer it follows that",
    "If I read the request correctly,",
    "Let me keep in mind that",
    "It seems likely that",
    "Before I change anything,",
    "On second thought,",
    "To be on the safe side,",
    "Judging by the list,",
    "As the user put it,",
    "Since there may be a rule about this,",
    "Unless I am mistaken,",
    "Looking at this again,",
    "For the next step",
    "Hmm, perhaps",
    "Actually",
)
_CLAUSES = (
    "the first entry is the one that was meant",
    "the name has to match the wording of the task",
    "I should look it up before I act on it",
    "the identifier comes from the search and from nowhere else",
    "one more reading will settle which entry to take",
    "the order of the results matters here",
    "the date in the request is not a default",
    "the other entry only looks similar",
    "the app will refuse a change that breaks a rule",
    "I can leave the remaining fields as they are",
    "the person in question is the one who is logged in",
    "the amount must be exactly the one that was asked for",
    "there is no need to touch the second entry",
    "the list may be shorter than the whole data",
    "a wrong entry would be hard to undo",
    "the search is by name and not by number",
    "nothing else in the request depends on it",
    "the title has to be written as it was given",
)
_ENDINGS = (
    "",
    ", which keeps the change small",
    ", so a lookup comes first",
    ", and then the rest is simple",
    ", as far as the answers show",
    ", whatever the other rows say",
    ", though I have not verified that yet",
    ", because the task asks for nothing more",
    ", and I will check it once",
    ", if the state is what I think it is",
    ", before anything is saved",
    ", given what the tools can do",
)


class Musings:
    """Sentences of one rollout, each of them new."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._used: set[str] = set()

    def thought(self, sentences: int, joint: str = " ") -> Thought:
        """Return a thought of so many new sentences."""
        return Thought(tuple(self._sentence() for _ in range(sentences)), joint)

    def _sentence(self) -> str:
        while True:
            parts = (self._rng.choice(pool) for pool in (_OPENINGS, _CLAUSES, _ENDINGS))
            opening, clause, ending = parts
            sentence = f"{opening} {clause}{ending}."
            if sentence not in self._used:
                self._used.add(sentence)
                return sentence
