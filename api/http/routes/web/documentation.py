"""`/llms.txt` and `/docs/{page}.md`: the documentation for machines, without a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import PlainTextResponse, Response

from api.http.document.pages import llms_txt, pages
from api.http.problems import NOT_FOUND, Problem, documented
from api.http.requests.context import ServicesDep

MARKDOWN = "text/markdown; charset=utf-8"

router = APIRouter(tags=["documentation"])


@router.get(
    "/llms.txt",
    operation_id="list_documentation",
    summary="List the documentation for language models",
    response_class=PlainTextResponse,
)
def list_documentation(services: ServicesDep) -> Response:
    """Return the pages with titles and first sentences, as llmstxt.org describes; no key."""
    return PlainTextResponse(llms_txt(services.settings.link_base))


@router.get(
    "/docs/{page:path}.md",
    operation_id="get_documentation_page",
    summary="Read a page of the documentation",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/markdown": {}}}, **documented(NOT_FOUND)},
)
def get_documentation_page(
    page: Annotated[str, Path(max_length=100, examples=["agents"])],
) -> Response:
    """Return the page as Markdown; requires no key."""
    if (text := pages().get(page)) is None:
        raise Problem(NOT_FOUND, f"There is no page {page!r}: /llms.txt lists all pages.")
    return Response(text.text, media_type=MARKDOWN)
