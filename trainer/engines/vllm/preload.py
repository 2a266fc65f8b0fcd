"""Imports of every vLLM process, done once in the template (`trainer.engines.vllm.template`)."""

from hillclimb.process.lazy_imports import gc_paused_import

with gc_paused_import():
    import setproctitle
    import vllm.model_executor.models.qwen3
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401

    import trainer.engines.vllm.transfer  # noqa: F401

# It locates the memory of argv and environ, which it can only before a fork replaces the latter.
setproctitle.getproctitle()
