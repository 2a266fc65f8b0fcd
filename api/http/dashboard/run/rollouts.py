"""Contents of the pages of rollouts: groups in a list, one rollout turn by turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any
from urllib.parse import quote, urlencode

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.results.artifacts.rollouts.groups import RolloutGroup, list_groups, siblings
from api.results.artifacts.trajectories import TrajectoryFilters, outcome_facts, pass_threshold
from api.results.evals.failures import MEANINGS
from api.tables import Eval, OutcomeRecord, Run
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory
from hillclimb.stats.trajectories.conversation import ConversationCall, ConversationTurn
from hillclimb.stats.trajectories.patterns.registry import PATTERNS
from hillclimb.stats.trajectories.stored import conversation_of

GROUPS_PER_PAGE = 50
MAX_CALL_CHARS = 90
"""Characters of a call's arguments that its folded line shows."""
MAX_PART_CHARS = 100_000
"""Characters of one part of a turn that the page shows; the API has all of them."""
OUTCOMES: dict[str, dict[str, Any]] = {
    "failed": {"failed": True},
    "passed": {"failed": False},
    "ungraded": {"status": OutcomeStatus.UNGRADED.value},
    "infra_error": {"status": OutcomeStatus.INFRA_ERROR.value},
}
"""The choices of the outcome filter, with the filters that they set."""


def rollouts_contents(
    session: Session, run: Run, chosen: Mapping[str, Any], page: int
) -> dict[str, Any]:
    """Return one page of groups; `chosen` has the form's fields by name, empty ones left out."""
    fields = {name: value for name, value in chosen.items() if name != "outcome"}
    filters = TrajectoryFilters(**fields, **OUTCOMES.get(chosen.get("outcome", ""), {}))
    offset = (page - 1) * GROUPS_PER_PAGE
    groups = list_groups(session, run, filters, offset=offset, limit=GROUPS_PER_PAGE + 1)
    threshold = pass_threshold(run)
    return {
        "chosen": chosen,
        "groups": [_group(run, group, threshold) for group in groups[:GROUPS_PER_PAGE]],
        "page": page,
        "query": urlencode(chosen),
        "has_more": len(groups) > GROUPS_PER_PAGE,
        "env_keys": list(run.spec["data"]["env_keys"]),
        "decodings": _decodings(session, run),
        "outcomes": {name: name.replace("_", " ") for name in OUTCOMES}
        | {"ungraded": "without a grade"},
        "patterns": {name: pattern.definition for name, pattern in PATTERNS.items()},
    }


def rollout_contents(
    session: Session, run: Run, outcome: OutcomeRecord, trajectory: StoredTrajectory | None
) -> dict[str, Any]:
    """Return a rollout as plain values; `trajectory` is null where its file is not in the store."""
    facts = outcome_facts(outcome, threshold=pass_threshold(run))
    return {
        "run": run,
        "facts": facts,
        "address": rollout_address(run.id, outcome.rollout_id),
        "tokens_address": tokens_address(run.id, outcome.rollout_id),
        "verdict": _word(facts),
        "tone": _TONES[_word(facts)],
        "why": _why(facts),
        "patterns": [
            {"name": name, "definition": PATTERNS[name].definition if name in PATTERNS else ""}
            for name in outcome.patterns or ()
        ],
        "searched": outcome.patterns is not None,
        "siblings": [_mark(run, each, pass_threshold(run)) for each in siblings(session, outcome)],
        "conversation": None if trajectory is None else _conversation(run, trajectory),
    }


def pair_sentence(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return where two rollouts, as `rollout_contents` returns them, first differ."""
    if first["facts"]["task_key"] != second["facts"]["task_key"]:
        return "These are rollouts of two tasks."
    a, b = first["conversation"], second["conversation"]
    if a is None or b is None:
        return "Where they differ is not known: a conversation is not in the store."
    pairs = zip_longest(map(_utterance, a["turns"]), map(_utterance, b["turns"]))
    differing = next((number for number, (x, y) in enumerate(pairs, start=1) if x != y), None)
    if differing is None:
        return "The policy said and called the same in every turn."
    if differing == 1:
        return "They differ from the first turn on."
    alike = "turn 1 is" if differing == 2 else f"turns 1 to {differing - 1} are"
    return f"They differ from turn {differing} on: {alike} the same."


def _utterance(turn: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what the policy did in a turn, without what the environment answered."""
    calls = [(call["name"], call["arguments"]) for call in turn["calls"]]
    return (turn["thinking"], turn["text"], calls, turn["says_done"])


def rollout_address(run_id: str, rollout_id: str) -> str:
    """Return the path of a rollout's page."""
    return f"/runs/{run_id}/rollouts/{quote(rollout_id)}"


def tokens_address(run_id: str, rollout_id: str) -> str:
    """Return the path of the page of a rollout's tokens."""
    return f"/runs/{run_id}/tokens/{quote(rollout_id)}"


def _group(run: Run, group: RolloutGroup, threshold: float) -> dict[str, Any]:
    step, attempt, split, decoding, env_key, task_key = group.key
    marks = [_mark(run, each, threshold) for each in group.rollouts]
    graded = [each for each in marks if each["score"] is not None]
    passed = [each for each in graded if each["word"] == "passed"]
    return {
        "step": step,
        "attempt": attempt,
        "split": split,
        "decoding": decoding,
        "env_key": env_key,
        "task_key": task_key,
        "num_rollouts": group.num_rollouts,
        "num_graded": len(graded),
        "num_passed": len(passed),
        "marks": marks,
        "patterns": sorted({name for each in group.rollouts for name in each.patterns or ()}),
    }


def _mark(run: Run, outcome: OutcomeRecord, threshold: float) -> dict[str, Any]:
    facts = outcome_facts(outcome, threshold=threshold)
    word = _word(facts)
    return {
        "id": outcome.rollout_id,
        "sample": outcome.sample_index,
        "score": outcome.score,
        "word": word,
        "tone": _TONES[word],
        "sign": _SIGNS[word],
        "address": rollout_address(run.id, outcome.rollout_id),
        "why": _why(facts),
    }


_TONES = {"passed": "good", "failed": "bad", "no grade": "warn", "infra error": "warn"}
_SIGNS = {"passed": "✓", "failed": "✗", "no grade": "?", "infra error": "!"}


def _word(facts: Mapping[str, Any]) -> str:
    if facts["status"] == OutcomeStatus.INFRA_ERROR:
        return "infra error"
    if facts["passed"] is None:
        return "no grade"
    return "passed" if facts["passed"] else "failed"


def _why(facts: Mapping[str, Any]) -> str:
    """Return in words why a rollout failed or has no grade; empty for one that passed."""
    if facts["passed"]:
        return ""
    cause = f"The policy {MEANINGS[facts['cause']]}." if facts["cause"] in MEANINGS else ""
    reason = facts["reason"] or ""
    detail = facts["detail"] or ""
    sentence = f"{reason}: {detail}" if reason and detail else reason or detail
    return f"{cause} {sentence}".strip()


def _decodings(session: Session, run: Run) -> list[str]:
    names = session.scalars(select(Eval.decoding).where(Eval.run_id == run.id).distinct()).all()
    return ["train", *sorted(names)]


def _conversation(run: Run, trajectory: StoredTrajectory) -> dict[str, Any]:
    conversation = conversation_of(trajectory, pass_threshold=pass_threshold(run))
    return {
        "prompt": _cut(conversation.prompt),
        "env_variables": sorted(conversation.env_variables.items()),
        "turns": [_turn(turn) for turn in conversation.turns],
        "num_errors": sum(call.is_error for call in conversation.calls()),
    }


def _turn(turn: ConversationTurn) -> dict[str, Any]:
    return {
        "thinking": _cut(turn.thinking),
        "text": _cut(turn.text),
        "calls": [_call(call) for call in turn.calls],
        "says_done": turn.says_done,
        "reply": None if turn.reply is None else _cut(turn.reply),
        "num_tokens": turn.num_tokens,
        "num_thinking_tokens": turn.num_thinking_tokens,
    }


def _call(call: ConversationCall) -> dict[str, Any]:
    pairs = [f"{name}={_short(value)}" for name, value in call.arguments.items()]
    line = ", ".join(pairs)
    return {
        "name": call.name or "unreadable call",
        "line": line if len(line) <= MAX_CALL_CHARS else line[: MAX_CALL_CHARS - 1] + "…",
        "arguments": _cut(json.dumps(dict(call.arguments), indent=2, ensure_ascii=False)),
        "answer": None if call.answer is None else _cut(_pretty(call.answer)),
        "is_error": call.is_error,
    }


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pretty(answer: str) -> str:
    """Return an answer that is JSON with line breaks, another as it is."""
    try:
        return json.dumps(json.loads(answer), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return answer


def _cut(text: str) -> str:
    if len(text) <= MAX_PART_CHARS:
        return text
    return f"{text[:MAX_PART_CHARS]}\n… {len(text) - MAX_PART_CHARS:,} more characters"
