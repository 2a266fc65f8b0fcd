"""Imported by the template (`trainer.engines.vllm.template`): what every process of vLLM needs."""

from trainer.loading import importing

with importing():
    import setproctitle
    import vllm.model_executor.models.qwen3
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401

    import trainer.engines.vllm.transfer  # noqa: F401

# Finds its memory only before a fork replaces the environment.
setproctitle.getproctitle()
