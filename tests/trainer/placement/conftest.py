"""One Ray token for the processes of these tests: the ones that start a cluster and join it."""

import os

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = "0123456789abcdef" * 4
