"""The vLLM engine. Only modules of this folder import vLLM itself."""
