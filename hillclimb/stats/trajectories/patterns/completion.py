"""Rollouts that say they are done, and have failed."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.errors.kinds import unquoted
from hillclimb.stats.trajectories.errors.wording import any_of
from hillclimb.stats.trajectories.patterns.pattern import Evidence
from hillclimb.stats.trajectories.patterns.refusals import kind_of
from hillclimb.stats.trajectories.patterns.responses import is_answered

MIN_CALLS = 2
_HEDGING = any_of(
    (
        r"\b(?:could|can|did|does|do|was|were|is|are|has|have|had|would|should|will|may|"
        r"might)(?: not|n't)\b"
    ),
    r"\bca(?:n't|nnot)\b",
    r"\bwon't\b",
    r"\bunable\b",
    r"\bfail(?:ed|s|ure|ing)?\b",
    r"\bunsuccessful",
    r"\bimpossible\b",
    r"\bonly part",
    r"\bpart(?:ly|ial|ially)\b",
    r"\bincomplete\b",
    r"\bunfinished\b",
    (
        r"\bnot (?:sure|certain|able|possible|complete\w{0,2}|done|finished|successful\w{0,2}|"
        r"confident|yet|all|everything)\b"
    ),
    r"\bunsure\b",
    r"\buncertain\b",
    r"\bgave up\b",
    r"\bgiv(?:e|ing) up\b",
    r"\bsorry\b",
    r"\bapologi[sz]e",
    r"\bunfortunately\b",
    r"\bno luck\b",
    r"\bregret",
    r"\bcouldnt\b",
    r"\bwithout success\b",
    r"\bstuck\b",
    r"\bi am afraid\b",
    r"\bi'm afraid\b",
    r"\bno way to\b",
    r"\bstill (?:missing|open|pending|to do|unresolved)\b",
    r"\bremains? (?:undone|open|unresolved|to be done)",
    r"\bprobably\b",
    r"\bperhaps\b",
    r"\bmaybe\b",
    r"\bi (?:think|guess|hope|believe|assume)\b",
    r"\bnot been\b",
    r"\bbut not\b",
    r"\bnever\b",
    r"\bdoubt",
)


_CLAIM = any_of(
    (
        r"\b(?:done|complete[d]?|completion|finished|succe(?:ss|ssful|ssfully|eded)|accomplished|"
        r"fulfilled|all set|taken care of|carried out|wrapped up|resolved|solved|achieved|"
        r"handled|sorted|ready|booked|reserved|created|closed|sent|updated|added|deleted|removed|"
        r"cancel+ed|scheduled|assigned|posted|submitted|placed|confirmed|moved|renamed|changed|"
        r"marked|saved|set|labell?ed|replied|purchased|bought|made|invited|forwarded|archived|"
        r"logged|merged|opened|published|ordered|registered|recorded|transferred|processed|"
        r"applied|worked|paid|secured|in place|did (?:exactly|what|as|it|so|everything|the)|"
        r"as (?:you )?(?:asked|requested|instructed|wanted|wished)|everything is|it is all|"
        r"mission)\b"
    ),
    r"\u2705",
    r"\u2714",
)


def premature_done(conversation: Conversation) -> Evidence | None:
    """It said done and failed, with fewer than two successful calls."""
    if not _failed_as_done(conversation):
        return None
    successes = [
        call for call in conversation.calls() if is_answered(call) and kind_of(call) is None
    ]
    if len(successes) >= MIN_CALLS:
        return None
    return Evidence.at(
        (len(conversation.turns) - 1,), f"done after {len(successes)} successful calls"
    )


def false_completion(conversation: Conversation) -> Evidence | None:
    """It said done and failed, and its last words claim that the task is completed."""
    if not _failed_as_done(conversation) or not conversation.turns:
        return None
    text = conversation.turns[-1].text
    plain = unquoted(" ".join(text.casefold().replace("\u2019", "'").split()))
    if not _CLAIM.search(plain) or _HEDGING.search(plain):
        return None
    return Evidence.at((len(conversation.turns) - 1,), text)


def _failed_as_done(conversation: Conversation) -> bool:
    return conversation.stop_reason is StopReason.DONE and conversation.passed is False
