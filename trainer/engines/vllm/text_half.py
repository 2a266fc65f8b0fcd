"""Text models of checkpoints of text and images in vLLM, without their image encoders.

Imported by vLLM in the processes in which `trainer.engines.vllm.plugin` names these classes.
"""

from __future__ import annotations

from vllm.model_executor.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM
from vllm.model_executor.models.utils import WeightsMapper

_WITHOUT_IMAGES = WeightsMapper(orig_to_new_prefix={"model.visual.": None})
"""vLLM passes over the weights of draft heads itself, and would refuse those of an encoder."""


class Qwen35TextHalf(Qwen3_5ForCausalLM):  # type: ignore[misc, unused-ignore]
    """The text model of a Qwen3.5 checkpoint."""

    hf_to_vllm_mapper = Qwen3_5ForCausalLM.hf_to_vllm_mapper | _WITHOUT_IMAGES


class Qwen35MoeTextHalf(Qwen3_5MoeForCausalLM):  # type: ignore[misc, unused-ignore]
    """The text model of a Qwen3.5-MoE checkpoint."""

    hf_to_vllm_mapper = Qwen3_5MoeForCausalLM.hf_to_vllm_mapper | _WITHOUT_IMAGES
