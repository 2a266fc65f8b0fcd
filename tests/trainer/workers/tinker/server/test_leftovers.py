"""Nothing of the SDK outlives a file of tests, however slowly its thread runs."""

from __future__ import annotations

import time

import tinker

from tests.trainer.workers.tinker.server.leftovers import collect_what_the_sdk_leaves, holders
from tests.trainer.workers.tinker.server.local import KEY


def test_no_client_is_left_though_the_sdks_thread_is_busy(url: str) -> None:
    # Tests of other files may run between this file's, with clients of their own.
    before = {id(each) for each in holders()}
    client = tinker.ServiceClient(base_url=url, api_key=KEY)
    client.get_server_capabilities()
    client.holder.get_loop().call_soon_threadsafe(time.sleep, 1.0)
    del client
    collect_what_the_sdk_leaves()
    assert [each for each in holders() if id(each) not in before] == []
