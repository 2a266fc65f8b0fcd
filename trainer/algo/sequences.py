"""Training data of the learner: token sequences in mini-batches. Legend: T tokens of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.types import Routes


@dataclass(frozen=True, slots=True)
class LossCounts:
    """Denominators of a mini-batch's loss."""

    num_sequences: int
    num_actions: int
    """Tokens that the policy drew, in all of these sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSequence:
    """One rollout, or one turn of it, as the learner sees it.

    `token_ids`, `action_mask`, `logprobs` are all [T].
    """

    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    """True where the policy drew the token: these, and only these, enter the loss."""
    logprobs: tuple[float, ...]
    """Behaviour log-probs as sampled (at `temperature`); 0.0 outside the action mask."""
    prompt_length: int
    """Tokens before the first turn: equal for all rollouts of a prompt, so computed once."""
    advantage: float
    temperature: float
    weight_versions: tuple[int, ...] = ()
    """[T], of the weights that drew each token; empty where they are those of the step."""
    rollout_id: str = ""
    """Id of the rollout that it is or belongs to; empty for a demonstration."""
    loss_counts: LossCounts | None = None
    """Denominators of its mini-batch, rollouts without a gradient included
    (`algorithm.normalize_by: batch`); None: those of the mini-batch's own sequences."""
    routes: Routes | None = field(default=None, compare=False, repr=False)
    """Experts that computed its tokens in the engine, of all but perhaps the last; None: the
    learner's router chooses."""

    def is_current(self, at: int, version: int) -> bool:
        """Tell whether the weights `version` drew the token at this place."""
        return not self.weight_versions or self.weight_versions[at] == version

    @property
    def num_actions(self) -> int:
        """Number of tokens that enter the loss."""
        return sum(self.action_mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceValues:
    """The learner's values of a sequence's action tokens, as it computed them for its update.

    Both arrays are little-endian float16, one number per action token. A log-prob itself would lose
    its third digit in float16; its difference from the engine's keeps three at any size.
    """

    rollout_id: str
    length: int
    """Tokens of the sequence: tells the turns of a rollout apart where each is a sequence."""
    gaps: bytes
    """Log-prob of the learner less that of the engine that drew the token (nats)."""
    entropies: bytes | None
    """Entropy of the learner's distribution (nats); None: a server that returns only log-probs."""
    num_updates: int
    """Updates of the step that the scoring policy had taken (count); 0: the policy that the step
    began with. Where the loss scores by that one (`off_policy_correction`), so do the gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Training data of one step: per mini-batch the sequences that carry a gradient."""

    mini_batches: tuple[tuple[TrainingSequence, ...], ...]
    """Split by prompt; mini-batches left without a sequence are not in the list."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Signal of the rollouts, under the names of SkyRL."""

    @property
    def num_sequences(self) -> int:
        """Sequences over all mini-batches."""
        return sum(len(mini_batch) for mini_batch in self.mini_batches)
