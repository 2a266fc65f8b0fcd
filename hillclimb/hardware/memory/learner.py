"""Memory of one rank of the learner in each phase of a step.

Each formula names the code it describes; `tests/trainer/learners/test_estimate.py` compares them
with torch's own memory accounting of that code. Legend: N ranks, T packed tokens of one rank in a
pass, L layers, D hidden size, I intermediate size, W width of all query heads, U of all key/value
heads, V vocabulary, b bytes of a number in forward and backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hillclimb.hardware.memory.arithmetic import GIB, Phase, Term, count
from hillclimb.hardware.memory.engine import MAX_CHUNK_BYTES
from hillclimb.hardware.memory.linear import linear_bytes_per_token
from hillclimb.hardware.memory.mlp import mlp_bytes_per_token, mlp_gradient_bytes_per_token
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.backend.counts import counted
from hillclimb.spec.training.algorithm import AlgorithmSpec
from hillclimb.spec.training.learner import LearnerSpec

CONTEXT_BYTES = 2 * GIB
"""Assumed, not measured: CUDA's context, NCCL's buffers and libraries' work space of a process."""
EXPORT = "exporting the weights"
"""Name of the phase in which engines receive them."""
SAMPLING = "sampling"
"""Name of the phase in which engines on the ranks' GPUs sample."""
SLACK = 0.05
"""Assumed, not measured: share of temporary memory that the allocator loses."""


MOMENT_BYTES = {"float32": 8.0, "bfloat16": 4.0, "int8": 2.0 + 8 / 256}
"""Of AdamW's two moments per parameter, by `learner.optimizer_moments`; codes have a scale per 256.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    """Memory of one rank of `num_ranks`; all properties are per rank."""

    shape: ModelShape
    learner: LearnerSpec
    algorithm: AlgorithmSpec
    num_ranks: int
    max_sequence_length: int
    by_chunks: bool
    """True if weights go to engines by `ipc` or `nccl`, in chunks."""
    on_gpu: bool = True
    takes_turns: bool = False
    """True if engines use its GPUs while it does not learn (`placement.colocate`)."""

    @property
    def dtype_bytes(self) -> int:
        """Bytes per number in forward and backward pass."""
        return 2 if self.learner.policy_dtype == "bfloat16" else 4

    @property
    def tokens(self) -> int:
        """Packed tokens of a rank in the longest pass.

        A sequence is in one pass (`partition`), whose tokens the ranks of a context group share.
        """
        share = ceil(self.max_sequence_length / self.learner.context_parallel_size)
        return max(self.learner.max_micro_tokens, share)

    @property
    def num_trained(self) -> int:
        """Parameters with a gradient."""
        lora = self.learner.lora
        if lora is None:
            return self.shape.num_parameters
        return self.shape.adapter_parameters(lora.rank, lora.target_modules)

    @property
    def moment_bytes(self) -> float:
        """Bytes of both moments per trained parameter (`trainer.learners.update.moments`)."""
        return MOMENT_BYTES[self.learner.optimizer_moments]

    @property
    def has_reference(self) -> bool:
        """Tell whether a reference policy is loaded; adapters have the base model instead."""
        return self.algorithm.use_kl_loss and self.learner.lora is None

    def states(self) -> tuple[Term, ...]:
        """Return the persistent state on the GPU.

        float32 weights and gradients, 4 B each, and both moments, sharded over the ranks (AdamW on
        FSDP2's shards); gradients stay until the next update begins.
        """
        return () if self.on_gpu and self.learner.cpu_offload else self.own_states()

    def own_states(self) -> tuple[Term, ...]:
        """Return the persistent state, on the GPU or (`learner.cpu_offload`) in main memory."""
        per_rank, size = self.num_trained / self.num_ranks, 8 + self.moment_bytes
        moments = self.learner.optimizer_moments
        stored = "float32" if moments == "float32" else f"these in {moments}"
        terms = [
            Term(
                f"weights, gradients and Adam's two moments, {stored}",
                size * per_rank,
                f"{size:g} B x {count(self.num_trained)} trained parameters"
                f" / {counted(self.num_ranks, 'rank')}",
            )
        ]
        if self.learner.lora is not None:
            terms.append(self._frozen("the frozen model"))
        if self.has_reference:
            terms.append(self._frozen("the reference policy of algorithm.use_kl_loss"))
        return tuple(terms)

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of a step; the largest one determines the required memory."""
        return (
            self._phase("the backward pass of a layer", *self._layer(), *self._head_gradient()),
            self._phase("the head's scores", *self._head_scores()),
            self._phase("the head's gradient", *self._head_backward()),
            self._phase("reducing the gradients of embedding and head", *self._root_reduction()),
            # The optimizer's step is one kernel per tensor and needs no memory of its own; with
            # moments in fewer bits it takes less than a pass, for the part that is computed.
            self._phase(EXPORT, *self._weight_export()),
            *((self._phase(SAMPLING, self._saved_tensor()),) if self.takes_turns else ()),
        )

    def _saved_tensor(self) -> Term:
        """Return the largest tensor as a checkpoint gathers it, which is saved between steps."""
        size, largest = 4 + self.dtype_bytes, self.shape.embedding_parameters
        how = f"{size} B x {count(largest)}"
        return Term("the largest tensor of a checkpoint, whole", size * largest, how)

    def _parked_states(self) -> tuple[Term, ...]:
        """Return what stays on the GPU while engines use it (`LearnerRank.park`)."""
        first, *others = self.states() or (None,)
        if first is None:
            return ()
        per_rank = self.num_trained / self.num_ranks
        ranks = counted(self.num_ranks, "rank")
        how = f"4 B x {count(self.num_trained)} trained parameters / {ranks}"
        return (Term("weights, float32", 4 * per_rank, how), *others)

    def _phase(self, name: str, *passing: Term) -> Phase:
        temporary = sum(term.num_bytes for term in passing)
        slack = Term("lost by the allocator", SLACK * temporary, f"{SLACK:.0%} of temporary memory")
        context = Term("CUDA's context, NCCL, work space", CONTEXT_BYTES, "assumed")
        own = (context, slack) if self.on_gpu else ()
        is_parked = self.takes_turns and name in (EXPORT, SAMPLING)
        states = self._parked_states() if is_parked else self.states()
        return Phase(name=name, terms=(*states, *passing, *own))

    def _frozen(self, what: str) -> Term:
        size, number = self.dtype_bytes, self.shape.num_parameters
        how = f"{size} B x {count(number)} parameters / {counted(self.num_ranks, 'rank')}"
        return Term(what, size * number / self.num_ranks, how)

    @property
    def _trains_all(self) -> bool:
        return self.learner.lora is None

    def _gathered(self) -> tuple[Term, ...]:
        """Return weights gathered by FSDP2 (`trainer.learners.model.sharding.shard`).

        Embedding, head and norm during the whole pass. Of layers in the backward pass: the current
        one and the prefetched next one; of their gradients the current one, and the float32 copy of
        the one before, which is being reduced over the ranks (torch 2.13 keeps one such copy). In
        a forward pass without gradients also the last layer's receive buffer.
        """
        size, layer = self.dtype_bytes, self.shape.layer_parameters
        per_parameter = 2 * size + (size + 4 if self._trains_all else size)
        return (
            Term(
                "embedding and head, gathered",
                size * self.shape.root_parameters,
                f"{size} B x {count(self.shape.root_parameters)} parameters",
            ),
            Term(
                "layers, gathered and reduced",
                per_parameter * layer,
                f"{per_parameter} B x {count(layer)} parameters of a layer",
            ),
        )

    def _activations(self) -> Term:
        """Return the activations of all layers that the backward pass needs."""
        layers, tokens, size = self.shape.num_layers, self.tokens, self.dtype_bytes
        if self.learner.activation_checkpointing:
            width = size * self.shape.hidden_size + self.extra_bytes_per_token
            what = "each layer's input, kept for recomputation"
            if self.extra_bytes_per_token:
                what += f", and {self.learner.keep_activations}"
        else:
            width, what = self.layer_bytes_per_token, "activations of all layers"
        how = f"{layers} layers x {tokens} tokens x {width} B"
        return Term(what, layers * tokens * width, how)

    @property
    def layer_bytes_per_token(self) -> int:
        """Activations of the largest layer that its backward pass needs, per token."""
        linear = linear_bytes_per_token(self.shape, self.dtype_bytes)
        return max(self._attention_bytes_per_token, linear)

    @property
    def _attention_bytes_per_token(self) -> int:
        """Activations of one layer that attends, per token.

        Source: the saved tensors of transformers 5.19's `Qwen3DecoderLayer`, one by one. The norms
        compute in float32: input and output there (4 D + b D each, twice) and their result (b D);
        the same for queries and keys (4 + b per number, and b rotated; families without norms of
        heads keep what is rotated alone); values b U (keys and values again for each copy of a head
        that `trainer.learners.context.exchange` makes); attention's output b W, again as the output
        projection's input, and 4 B per head; and the MLP's (`mlp.py`). In float32 the conversions
        make no copies of their own.
        """
        shape, size = self.shape, self.dtype_bytes
        width, kv = shape.query_width, shape.kv_width
        per_norm = 4 + size if size == 2 else 8
        norms = 2 * (per_norm + size) * shape.hidden_size
        heads = (per_norm * shape.has_head_norms + size) * (width + kv) + size * kv
        copies = max(self.learner.context_parallel_size // shape.num_kv_heads, 1)
        heads += 2 * size * kv * (copies - 1)
        # Beside linear attention queries have gates: those, their sigmoid and the product.
        gates = 0 if shape.linear is None else 3 * size * width
        attention = 2 * size * width + 4 * shape.num_heads + gates
        return norms + heads + attention + mlp_bytes_per_token(shape, size)

    @property
    def extra_bytes_per_token(self) -> int:
        """Bytes of `learner.keep_activations` per token of a layer.

        Of attention its output and 4 B per head; of the matrix products queries, keys and values,
        the two projections back to D, gate and up (`trainer.learners.model.recompute`).
        """
        shape, size = self.shape, self.dtype_bytes
        if self.learner.keep_activations == "none":
            return 0
        attention = size * shape.query_width + 4 * shape.num_heads
        if self.learner.keep_activations == "attention":
            return attention
        widths = shape.query_width + 2 * shape.kv_width
        widths += 2 * (shape.hidden_size + shape.intermediate_size)
        return attention + size * widths

    @property
    def gradient_bytes_per_token(self) -> int:
        """Further bytes per token at the peak of a layer's backward pass.

        The peak is in the MLP (`mlp.py`); and of the residual stream, with a margin: 3 b D.
        """
        size, shape = self.dtype_bytes, self.shape
        return mlp_gradient_bytes_per_token(shape, size) + 3 * size * shape.hidden_size

    def _layer(self) -> tuple[Term, ...]:
        tokens = self.tokens
        again: tuple[Term, ...] = ()
        if self.learner.activation_checkpointing:
            again = (
                Term(
                    "one recomputed layer",
                    tokens * self.layer_bytes_per_token,
                    f"{tokens} tokens x {self.layer_bytes_per_token} B",
                ),
            )
        gradients = Term(
            "its gradients",
            tokens * self.gradient_bytes_per_token,
            f"{tokens} tokens x {self.gradient_bytes_per_token} B",
        )
        return (*self._gathered(), self._activations(), *again, gradients, *self._plain_scores())

    def _plain_scores(self) -> tuple[Term, ...]:
        """Return attention's scores: flash attention is half precision only, float32 stores all."""
        if not (self.on_gpu and self.dtype_bytes == 4):
            return ()
        size = self.learner.context_parallel_size
        heads, tokens = self.shape.num_heads // size, self.tokens * size
        how = f"2 x {heads} heads x {tokens}^2 pairs x 4 B (learner.policy_dtype bfloat16 has none)"
        return (Term("attention's scores in float32", 8.0 * heads * tokens**2, how),)

    def _head_gradient(self) -> tuple[Term, ...]:
        """Return the head's gradient, kept until the embedding's at the end of the pass."""
        if not self._trains_all:
            return ()
        size, number = self.dtype_bytes, self.shape.embedding_parameters
        return (Term("the head's gradient", size * number, f"{size} B x {count(number)}"),)

    def _head_scores(self) -> tuple[Term, ...]:
        """Return the scores of a chunk and of the previous one (`trainer.learners.model.scoring`).

        Forward, in float32: scores, probabilities and their product; of several chunks the last
        one's scores and probabilities, beside the next one's as they come out of the product with
        the head (in the pass's precision) and as they are in float32.
        """
        several = self.tokens > self.learner.logprob_chunk_tokens
        passing = (*self._gathered(), self._activations(), *self._hidden())
        return (*passing, self._chunk(14 if several else 12, 12))

    def _head_backward(self) -> tuple[Term, ...]:
        """Return a chunk's score gradients in float32, the previous ones rounded, and the head's.

        The head's gradient is accumulated in float32, once only rounded score gradients are left.
        """
        passing = (*self._gathered(), self._activations(), *self._hidden())
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
        """Return the last norm's intermediates, the head's input and its gradient."""
        width = (4 + 4 * self.dtype_bytes) * self.shape.hidden_size
        how = f"{self.tokens} tokens x {width} B"
        return (Term("the last hidden states and their gradient", self.tokens * width, how),)

    def _root_reduction(self) -> tuple[Term, ...]:
        if not self._trains_all:
            return ()
        size, number = self.dtype_bytes, self.shape.root_parameters
        # torch's accounting has the gathered weights freed before; on an H100 they were still there
        # (torch 2.11: 12 B per parameter of one rank beside its states, benchmarks/gpu).
        per_parameter = (size if self.on_gpu else 0) + size + 4
        ranks = counted(self.num_ranks, "rank")
        how = f"{per_parameter} B x {count(number)} parameters, and 4 B of them / {ranks}"
        added = per_parameter * number + 4 * number / self.num_ranks
        return (Term("gradients and their float32 copies", added, how),)

    def _weight_export(self) -> tuple[Term, ...]:
        """Return the gathered tensor and the chunks of `trainer.learners.model.export`."""
        largest = self.shape.largest_tensor
        whole = Term(
            "the largest tensor, whole, in float32", 4 * largest, f"4 B x {count(largest)}"
        )
        if not self.by_chunks:
            return (whole,)
        chunk = max(MAX_CHUNK_BYTES, self.dtype_bytes * largest)
        return (
            whole,
            Term("a chunk of the model, twice", 2 * chunk, "2 x max(1 GiB, that tensor)"),
        )
