"""torch's own account of the memory of a learner's rank on a GPU, over fake tensors.

Nothing is computed and nothing allocated, but every tensor is on `cuda` and of its real size: a
rank of a model that no machine here could hold is followed in a minute, FSDP2's own tensors on
their streams included. It prints the most bytes on the GPU, by what they are for.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.training.learner import LearnerSpec
from hillclimb.spec.training.optimizer import OptimizerSpec
from tests.trainer.learners.accounted import config_of
from trainer.inputs.model.families.registry import family_of
from trainer.learners.model import models
from trainer.learners.model.models import LearnerOptions
from trainer.learners.model.sharding import Ranks
from trainer.learners.packing.packing import pack_single
from trainer.learners.update.optimizer import make_optimizer

DEVICE = torch.device("cuda:0")


def main() -> None:
    """Follow the second step's passes; the optimizer has its moments from the first."""
    job = json.loads(sys.argv[1])
    # Kernels that a GPU compiles compute nothing here: plain torch is followed in their place.
    torch.compiler.set_stance("force_eager")
    models.use_fused_kernels = lambda *_: False  # type: ignore[assignment]
    ranks = first_of(job["num_ranks"])
    learner = LearnerSpec.model_validate(job["learner"])
    with FakeTensorMode():
        config = config_of(ModelShape(**job["shape"]))
        # FSDP cannot move a fake tensor by its data, as it moves a model from the host.
        with DEVICE:
            model = family_of(config).model_class(config)
        built = models.build_models(model, LearnerOptions(learner=learner), ranks)
        optimizer = make_optimizer(built.trained.values(), OptimizerSpec(), DEVICE)
        micro = pack_single((0,) * (job["tokens"] + 1), device=DEVICE)

        def pass_over() -> None:
            logprobs, _ = built.policy(micro)
            torch.autograd.backward(logprobs.sum())

        pass_over()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tracker = FSDPMemTracker(built.policy, optimizer)
        tracker.track_inputs((micro.token_ids_N,))
        with tracker:
            for _ in range(2):
                pass_over()
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")[DEVICE]
    found = {str(getattr(use, "value", use)): num_bytes for use, num_bytes in peak.items()}
    sys.stdout.write(f"{json.dumps(found)}\n")


def first_of(size: int) -> Ranks:
    """Rank 0 of a world in which collectives do nothing."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    ranks = Ranks.__new__(Ranks)
    ranks.device, ranks.rank, ranks.size = DEVICE, 0, size
    ranks.mesh, ranks.context = init_device_mesh("cuda", (size,)), None
    return ranks


if __name__ == "__main__":
    main()
