"""The share of thought, from tokens and from characters."""

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import (
    Conversation,
    ConversationCall,
    ConversationTurn,
)


def _conversation(*turns: ConversationTurn) -> Conversation:
    return Conversation(
        task_key="t", env_key="booking", prompt="p", turns=turns, stop_reason=StopReason.DONE
    )


def test_the_share_counts_tokens_where_all_are_known() -> None:
    turns = (
        ConversationTurn(thinking="x" * 900, num_tokens=10, num_thinking_tokens=4),
        ConversationTurn(text="y", num_tokens=30, num_thinking_tokens=6),
    )
    assert _conversation(*turns).thinking_share == 0.25


def test_the_share_counts_characters_if_one_turn_has_no_token_counts() -> None:
    turns = (
        ConversationTurn(thinking="x" * 30, num_tokens=10, num_thinking_tokens=1),
        ConversationTurn(text="y" * 10),
    )
    assert _conversation(*turns).thinking_share == 0.75


def test_a_rollout_that_sampled_nothing_has_no_share() -> None:
    assert _conversation().thinking_share is None
    assert (
        _conversation(ConversationTurn(num_tokens=0, num_thinking_tokens=0)).thinking_share is None
    )


def test_calls_come_in_the_order_of_turns() -> None:
    first, second, third = (ConversationCall(name=name) for name in ("a", "b", "c"))
    turns = (ConversationTurn(calls=(first, second)), ConversationTurn(calls=(third,)))
    assert [call.name for call in _conversation(*turns).calls()] == ["a", "b", "c"]
