import torch

from tests.trainer.fixtures.tiny import tiny_model
from trainer.engines.torch.engine import TorchEngine
from trainer.learners.inline import InlineLearner
from trainer.weights.local import InlineSync


async def test_after_a_sync_the_engine_scores_as_the_learner_does() -> None:
    old, learner = tiny_model(seed=0), InlineLearner(tiny_model(seed=1))
    engine = TorchEngine(old.config, old.state_dict())
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    assert not torch.allclose(await engine.logprobs(ids), await learner.logprobs(ids), atol=1e-2)
    await InlineSync(learner, engine).sync()
    torch.testing.assert_close(await engine.logprobs(ids), await learner.logprobs(ids))
    assert engine.weight_version == learner.version
