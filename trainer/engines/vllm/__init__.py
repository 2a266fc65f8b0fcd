"""The vLLM engine. Only `engine.py`, `plugin.py` and `transfer.py` import vLLM itself."""
