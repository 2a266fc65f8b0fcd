"""Labels that follow from a rollout and the facts about it, by the definitions alone."""

from __future__ import annotations

import json
from collections import Counter

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation
from tests.hillclimb.stats.trajectories.labelled.agent.ambiguity import refuse
from tests.hillclimb.stats.trajectories.labelled.agent.facts import CallFacts, Facts, Refusal, Says
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought

PATTERNS = (
    "no_environment_response",
    "excessive_thinking",
    "cannot_signal_done",
    "tool_repetition",
    "max_turns",
    "thought_repetition",
    "hallucinated_parameter",
    "premature_done",
    "argument_validation",
    "authorization",
    "not_found",
    "false_completion",
    "context_overflow",
)


def labels(played: Conversation, facts: Facts) -> frozenset[str]:
    """Return the patterns that are present according to the definitions."""
    refusals = {call.refusal for call in facts.calls}
    is_done = played.stop_reason is StopReason.DONE
    has_failed = is_done and played.passed is False
    present = {
        "no_environment_response": _is_unanswered(played.stop_reason, facts.calls),
        "excessive_thinking": thinks_too_much(played),
        "cannot_signal_done": not is_done and _trailing_turns(played) >= 2,
        "tool_repetition": _repeats_calls(played, facts.calls),
        "max_turns": played.stop_reason is StopReason.MAX_TURNS,
        "thought_repetition": _repeats_thoughts(facts.thoughts),
        "hallucinated_parameter": any(call.invents for call in facts.calls),
        "premature_done": has_failed and sum(call.succeeded for call in facts.calls) < 2,
        "argument_validation": Refusal.ARGUMENTS in refusals,
        "authorization": Refusal.PERMISSION in refusals,
        "not_found": Refusal.MISSING in refusals,
        "false_completion": has_failed and facts.says is Says.COMPLETED,
        "context_overflow": played.stop_reason is StopReason.MAX_INPUT_LENGTH,
    }
    return frozenset(name for name in PATTERNS if present[name])


def _is_unanswered(stop: StopReason, calls: list[CallFacts]) -> bool:
    silent = [index for index, call in enumerate(calls) if not call.answered]
    ended = stop in (StopReason.ENV_ENDED, StopReason.INFRA_ERROR)
    if ended and silent == [len(calls) - 1]:
        return False
    refuse(ended and silent[-1:] == [len(calls) - 1], "the exception is for one silent call")
    return bool(calls) and 2 * len(silent) >= len(calls)


def thinks_too_much(played: Conversation) -> bool:
    """Tell whether thoughts dominate; refuse a rollout close to a limit."""
    tokens = [(turn.num_tokens, turn.num_thinking_tokens) for turn in played.turns]
    is_counted = all(None not in pair for pair in tokens)
    if is_counted:
        thoughts, limit = sum(count or 0 for _, count in tokens), 512
    else:
        thoughts, limit = sum(len(turn.thinking) for turn in played.turns), 2048
    share = played.thinking_share or 0.0
    is_long, is_dominant = thoughts / limit, share / 0.75
    far = (is_long < 0.9 or is_long > 1.1, is_dominant < 0.93 or is_dominant > 1.06)
    is_clear = all(far) or (far[0] and is_long < 1) or (far[1] and is_dominant < 1)
    refuse(not is_clear, f"{thoughts} of {limit}, share {share:.2f}")
    return is_long >= 1 and is_dominant >= 1


def _trailing_turns(played: Conversation) -> int:
    count = 0
    for turn in reversed(played.turns):
        if turn.calls or turn.says_done:
            break
        count += 1
    return count


def _repeats_calls(played: Conversation, facts: list[CallFacts]) -> bool:
    num_unreadable = sum(not call.is_readable for call in facts)
    refuse(num_unreadable >= 3, "calls that cannot be read may count as equal")
    answers: Counter[tuple[str, str, str | None]] = Counter()
    for call, known in zip(played.calls(), facts, strict=True):
        if known.is_readable:
            arguments = json.dumps(dict(call.arguments), sort_keys=True)
            answer = call.answer if known.answered else None
            answers[call.name or "", arguments, answer] += 1
    return max(answers.values(), default=0) >= 3


def _repeats_thoughts(thoughts: list[Thought]) -> bool:
    whole = Counter(thought.normal for thought in thoughts)
    parts = Counter(part for thought in thoughts for part in thought.parts())
    for text, count in whole.items():
        refuse(count >= 3 and 18 < len(text) < 26, f"a thought of about 20 characters: {text}")
    for text, count in parts.items():
        refuse(count >= 5 and 36 < len(text) < 46, f"a sentence of about 40 characters: {text}")
    return any(count >= 3 and len(text) >= 20 for text, count in whole.items()) or any(
        count >= 5 and len(text) >= 40 for text, count in parts.items()
    )
