"""Scripted rollouts in the miniature apps, labelled with the failure patterns in them."""

from tests.hillclimb.stats.trajectories.labelled.agent.labels import PATTERNS
from tests.hillclimb.stats.trajectories.labelled.catalog import labelled_conversations
from tests.hillclimb.stats.trajectories.labelled.conversation import LabelledConversation

__all__ = ["PATTERNS", "LabelledConversation", "labelled_conversations"]
