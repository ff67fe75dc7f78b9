"""HTML: text is escaped unless it is marked as HTML, because names of files and classes come from anywhere."""

import base64
import html
import io
from collections.abc import Callable, Sequence

from PIL import Image
from torch import Tensor

from manyview.report.style import STYLE

_VOID = {"img", "meta", "link", "br"}
_PIXELATED = 64  # px; smaller images are shown enlarged
# Nothing is fetched and nothing is run, whatever a file name may try.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """`<name …>children</name>`; a trailing underscore of an attribute is dropped, inner ones become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    closing = "" if name in _VOID else f"</{name}>"
    return Markup(f"<{name}{written}>{join(*children)}{closing}")


def join(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else html.escape(child) for child in children))


def note(*children: str) -> Markup:
    """A paragraph of explanation."""
    return tag("p", *children, class_="note")


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, class_: str = "") -> Markup:
    """The first cell of each row is its header. Wide tables scroll within themselves, by keyboard too."""
    head = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in header))) if header else Markup()
    lines = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    body = tag("table", tag("caption", caption), head, tag("tbody", *lines), class_=class_)
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=caption)


def picture(image: Tensor, alt: str, title: str = "") -> Markup:
    """(3, H, W) uint8 as an <img> that carries its bytes."""
    # Small images are shown enlarged, where the traces of JPEG would show too.
    small = max(image.shape[-2:]) <= _PIXELATED
    kind, options = ("png", {}) if small else ("jpeg", {"quality": 88})
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(buffer, kind, **options)
    attributes = {"title": title} if title else {}
    return embedded(buffer.getvalue(), kind, alt, class_="pixels" if small else "", **attributes)


def embedded(image: bytes, kind: str, alt: str, **attributes: str) -> Markup:
    """The content of an image file as an <img> that carries it."""
    data = base64.b64encode(image).decode("ascii")
    return tag("img", src=f"data:image/{kind};base64,{data}", alt=alt, **attributes)


def document(
    title: str, header: Callable[[Markup], Markup], sections: Sequence[tuple[str, str, Markup]], footer: str
) -> str:
    """One file that opens offline. `header` is given the links to the sections, which are (id, title, content)."""
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
