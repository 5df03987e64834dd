"""The syntax of regular expressions (RE2J's Parser with RE2.PERL, which is Go's regexp/syntax)."""

from __future__ import annotations

from typing import Final

from kops.coordinators.groups.regexes.classes import OTHER_UNICODE, PERL, POSIX, UNICODE
from kops.coordinators.groups.regexes.tree import ALL, NEWLINE, Alternate, Assertion, Chars, Concat, Node, Repeat, folded, mask_of
from kops.errors import KopsError

_MAX_REPEAT: Final = 1000
_MAX_RUNE: Final = 0x10FFFF
_FOLD, _DOT_NL, _MULTI_LINE, _SWAP_GREED = 1, 2, 4, 8
_FLAGS: Final = {"i": _FOLD, "s": _DOT_NL, "m": _MULTI_LINE, "U": _SWAP_GREED}
_ESCAPES: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


class RegexError(KopsError):
    """The text is not a regular expression. `description` is RE2J's error text (PatternSyntaxException.getDescription)."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


class _Frame:
    """An open parenthesis: the flags before it, and the alternatives and parts after it."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.branches: list[Node] = []
        self.parts: list[Node] = []

    def close(self) -> Node:
        """Return the node of the parentheses."""
        self.branches.append(Concat(tuple(self.parts)))
        return self.branches[0] if len(self.branches) == 1 else Alternate(tuple(self.branches))


class Parser:
    """Parses one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = 0
        self._frames = [_Frame(0)]
        self._names: set[str] = set()
        self._after_repeat = False

    def parse(self) -> Node:
        """Return the tree. Raises RegexError."""
        while self._at < len(self._text):
            was_after_repeat, self._after_repeat = self._after_repeat, False
            char = self._text[self._at]
            match char:
                case "(":
                    self._open()
                case "|":
                    self._at += 1
                    frame = self._frames[-1]
                    frame.branches.append(Concat(tuple(frame.parts)))
                    frame.parts = []
                case ")":
                    self._close()
                case "^" | "$":
                    self._at += 1
                    self._add(Assertion.BEGIN if char == "^" else Assertion.END)
                case ".":
                    self._at += 1
                    self._add(Chars(ALL if self._flags & _DOT_NL else ALL & ~NEWLINE))
                case "[":
                    self._add(Chars(self._class()))
                case "*" | "+" | "?":
                    self._at += 1
                    low, high = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[char]
                    self._repeat(low, high, was_after_repeat)
                case "{":
                    self._braces(was_after_repeat)
                case "\\":
                    self._backslash()
                case _:
                    self._at += 1
                    self._add_literal(ord(char))
        if len(self._frames) > 1:
            raise RegexError("missing closing )")
        return self._frames[0].close()

    def _add(self, node: Node) -> None:
        self._frames[-1].parts.append(node)

    def _add_literal(self, rune: int) -> None:
        self._add(Chars(self._with_case(rune, rune)))

    def _with_case(self, low: int, high: int) -> int:
        mask = mask_of(low, high)
        if self._flags & _FOLD:
            mask = folded(mask)
            # The Kelvin sign is a k, the long s an s.
            for rune, char in ((0x212A, "k"), (0x17F, "s")):
                if low <= rune <= high:
                    mask |= folded(1 << ord(char))
        return mask

    # Parentheses

    def _open(self) -> None:
        if self._text.startswith("(?", self._at):
            self._open_perl()
        else:
            self._at += 1
            self._frames.append(_Frame(self._flags))

    def _open_perl(self) -> None:
        """Parse named groups and flags."""
        rest = self._text[self._at :]
        named = 4 if rest.startswith("(?P<") else 3 if rest.startswith("(?<") else 0
        if named:
            end = rest.find(">")
            if end < 0:
                raise RegexError("invalid named capture")
            name = rest[named:end]
            if not name or not all(char == "_" or (char.isascii() and char.isalnum()) for char in name):
                raise RegexError("invalid named capture")
            if name in self._names:
                raise RegexError("duplicate capture group name")
            self._names.add(name)
            self._at += end + 1
            self._frames.append(_Frame(self._flags))
            return
        flags, sign, has_flag = self._flags, 1, False
        for index, char in enumerate(rest[2:], 2):
            if char in _FLAGS:
                flags = flags | _FLAGS[char] if sign > 0 else flags & ~_FLAGS[char]
                has_flag = True
            elif char == "-" and sign > 0:
                sign, has_flag = -1, False
            elif char in ":)" and (sign > 0 or has_flag):
                if char == ":":
                    self._frames.append(_Frame(self._flags))
                self._flags = flags
                self._at += index + 1
                return
            else:
                break
        raise RegexError("invalid or unsupported Perl syntax")

    def _close(self) -> None:
        if len(self._frames) == 1:
            raise RegexError("regexp/syntax: internal error")  # RE2J's text for an unmatched closing parenthesis
        self._at += 1
        frame = self._frames.pop()
        self._flags = frame.flags
        self._add(frame.close())

    # Repetitions

    def _braces(self, was_after_repeat: bool) -> None:
        end = self._text.find("}", self._at)
        bounds = None if end < 0 else _bounds(self._text[self._at + 1 : end])
        if bounds is None:
            self._at += 1
            self._add_literal(ord("{"))
            self._after_repeat = True  # RE2J treats it as a repetition when it parses the next part
            return
        self._at = end + 1
        low, high = bounds
        if low < 0 or low > _MAX_REPEAT or high > _MAX_REPEAT or 0 <= high < low:
            raise RegexError("invalid repeat count")
        self._repeat(low, high, was_after_repeat, counted=True)

    def _repeat(self, low: int, high: int, was_after_repeat: bool, *, counted: bool = False) -> None:
        if self._text.startswith("?", self._at):
            self._at += 1
        if was_after_repeat:
            raise RegexError("invalid nested repetition operator")
        parts = self._frames[-1].parts
        if not parts:
            raise RegexError("missing argument to repetition operator")
        parts[-1] = Repeat(parts[-1], low, high)
        if counted and (low >= 2 or high >= 2) and not _is_small(parts[-1], _MAX_REPEAT):
            raise RegexError("invalid repeat count")
        self._after_repeat = True

    # Escapes

    def _backslash(self) -> None:
        char = self._text[self._at + 1 : self._at + 2]
        assertions = {"A": Assertion.BEGIN, "z": Assertion.END, "b": Assertion.WORD_BOUNDARY, "B": Assertion.NO_WORD_BOUNDARY}
        if char in assertions:
            self._at += 2
            self._add(assertions[char])
        elif char == "C":
            raise RegexError("invalid escape sequence")
        elif char == "Q":
            end = self._text.find("\\E", self._at + 2)
            literal = self._text[self._at + 2 :] if end < 0 else self._text[self._at + 2 : end]
            self._at = len(self._text) if end < 0 else end + 2
            for quoted in literal:
                self._add_literal(ord(quoted))
        elif (mask := self._named_class()) is not None:
            self._add(Chars(mask))
        else:
            self._add_literal(self._escape())

    def _named_class(self) -> int | None:
        r"""Parse a class after a backslash, such as \d, \pN, \p{Greek}. Returns None if there is none."""
        char = self._text[self._at + 1 : self._at + 2]
        if char in PERL:
            self._at += 2
            return PERL[char]
        return self._unicode_class() if char in ("p", "P") else None

    def _unicode_class(self) -> int:
        start = self._at + 2
        is_negated = self._text[self._at + 1] == "P"
        if start >= len(self._text):
            raise RegexError("invalid character class range")
        if self._text[start] == "{":
            end = self._text.find("}", start)
            if end < 0:
                raise RegexError("invalid character class range")
            name, self._at = self._text[start + 1 : end], end + 1
        else:
            name, self._at = self._text[start], start + 1
        if name.startswith("^"):
            is_negated, name = not is_negated, name[1:]
        mask = UNICODE.get(name)
        if mask is None:
            if name not in OTHER_UNICODE:
                raise RegexError("invalid character class range")
            mask = 0
        if self._flags & _FOLD:
            mask = folded(mask)
        return ALL & ~mask if is_negated else mask

    def _escape(self) -> int:
        """Parse a character after a backslash."""
        self._at += 1
        if self._at >= len(self._text):
            raise RegexError("trailing backslash at end of expression")
        char = self._text[self._at]
        self._at += 1
        if char in "1234567":
            # A single digit would be a backreference, which RE2J does not support.
            if not self._text[self._at : self._at + 1] or self._text[self._at] not in "01234567":
                raise RegexError("invalid escape sequence")
            return self._octal(char)
        if char == "0":
            return self._octal(char)
        if char == "x":
            return self._hex()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isascii() and char.isalnum():
            raise RegexError("invalid escape sequence")
        return ord(char)

    def _octal(self, char: str) -> int:
        digits = char
        while len(digits) < 3 and self._text[self._at : self._at + 1] and self._text[self._at] in "01234567":
            digits += self._text[self._at]
            self._at += 1
        return int(digits, 8)

    def _hex(self) -> int:
        if self._text.startswith("{", self._at):
            end = self._text.find("}", self._at)
            digits = "" if end < 0 else self._text[self._at + 1 : end]
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits) or int(digits, 16) > _MAX_RUNE:
            raise RegexError("invalid escape sequence")
        return int(digits, 16)

    # Classes in brackets

    def _class(self) -> int:
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        if is_negated:
            self._at += 1
        mask, is_first = 0, True
        while True:
            if self._at >= len(self._text):
                raise RegexError("missing closing ]")
            if self._text[self._at] == "]" and not is_first:
                break
            is_first = False
            mask |= self._class_part()
        self._at += 1
        return ALL & ~mask if is_negated else mask

    def _class_part(self) -> int:
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at + 2)
            if end >= 0:
                name = self._text[self._at + 2 : end]
                mask = POSIX.get(name.removeprefix("^"))
                if mask is None:
                    raise RegexError("invalid character class range")
                self._at = end + 2
                mask = folded(mask) if self._flags & _FOLD else mask
                return ALL & ~mask if name.startswith("^") else mask
        if self._text[self._at] == "\\" and (named := self._named_class()) is not None:
            return named
        low = high = self._class_char()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._class_char()
            if high < low:
                raise RegexError("invalid character class range")
        return self._with_case(low, high)

    def _class_char(self) -> int:
        if self._at >= len(self._text):
            raise RegexError("missing closing ]")
        if self._text[self._at] == "\\":
            return self._escape()
        self._at += 1
        return ord(self._text[self._at - 1])


def _bounds(text: str) -> tuple[int, int] | None:
    """Parse the text between braces: 3 or 3, or 3,5. Numbers that are too long count as -1."""
    low_text, comma, high_text = text.partition(",")
    if not _is_number(low_text) or (high_text and not _is_number(high_text)):
        return None
    low = _number(low_text)
    if not comma:
        return low, low
    if not high_text:
        return low, -1
    high = _number(high_text)
    return (-1 if high < 0 else low), high


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and not (len(text) >= 2 and text[0] == "0")


def _number(text: str) -> int:
    return int(text) if int(text) < 10**8 else -1


def _is_small(node: Node, limit: int) -> bool:
    """Whether the product of nested counted repetitions stays below the limit."""
    match node:
        case Repeat(part, low, high):
            count = high
            if high == 0:
                return True
            if high < 0:
                count = low
            if count > limit:
                return False
            return _is_small(part, limit // count if count > 0 else limit)
        case Concat(parts) | Alternate(parts):
            return all(_is_small(part, limit) for part in parts)
    return True
