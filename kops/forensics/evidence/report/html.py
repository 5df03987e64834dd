"""HTML as values: whatever is not markup is escaped, so that no name in a case becomes part of the page.

Characters that are not printable (controls, marks that change the direction of text, bytes of a name that are not UTF-8) are shown as
escapes.
"""

from __future__ import annotations

from html import escape
from typing import Final

_VOID: Final = frozenset(("meta", "link", "br", "hr"))


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str) -> str:
    """Text in which nothing is hidden: characters that are not printable become escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(each: str) -> str:
    code = ord(each)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return each.encode("unicode_escape", "surrogatepass").decode("ascii")


def text(value: object) -> Markup:
    """Any value as escaped text."""
    return value if isinstance(value, Markup) else Markup(escape(visible(str(value))))


def join(parts: list[Markup], between: str = "") -> Markup:
    """Markup one after the other."""
    return Markup(between.join(parts))


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is `class`, and `_` within a name is `-`. An attribute that is None or False is left out; True has no value."""
    shown = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        shown.append(f" {word}" if value is True else f' {word}="{escape(visible(str(value)))}"')
    start = f"<{name}{''.join(shown)}>"
    if name in _VOID:
        return Markup(start)
    return Markup(f"{start}{''.join(text(child) for child in children if child is not None)}</{name}>")
