"""The client's methods for the documentation of the service."""

from __future__ import annotations

from urllib.parse import quote

from hillclimb.client.http import Http


class Documentation:
    """The documentation of the service as Markdown; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def index(self) -> str:
        """Return llms.txt: every page with its title and first sentence."""
        return b"".join(self._http.file("/llms.txt")).decode()

    def page(self, name: str) -> str:
        """Return one page: `agents`, `spec`, `agents/SKILL`."""
        return b"".join(self._http.file(f"/docs/{quote(name)}.md")).decode()
