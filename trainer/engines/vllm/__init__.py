"""The vLLM engine. Only `engine.py` and `transfer.py` import vLLM itself."""
