"""torch's own account of what forward and backward pass of the learner hold at their peak.

`torch.distributed._tools` follows every tensor of a pass, FSDP2's too. Under fake tensors nothing
is computed and nothing allocated: a rank of a model that no machine here could hold is followed in
seconds, collectives included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig

from hillclimb.hardware.model.shapes import (
    FAMILIES,
    HYBRID,
    SPARSE,
    ExpertShape,
    LinearShape,
    ModelShape,
)
from hillclimb.spec.training.learner import LearnerSpec
from tests.trainer.fixtures.forked import run_forked
from trainer.inputs.model.families.registry import family_of
from trainer.learners.context.group import context_group
from trainer.learners.model.models import LearnerOptions, build_models
from trainer.learners.model.sharding import Ranks
from trainer.learners.packing.packing import pack_single

if TYPE_CHECKING:
    from trainer.inputs.model.families.family import CausalLMConfig

CPU = torch.device("cpu")


def config_of(shape: ModelShape) -> CausalLMConfig:
    """Return a config of the family that has such layers."""
    properties = {
        "has_head_norms": shape.has_head_norms,
        "has_projection_biases": shape.has_projection_biases,
    }
    (model_type,) = [
        name
        for name, each in FAMILIES.items()
        if each == properties
        and (name in SPARSE) == (shape.experts is not None)
        and (name in HYBRID) == (shape.linear is not None)
    ]
    experts: dict[str, object] = {}
    if shape.experts is not None:
        experts = {
            "num_experts": shape.experts.num,
            "num_experts_per_tok": shape.experts.per_token,
            "moe_intermediate_size": shape.experts.width,
            "shared_expert_intermediate_size": shape.experts.shared_width,
        }
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": 1_000_000.0}
    linear: dict[str, object] = {}
    if shape.linear is not None:
        rope |= {"partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}
        linear = {
            "linear_num_key_heads": shape.linear.key_heads,
            "linear_num_value_heads": shape.linear.value_heads,
            "linear_key_head_dim": shape.linear.key_dim,
            "linear_value_head_dim": shape.linear.value_dim,
            "linear_conv_kernel_dim": shape.linear.width,
        }
    made = AutoConfig.for_model(
        model_type,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.is_tied,
        max_position_embeddings=131_072,
        rope_parameters=rope,
        **experts,
        **linear,
    )
    return cast("CausalLMConfig", made)


def peak_bytes(
    shape: ModelShape, learner: LearnerSpec, *, num_ranks: int, tokens: int, fake: bool = True
) -> int:
    """Bytes of rank 0 at most, over the passes of two micro-batches of `tokens`; no optimizer.

    In a process of its own: one that has joined a world cannot join another.
    """
    job = {
        "shape": asdict(shape),
        "learner": learner.model_dump(mode="json"),
        "num_ranks": num_ranks,
        "tokens": tokens,
        "fake": fake,
    }
    done = run_forked(main, [json.dumps(job)], timeout_s=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str]) -> int:
    """Print the peak of the passes that the argument describes."""
    job = json.loads(arguments[0])
    shape, learner = ModelShape(**job["shape"]), LearnerSpec.model_validate(job["learner"])
    if shape.experts is not None:
        shape = replace(shape, experts=ExpertShape(**job["shape"]["experts"]))
    if shape.linear is not None:
        shape = replace(shape, linear=LinearShape(**job["shape"]["linear"]))
    world = _rank_of(job["num_ranks"], learner.context_parallel_size)
    with world as ranks, FakeTensorMode() if job["fake"] else nullcontext():
        config = config_of(shape)
        model = family_of(config).model_class(config)
        models = build_models(model, LearnerOptions(learner=learner), ranks)
        micro = pack_single((0,) * (job["tokens"] + 1), device=CPU)
        tracker = FSDPMemTracker(models.policy)
        tracker.track_inputs((micro.token_ids_N,))
        with tracker:
            for _ in range(2):
                logprobs, _ = models.policy(micro)
                torch.autograd.backward(logprobs.sum())
                tracker.reset_mod_stats()
        sys.stdout.write(f"{int(tracker.get_tracker_snapshot('peak')[CPU]['Total'])}\n")
    return 0


@contextmanager
def _rank_of(size: int, context_size: int) -> Iterator[Ranks]:
    """Rank 0 of a world in which collectives do nothing."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        ranks = Ranks.__new__(Ranks)
        ranks.device, ranks.rank, ranks.size = CPU, 0, size
        ranks.mesh = init_device_mesh("cpu", (size,))
        ranks.context = context_group(CPU, size, context_size)
        yield ranks
    finally:
        dist.destroy_process_group()
