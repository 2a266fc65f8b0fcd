"""Memory of one GPU of a vLLM engine, as `trainer.engines.vllm.options` configures it.

vLLM reserves `gpu_memory_utilization` of the GPU; the KV cache gets what weights and the largest
pass leave. vLLM does not start if the cache cannot hold one sequence of full length. Source:
vLLM 0.32, `Worker.determine_available_memory` and `check_enough_kv_cache_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.hardware.memory.arithmetic import GIB, Term, count, gib
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.training.engine import EngineSpec

OVERHEAD_BYTES = 1.5 * GIB
"""Assumed, not measured: CUDA's context, libraries, and memory outside of torch."""
CONTEXT_BYTES = 0.5 * GIB
"""Assumed, not measured: CUDA's context, which exists before vLLM checks that its share is free
(vLLM 0.32, `request_memory`)."""
MAX_CHUNK_BYTES = GIB
"""Most bytes of a weight chunk on its way to engines, unless one tensor alone has more."""
_BATCHED_TOKENS = 8192


def batched_tokens(num_sessions: int, max_length: int) -> int:
    """Return the tokens of one pass (`max_num_batched_tokens`); a longer prompt takes several.

    At least one of every session, and no more than all have together: before it serves, vLLM tries
    a pass of as many tokens, and takes for granted that each session's share is no longer than
    `max_model_len` (0.32, `_dummy_run`). On an H100 it read past its tables of blocks there, and
    died of an illegal memory access.
    """
    return max(num_sessions, min(_BATCHED_TOKENS, num_sessions * max_length))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """One GPU of an engine."""

    shape: ModelShape
    engine: EngineSpec
    max_sequence_length: int
    max_concurrent: int
    """Requests decoded as one batch: `environment.max_concurrent_rollouts`."""
    gpu_gib: float

    @property
    def dtype_bytes(self) -> int:
        """Bytes per number of weights and cache."""
        return 2 if self.engine.dtype == "bfloat16" else 4

    @property
    def reserved_bytes(self) -> float:
        """Bytes that vLLM reserves on the GPU, used or not."""
        return self.engine.gpu_memory_utilization * self.gpu_gib * GIB

    @property
    def weight_bytes(self) -> float:
        """Bytes of the model on this GPU."""
        parts = self.engine.tensor_parallel_size
        return self.dtype_bytes * self.shape.num_parameters / parts

    def fixed(self) -> tuple[Term, ...]:
        """Everything but the cache."""
        parts, size = self.engine.tensor_parallel_size, self.dtype_bytes
        number = self.shape.num_parameters
        tokens = batched_tokens(self.max_concurrent, self.max_sequence_length)
        width = 3 * size * (self.shape.hidden_size + self._mlp_width // parts)
        scores = 12 * self.max_concurrent * self.shape.vocab_size
        return (
            Term(
                "the engine's weights",
                self.weight_bytes,
                f"{size} B x {count(number)} parameters / {parts} (engine.tensor_parallel_size)",
            ),
            Term("its largest pass", tokens * width, f"{tokens} tokens x {width} B"),
            Term(
                "scores over the vocabulary",
                scores,
                f"{self.max_concurrent} rollouts at once x {self.shape.vocab_size} x 12 B",
            ),
            Term("CUDA's context and libraries", OVERHEAD_BYTES, "assumed"),
        )

    @property
    def _mlp_width(self) -> int:
        """Numbers of a token between a layer's MLPs and the next: of experts each one's own."""
        experts = self.shape.experts
        if experts is None:
            return self.shape.intermediate_size
        # vLLM keeps input and output of every expert of a token (0.32, `fused_experts_impl`).
        return experts.per_token * (experts.width + self.shape.hidden_size)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of the KV cache per token on this GPU."""
        size = 1 if self.engine.kv_cache_dtype == "fp8" else self.dtype_bytes
        return self.shape.kv_bytes_per_token(size) / self.engine.tensor_parallel_size

    @property
    def sequence_bytes(self) -> float:
        """Bytes of one rollout of full length on this GPU: its tokens, and its states."""
        states = self.shape.state_bytes(self.dtype_bytes) / self.engine.tensor_parallel_size
        return self.kv_bytes_per_token * self.max_sequence_length + states

    @property
    def cache_bytes(self) -> float:
        """Bytes left for the KV cache; negative if not even the weights fit."""
        return self.reserved_bytes - sum(term.num_bytes for term in self.fixed())

    @property
    def asleep_bytes(self) -> float:
        """Bytes that a sleeping engine keeps on the GPU."""
        return OVERHEAD_BYTES

    @property
    def without_cache_bytes(self) -> float:
        """Bytes of an engine that has woken its weights and not its cache."""
        return OVERHEAD_BYTES + self.weight_bytes

    def update_bytes(self, transport: str) -> float:
        """Bytes while new weights arrive, outside of what vLLM reserves.

        The engine's own copy of a chunk, and the largest tensor of the layer that vLLM brings into
        its loading form (`trainer.weights.chunks`; vLLM 0.32, `materialize_layer`). Files are read
        into the machine's memory.
        """
        if transport not in ("ipc", "nccl"):
            return 0.0
        largest = self.dtype_bytes * self.shape.largest_tensor
        return max(MAX_CHUNK_BYTES, largest) + largest

    @property
    def full_sequences(self) -> float:
        """Number of rollouts of full length that fit the KV cache at once."""
        return max(self.cache_bytes, 0.0) / self.sequence_bytes

    @property
    def fits(self) -> bool:
        """Tell whether vLLM would start: one sequence of full length fits the cache."""
        return self.full_sequences >= 1.0

    def lines(self) -> tuple[str, ...]:
        """Return the arithmetic as lines of text."""
        share = self.engine.gpu_memory_utilization
        remaining = (
            f"{gib(max(self.cache_bytes, 0.0))} left for the cache: {gib(self.reserved_bytes)}"
            f" (engine.gpu_memory_utilization {share:g} of {self.gpu_gib:g} GiB) less the above"
        )
        states = self.sequence_bytes - self.kv_bytes_per_token * self.max_sequence_length
        of_states = f" + {gib(states)} of states, whatever its length" if states else ""
        sequence = (
            f"{gib(self.sequence_bytes)} for one rollout of full length:"
            f" {self.max_sequence_length} tokens x {self.kv_bytes_per_token:g} B{of_states}; the"
            f" cache holds {self.full_sequences:.1f} of them"
        )
        return (*(term.line for term in self.fixed()), remaining, sequence)
