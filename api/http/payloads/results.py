"""Builds the payloads of a run's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.results.artifacts.rollouts.tokens import NUM_LARGEST, TokenReport
from api.tables import OutcomeRecord
from hillclimb.protocol.payloads.results.reports import DecodingComparison, ReportPayload
from hillclimb.protocol.payloads.results.rollouts import (
    TokenLearner,
    TokenPage,
    TokenPayload,
    TokenTurn,
)
from hillclimb.stats.trajectories.tokens import TokenFacts, TurnOfTokens


def describe_report(facts: Mapping[str, Any]) -> ReportPayload:
    """Return the report of these facts; a decoding with the name of a field has no comparison."""
    decodings = [name for name in facts["decodings"] if name not in ReportPayload.model_fields]
    comparisons = {name: DecodingComparison.of(facts[name]) for name in decodings}
    return ReportPayload.model_validate({**facts, **comparisons})


def token_page(
    outcome: OutcomeRecord, report: TokenReport, *, turn: int | None, start: int, limit: int
) -> TokenPage:
    """Return at most `limit` tokens from the position `start` on, of one turn or of all."""
    tokens = report.tokens
    turns = tokens.in_turns()
    chosen = [each for each in turns if turn in (None, each.turn)]
    first = max(start, chosen[0].start) if chosen else 0
    end = chosen[-1].end if chosen else 0
    until = min(first + limit, end)
    return TokenPage(
        run_id=outcome.run_id,
        rollout_id=outcome.rollout_id,
        step=outcome.step,
        num_tokens=len(tokens.token_ids),
        has_texts=tokens.vocabulary is not None,
        learner=_token_learner(report),
        turns=[_token_turn(each) for each in turns],
        largest_gaps=[_token(each) for each in tokens.largest_gaps(NUM_LARGEST)],
        data=[_token(each) for each in tokens.facts(first, until)],
        next_start=until if until < end else None,
    )


def _token_learner(report: TokenReport) -> TokenLearner:
    values = report.values
    if values is None:
        return TokenLearner(state=report.state, sentence=report.sentence)
    return TokenLearner(
        state=report.state,
        sentence=report.sentence,
        version=values.version,
        num_updates=values.num_updates,
        advantage=values.advantage,
    )


def _token(facts: TokenFacts) -> TokenPayload:
    text = facts.text
    return TokenPayload(
        position=facts.position,
        token_id=facts.token_id,
        text=text if isinstance(text, str) else None,
        bytes_hex=text.hex() if isinstance(text, bytes) else None,
        turn=facts.turn,
        is_drawn=facts.is_drawn,
        engine_logprob=facts.engine_logprob,
        learner_logprob=facts.learner_logprob,
        gap=facts.gap,
        entropy=facts.entropy,
        weight_version=facts.weight_version,
    )


def _token_turn(turn: TurnOfTokens) -> TokenTurn:
    return TokenTurn(
        turn=turn.turn,
        start=turn.start,
        num_tokens=turn.end - turn.start,
        num_drawn=turn.num_drawn,
        mean_abs_gap=turn.mean_abs_gap,
        max_abs_gap=turn.max_abs_gap,
        mean_entropy=turn.mean_entropy,
        weight_versions=list(turn.weight_versions),
    )
