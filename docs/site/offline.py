"""Checks that a built site works without a network.

    python docs/site/offline.py build/docs

Serves the folder on loopback and requests what its pages name, as a browser would: each address of
the site has to be there, with its anchor, and nothing that a page loads may be elsewhere. Links to
other sites, which a reader may follow, are not requested. Faults are a line each, and exit code 1.
"""

from __future__ import annotations

import re
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit

LOADING_RELS = frozenset({"stylesheet", "icon", "preload", "modulepreload", "prefetch", "manifest"})
"""Relations of a `link` element whose address a browser requests by itself."""
CONNECTING_RELS = frozenset({"preconnect", "dns-prefetch"})
ENCODED = ":/?#[]@!$&'()*+,;=%~"
"""Characters of an address that stay as they are: browsers encode others, such as blanks."""
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class SitePage(HTMLParser):
    """Addresses and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        """Addresses that a reader may follow."""
        self.loaded: list[str] = []
        """Addresses that a browser requests by itself."""
        self.anchors: set[str] = set()
        self._is_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one element."""
        values = {name: value or "" for name, value in attrs}
        self._is_style = tag == "style"
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.loaded += addresses_in_style(values.get("style", ""))
        self.loaded += [each.split()[0] for each in values.get("srcset", "").split(",") if each]
        self.loaded += [values[name] for name in ("src", "data", "poster") if values.get(name)]
        if href := values.get("href"):
            relations = set(values.get("rel", "").lower().split())
            is_loaded = tag == "link" and bool(relations & (LOADING_RELS | CONNECTING_RELS))
            (self.loaded if is_loaded or tag in ("use", "image") else self.links).append(href)

    def handle_data(self, data: str) -> None:
        """Read the text of a style element."""
        if self._is_style:
            self.loaded += addresses_in_style(data)


def addresses_in_style(text: str) -> list[str]:
    """Return what a style sheet, or a `style` attribute, loads."""
    return [first or second for first, second in IN_STYLE.findall(text)]


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Drop the line."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the folder on a free port of loopback; yields its address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class SiteCheck:
    """One pass over a site that is served at `base`."""

    def __init__(self, base: str) -> None:
        self._base = base
        # Without the proxy that the environment may name.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._body = cache(self._request)

    def faults_of(self, name: str) -> Iterator[str]:
        """Yield a sentence per fault of the file `name`, a path relative to the site."""
        text = self._body(urljoin(self._base, name))
        if text is None:
            yield f"{name}: is not served"
        elif name.endswith(".css"):
            yield from self._faults(name, links=[], loaded=addresses_in_style(text))
        else:
            page = SitePage(text)
            yield from self._faults(name, links=page.links, loaded=page.loaded)

    def _faults(self, name: str, *, links: list[str], loaded: list[str]) -> Iterator[str]:
        for address in dict.fromkeys(loaded):
            if self._is_elsewhere(name, address):
                yield f"{name}: loads {address} from elsewhere"
        for address in dict.fromkeys([*links, *loaded]):
            if urlsplit(address).scheme in ("", "http", "https") and not self._is_elsewhere(
                name, address
            ):
                yield from self._missing(name, address)

    def _is_elsewhere(self, name: str, address: str) -> bool:
        whole = urljoin(urljoin(self._base, name), address)
        is_web = urlsplit(whole).scheme in ("http", "https")
        return is_web and not whole.startswith(self._base)

    def _missing(self, name: str, address: str) -> Iterator[str]:
        target, anchor = urldefrag(urljoin(urljoin(self._base, name), address))
        text = self._body(target)
        if text is None:
            yield f"{name}: {address} is not there"
        elif anchor and unquote(anchor) not in SitePage(text).anchors:
            yield f"{name}: {address} has no such anchor"

    def _request(self, address: str) -> str | None:
        try:
            with self._open(quote(address, safe=ENCODED), timeout=10.0) as answer:
                return str(answer.read().decode("utf-8", errors="replace"))
        except urllib.error.HTTPError:
            return None


def check(folder: Path) -> tuple[int, list[str]]:
    """Return the number of files that were read and the faults of the site."""
    files = [path for path in folder.rglob("*") if path.suffix in (".html", ".css")]
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    with served(folder) as base:
        site = SiteCheck(base)
        return len(names), [fault for name in names for fault in site.faults_of(name)]


if __name__ == "__main__":
    number, faults = check(Path(sys.argv[1]))
    for line in faults:
        print(line)
    print(f"{number} pages and style sheets, {len(faults)} faults")
    sys.exit(bool(faults) or number == 0)
