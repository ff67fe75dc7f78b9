"""HTML that is escaped unless it says that it is HTML: names of files and classes come from anywhere."""

import base64
import html
import io

from PIL import Image
from torch import Tensor

__all__ = ["Markup", "join", "picture", "table", "tag"]

_VOID = {"img", "meta", "link", "br"}


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


def table(caption: str, header: list[str], rows: list[list[str]], *, class_: str = "") -> Markup:
    """The first cell of each row is its header. Wide tables scroll within themselves, by keyboard too."""
    head = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in header))) if header else Markup()
    lines = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    body = tag("table", tag("caption", caption), head, tag("tbody", *lines), class_=class_)
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=caption)


def picture(image: Tensor, alt: str, **attributes: str) -> Markup:
    """(3, H, W) uint8 as an <img> that carries its bytes."""
    # Small images are shown enlarged, where the traces of JPEG would show too.
    kind, options = ("png", {}) if max(image.shape[-2:]) <= 64 else ("jpeg", {"quality": 88})
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(buffer, kind, **options)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return tag("img", src=f"data:image/{kind};base64,{data}", alt=alt, **attributes)
