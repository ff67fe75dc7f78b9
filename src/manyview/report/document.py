"""The frame of every page: one file that opens offline, with links to its sections."""

from collections.abc import Callable, Sequence

from manyview.report.markup import Markup, tag
from manyview.report.style import STYLE

__all__ = ["document"]

# Nothing is fetched and nothing is run, whatever a file name may try.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(
    title: str, header: Callable[[Markup], Markup], sections: Sequence[tuple[str, str, Markup]], footer: str
) -> str:
    """`header` is given the links to the sections, which are (id, title, content)."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{title} – manyview"),
        tag("style", Markup(STYLE)),
    )
    links = tag("nav", *(tag("a", name, href=f"#{key}") for key, name, _ in sections), aria_label="Sections")
    blocks = (tag("section", tag("h2", name), content, id=key) for key, name, content in sections)
    body = tag("body", header(links), tag("main", *blocks), tag("footer", footer))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"
