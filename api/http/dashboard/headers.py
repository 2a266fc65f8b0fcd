"""Headers of every page: only our own scripts and styles, no framing, nothing cached."""

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: then our own forms would say `Origin: null`, as those of other sites may.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
