"""Memory of one rank of the learner: what `trainer.learners` holds, and when.

The formulas are those of the code named beside each; `tests/trainer/learners/test_estimate.py`
compares them with torch's own account of that code. Legend: N ranks, T packed tokens of one pass,
L layers, D hidden size, I intermediate size, W width of all query heads, U of all key/value heads,
V vocabulary, b bytes of a number in forward and backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.contract.algorithm import AlgorithmSpec
from trainer.contract.clusters.arithmetic import GIB, Phase, Term, count
from trainer.contract.clusters.shapes import ModelShape
from trainer.contract.sections import LearnerSpec

CONTEXT_BYTES = 2 * GIB
"""Assumed, not measured: CUDA's context, NCCL's buffers and libraries' work space of a process."""
SLACK = 0.05
"""Assumed, not measured: what the allocator loses of memory that comes and goes."""
PIECE_BYTES = GIB
"""`trainer.weights.pieces.PIECE_BYTES`: weights on their way to engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    """One rank of `num_ranks`; every property is of that one."""

    shape: ModelShape
    learner: LearnerSpec
    algorithm: AlgorithmSpec
    num_ranks: int
    max_sequence_length: int
    by_pieces: bool
    """Whether weights go to engines by `ipc` or `nccl`."""
    on_gpu: bool = True

    @property
    def dtype_bytes(self) -> int:
        """Bytes of a number in forward and backward pass."""
        return 2 if self.learner.policy_dtype == "bfloat16" else 4

    @property
    def tokens(self) -> int:
        """Packed tokens of the longest pass: a sequence is never cut (`partition`)."""
        return max(self.learner.max_micro_tokens, self.max_sequence_length)

    @property
    def num_trained(self) -> int:
        """Parameters with a gradient."""
        lora = self.learner.lora
        if lora is None:
            return self.shape.num_parameters
        return self.shape.adapter_parameters(lora.rank, lora.target_modules)

    @property
    def has_reference(self) -> bool:
        """Whether a second policy is held (`build_models`); adapters are switched off instead."""
        return self.algorithm.use_kl_loss and self.learner.lora is None

    def states(self) -> tuple[Term, ...]:
        """What stays from step to step.

        float32 weights, gradients and both moments, 4 B each, cut over the ranks
        (`torch.optim.AdamW` on FSDP2's shards); gradients stay until the next update begins.
        """
        return () if self.on_gpu and self.learner.cpu_offload else self.own_states()

    def own_states(self) -> tuple[Term, ...]:
        """The same, wherever it is: `learner.cpu_offload` has it in the machine's memory."""
        per_rank = self.num_trained / self.num_ranks
        terms = [
            Term(
                "weights, gradients and Adam's two moments, float32",
                16 * per_rank,
                f"16 B x {count(self.num_trained)} trained parameters / {self.num_ranks} ranks",
            )
        ]
        if self.learner.lora is not None:
            terms.append(self._frozen("the frozen model"))
        if self.has_reference:
            terms.append(self._frozen("the reference policy of algorithm.use_kl_loss"))
        return tuple(terms)

    def phases(self) -> tuple[Phase, ...]:
        """The moments at which most is in memory; the largest decides."""
        return (
            self._phase("the backward pass of a layer", *self._layer(), *self._head_gradient()),
            self._phase("the head's scores", *self._head_scores()),
            self._phase("the head's gradient", *self._head_backward()),
            self._phase("adding up the gradients of embedding and head", *self._root_reduction()),
            self._phase("the optimizer's step", *self._optimizer_step()),
            self._phase("handing out the weights", *self._handing_out()),
        )

    def _phase(self, name: str, *passing: Term) -> Phase:
        comes_and_goes = sum(term.num_bytes for term in passing)
        slack = Term(
            "lost by the allocator", SLACK * comes_and_goes, f"{SLACK:.0%} of what comes and goes"
        )
        context = Term("CUDA's context, NCCL, work space", CONTEXT_BYTES, "assumed")
        own = (context, slack) if self.on_gpu else ()
        return Phase(name=name, terms=(*self.states(), *passing, *own))

    def _frozen(self, what: str) -> Term:
        size, number = self.dtype_bytes, self.shape.num_parameters
        how = f"{size} B x {count(number)} parameters / {self.num_ranks} ranks"
        return Term(what, size * number / self.num_ranks, how)

    @property
    def _trains_all(self) -> bool:
        return self.learner.lora is None

    def _gathered(self) -> tuple[Term, ...]:
        """Whole weights that FSDP2 has put together (`trainer.learners.sharding.shard`).

        Embedding, head and norm all through the pass. Of layers: the one at work, the next one
        fetched ahead, and the buffer it arrives in; of their gradients the one at work, and the
        float32 copies of two that are being added up over the ranks.
        """
        size, layer = self.dtype_bytes, self.shape.layer_parameters
        per_parameter = 3 * size + (size + 8 if self._trains_all else 0)
        return (
            Term(
                "embedding and head, gathered",
                size * self.shape.root_parameters,
                f"{size} B x {count(self.shape.root_parameters)} parameters",
            ),
            Term(
                "layers on their way, gathered and added up",
                per_parameter * layer,
                f"{per_parameter} B x {count(layer)} parameters of a layer",
            ),
        )

    def _kept(self) -> Term:
        """What the forward pass leaves for the backward pass, over all layers."""
        layers, tokens, size = self.shape.num_layers, self.tokens, self.dtype_bytes
        if self.learner.activation_checkpointing:
            width = size * self.shape.hidden_size
            what = "each layer's input, kept for computing it again"
        else:
            width, what = self.layer_bytes_per_token, "activations of all layers"
        how = f"{layers} layers x {tokens} tokens x {width} B"
        return Term(what, layers * tokens * width, how)

    @property
    def layer_bytes_per_token(self) -> int:
        """Activations of one layer that its backward pass needs, per token.

        Source: the saved tensors of transformers 5.19's `Qwen3DecoderLayer`, one by one. The norms
        compute in float32: input and output there (4 D + b D each, twice) and their result (b D);
        the same for queries and keys (4 + b per number, and b rotated); values b U; attention's
        output b W, again as the output projection's input, and 4 B per head; the MLP's gate, its
        silu, up, and their product: 4 b I. In float32 the conversions make no copies of their own.
        """
        shape, size = self.shape, self.dtype_bytes
        width, kv = shape.query_width, shape.kv_width
        per_norm = 4 + size if size == 2 else 8
        norms = 2 * (per_norm + size) * shape.hidden_size
        heads = (per_norm + size) * (width + kv) + size * kv
        attention = 2 * size * width + 4 * shape.num_heads
        return norms + heads + attention + 4 * size * shape.intermediate_size

    @property
    def gradient_bytes_per_token(self) -> int:
        """What the backward pass of a layer needs beside them at its peak, per token.

        The peak is in the MLP: gradients of the product, of silu's result and of up, less the
        product itself, which is done with: 2 b I; and of the residual stream, with a margin: 3 b D.
        """
        size, shape = self.dtype_bytes, self.shape
        return size * (2 * shape.intermediate_size + 3 * shape.hidden_size)

    def _layer(self) -> tuple[Term, ...]:
        tokens = self.tokens
        again: tuple[Term, ...] = ()
        if self.learner.activation_checkpointing:
            again = (
                Term(
                    "one layer computed again",
                    tokens * self.layer_bytes_per_token,
                    f"{tokens} tokens x {self.layer_bytes_per_token} B",
                ),
            )
        gradients = Term(
            "its gradients on their way",
            tokens * self.gradient_bytes_per_token,
            f"{tokens} tokens x {self.gradient_bytes_per_token} B",
        )
        return (*self._gathered(), self._kept(), *again, gradients, *self._plain_scores())

    def _plain_scores(self) -> tuple[Term, ...]:
        """Flash attention knows half precision only: on a GPU float32 holds every pair's score."""
        if not (self.on_gpu and self.dtype_bytes == 4):
            return ()
        heads, tokens = self.shape.num_heads, self.tokens
        how = f"2 x {heads} heads x {tokens}^2 pairs x 4 B (learner.policy_dtype bfloat16 has none)"
        return (Term("attention's scores in float32", 8.0 * heads * tokens**2, how),)

    def _head_gradient(self) -> tuple[Term, ...]:
        """It waits for the embedding's until the end of the pass."""
        if not self._trains_all:
            return ()
        size, number = self.dtype_bytes, self.shape.embedding_parameters
        return (Term("the head's gradient", size * number, f"{size} B x {count(number)}"),)

    def _head_scores(self) -> tuple[Term, ...]:
        """`trainer.learners.scoring`: a chunk's scores, and what is left of the last one.

        Forward, in float32: scores, probabilities and their product; of several chunks the last
        one's scores and probabilities, beside the next one's as they come out of the product with
        the head (in the pass's precision) and as they are in float32.
        """
        several = self.tokens > self.learner.logprob_chunk_tokens
        passing = (*self._gathered(), self._kept(), *self._hidden())
        return (*passing, self._chunk(14 if several else 12, 12))

    def _head_backward(self) -> tuple[Term, ...]:
        """Backward: a chunk's slopes in float32 beside the last one's, rounded, and the gradient.

        The gradient is added up in float32; what is added comes when only rounded slopes are left.
        """
        passing = (*self._gathered(), self._kept(), *self._hidden())
        if not self._trains_all:
            return (*passing, self._chunk(8, 8))
        size, chunk, width = self.dtype_bytes, self._chunk_tokens, self.shape.hidden_size
        per_score = max(8 * chunk + 4 * width, size * chunk + (4 + size) * width)
        how = f"{self.shape.vocab_size} x {per_score} B, of a chunk of {chunk} tokens"
        gradient = self.shape.vocab_size * per_score
        return (*passing, Term("scores and the head's gradient", gradient, how))

    @property
    def _chunk_tokens(self) -> int:
        return min(self.learner.logprob_chunk_tokens, self.tokens)

    def _chunk(self, in_bfloat16: int, in_float32: int) -> Term:
        size = in_bfloat16 if self.dtype_bytes == 2 else in_float32
        return Term(
            "scores over the vocabulary",
            self._chunk_tokens * self.shape.vocab_size * size,
            f"{self._chunk_tokens} tokens (learner.logprob_chunk_tokens) x"
            f" {self.shape.vocab_size} x {size} B",
        )

    def _hidden(self) -> tuple[Term, ...]:
        """The last norm's numbers, what the head reads, and its gradient."""
        width = (4 + 4 * self.dtype_bytes) * self.shape.hidden_size
        how = f"{self.tokens} tokens x {width} B"
        return (Term("the last hidden states and their gradient", self.tokens * width, how),)

    def _root_reduction(self) -> tuple[Term, ...]:
        if not self._trains_all:
            return ()
        size, number = self.dtype_bytes, self.shape.root_parameters
        per_parameter = 2 * size + 4
        how = f"{per_parameter} B x {count(number)} parameters, and 4 B of them / {self.num_ranks}"
        added = per_parameter * number + 4 * number / self.num_ranks
        return (Term("weights, gradients and their float32 copies", added, how),)

    def _optimizer_step(self) -> tuple[Term, ...]:
        """Torch's `_multi_tensor_adamw` takes the root of all second moments at once on a GPU."""
        if not self.on_gpu or self.learner.cpu_offload:
            return ()
        number = self.num_trained
        how = f"4 B x {count(number)} trained parameters / {self.num_ranks} ranks"
        return (Term("roots of the second moments", 4 * number / self.num_ranks, how),)

    def _handing_out(self) -> tuple[Term, ...]:
        """`trainer.learners.export`: a whole float32 tensor at a time, or a piece of some."""
        largest = self.shape.embedding_parameters
        whole = Term(
            "the largest tensor, whole, in float32", 4 * largest, f"4 B x {count(largest)}"
        )
        if not self.by_pieces:
            return (whole,)
        piece = max(PIECE_BYTES, self.dtype_bytes * largest)
        return (
            whole,
            Term("a piece of the model, twice", 2 * piece, "2 x max(1 GiB, that tensor)"),
        )
