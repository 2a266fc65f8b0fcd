"""Contents of the page of a rollout's tokens, and of its part: the tokens of one turn."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from api.http.dashboard.run.measures import LABELS, Marking
from api.http.dashboard.run.rollouts import rollout_address, tokens_address
from api.results.artifacts.rollouts.tokens import NUM_LARGEST, TokenReport
from api.tables import OutcomeRecord, Run
from hillclimb.stats.trajectories.tokens import Text, TokenFacts, TurnOfTokens

TOKENS_PER_PART = 500
"""Tokens of a turn that are drawn at once; a link leads to those after them."""
_SPACES = {"\n": "↵\n", "\r": "␍", "\t": "⇥\t"}
_HIDDEN = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp", "Cs")
"""Categories of Unicode that draw nothing, or change how other characters are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """Turn, first position and measure of a page of tokens."""

    measure: str = "gap"
    turn: int | None = None
    """None: the first turn of the model."""
    start: int = 0
    """Position of the first token; before the turn's first one it is that one."""


def tokens_contents(
    run: Run, outcome: OutcomeRecord, report: TokenReport, choice: TokenChoice
) -> dict[str, Any]:
    """Return the page: what the learner says, the largest gaps, the turns, and one turn in full."""
    address = tokens_address(run.id, outcome.rollout_id)
    turns = report.tokens.in_turns()
    starts = {each.turn: each.start for each in turns}
    return {
        "run": run,
        "outcome": outcome,
        "rollout_address": rollout_address(run.id, outcome.rollout_id),
        "address": address,
        "num_tokens": len(report.tokens.token_ids),
        "sentence": report.sentence,
        "advantage": None if report.values is None else report.values.advantage,
        "has_texts": report.tokens.vocabulary is not None,
        "num_largest": NUM_LARGEST,
        "largest": [
            _row(token) | {"href": _place(address, choice, token, starts[token.turn])}
            for token in report.tokens.largest_gaps(NUM_LARGEST)
        ],
        "turns": [_turn(each, address, choice) for each in turns],
        **part_contents(run, outcome, report, choice),
        "is_page": True,
    }


def part_contents(
    run: Run, outcome: OutcomeRecord, report: TokenReport, choice: TokenChoice
) -> dict[str, Any]:
    """Return the tokens of one turn: at most `TOKENS_PER_PART` of them."""
    address = tokens_address(run.id, outcome.rollout_id)
    turns = report.tokens.in_turns()
    turn = _chosen(turns, choice)
    start = end = until = 0
    if turn is not None:
        start, end = max(choice.start, turn.start), turn.end
        until = min(start + TOKENS_PER_PART, end)
    tokens = list(report.tokens.facts(start, until))
    versions = sorted({version for each in turns for version in each.weight_versions})
    marking = Marking(measure=choice.measure, versions=versions)
    number = None if turn is None else turn.turn
    return {
        "is_page": False,
        "turn": number,
        "measure": choice.measure,
        "missing": _missing(choice.measure, report),
        "measures": [
            {"name": name, "label": label, "href": _href(address, name, number, start)}
            for name, label in LABELS.items()
        ],
        "legend": marking.legend(),
        "marked": _marked(tokens, marking),
        "rows": [_row(token) for token in tokens],
        "following": _href(address, choice.measure, number, until) if until < end else None,
        "num_left": end - until,
    }


def visible(text: Text | None, token_id: int) -> str:
    """Return a token as a page writes it: nothing in it is invisible or changes other text."""
    if text is None:
        return f"⟨{token_id}⟩"
    if isinstance(text, bytes):
        return f"⟨{text.hex(' ')}⟩"
    return "".join(_visible(character) for character in text) or "⟨⟩"


def _visible(character: str) -> str:
    if character in _SPACES:
        return _SPACES[character]
    if unicodedata.category(character) in _HIDDEN:
        return f"⟨U+{ord(character):04X}⟩"
    return character


def _chosen(turns: list[TurnOfTokens], choice: TokenChoice) -> TurnOfTokens | None:
    if choice.turn is None:
        return next((each for each in turns if each.turn > 0), turns[0] if turns else None)
    return next((each for each in turns if each.turn == choice.turn), None)


def _missing(measure: str, report: TokenReport) -> str | None:
    """Return why no token has a value of the measure, or None where they have."""
    tokens = report.tokens
    values = {
        "gap": tokens.gaps,
        "entropy": tokens.entropies,
        "probability": tokens.logprobs,
        "version": tokens.versions,
    }
    if values.get(measure, ()) is not None:
        return None
    return report.sentence if measure in ("gap", "entropy") else "The trajectory has none of these."


def _marked(tokens: list[TokenFacts], marking: Marking) -> list[dict[str, Any]]:
    previous = [None, *tokens]
    return [
        {
            "position": token.position,
            "text": visible(token.text, token.token_id),
            "level": marking.level(token),
            "is_drawn": token.is_drawn,
            "spoken": marking.spoken(token, before),
            "facts": _sentence(token),
        }
        for token, before in zip(tokens, previous, strict=False)
    ]


def _sentence(token: TokenFacts) -> str:
    """Return a token's figures in one line."""
    name = visible(token.text, token.token_id).strip()
    parts = [f"{token.position}: {name}", f"id {token.token_id}"]
    if not token.is_drawn:
        return " · ".join([*parts, "not drawn"])
    figures = {
        "engine": _number(token.engine_logprob),
        "learner": _number(token.learner_logprob),
        "gap": _number(token.gap),
        "entropy": _number(token.entropy),
        "version": token.weight_version,
    }
    return " · ".join(
        [*parts, *(f"{label} {value}" for label, value in figures.items() if value is not None)]
    )


def _row(token: TokenFacts) -> dict[str, Any]:
    return {
        "position": token.position,
        "turn": token.turn,
        "token_id": token.token_id,
        "text": visible(token.text, token.token_id).strip() or "␠",
        "is_drawn": token.is_drawn,
        "engine": _number(token.engine_logprob),
        "learner": _number(token.learner_logprob),
        "gap": _number(token.gap),
        "entropy": _number(token.entropy),
        "version": token.weight_version,
    }


def _turn(turn: TurnOfTokens, address: str, choice: TokenChoice) -> dict[str, Any]:
    return {
        "turn": turn.turn,
        "href": _href(address, choice.measure, turn.turn, None),
        "num_tokens": turn.end - turn.start,
        "num_drawn": turn.num_drawn,
        "mean_gap": _number(turn.mean_abs_gap),
        "max_gap": _number(turn.max_abs_gap),
        "mean_entropy": _number(turn.mean_entropy),
        "versions": ", ".join(map(str, turn.weight_versions)),
    }


def _number(value: float | None) -> str | None:
    """Return a number with three digits; the shortest way of writing it that has them."""
    # Adding 0 makes -0 a plain 0.
    return None if value is None else f"{value + 0.0:.3g}"


def _place(address: str, choice: TokenChoice, token: TokenFacts, turn_start: int) -> str:
    """Return the address of a token: its turn, from the part on that has it."""
    num_before = (token.position - turn_start) // TOKENS_PER_PART * TOKENS_PER_PART
    href = _href(address, choice.measure, token.turn, turn_start + num_before)
    return f"{href}#t{token.position}"


def _href(address: str, measure: str, turn: int | None, start: int | None) -> str:
    query = {"turn": turn, "start": start, "measure": measure}
    return f"{address}?{urlencode({k: v for k, v in query.items() if v is not None})}"
