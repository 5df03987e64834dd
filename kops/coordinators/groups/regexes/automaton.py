"""Matches whole texts in linear time with a nondeterministic automaton that caches its steps (like RE2J's Machine and DFA)."""

from __future__ import annotations

from typing import Final

from kops.coordinators.groups.regexes.tree import Alternate, Assertion, Chars, Concat, Node, Repeat, mask_of, mask_of_text

_WORD: Final = mask_of(48, 57) | mask_of(65, 90) | mask_of(97, 122) | mask_of_text("_")
_MAX_KEPT: Final = 2000
_State = tuple[frozenset[int], bool, bool]
"""The positions of the automaton, whether the previous character was a word character, and whether this is the beginning of the text."""


class Automaton:
    """A compiled expression."""

    def __init__(self, tree: Node) -> None:
        self._masks: list[int] = []
        self._after: list[list[tuple[Assertion | None, int]]] = []
        """For each position, the positions that are reached without a character, possibly under a condition."""
        self._next: list[int] = []
        start, self._end = self._new(), self._new()
        self._build(tree, start, self._end)
        self._first: _State = (frozenset((start,)), False, True)
        self._kept: dict[tuple[_State, str], _State] = {}

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        state = self._first
        for char in text:
            known = self._kept.get((state, char))
            if known is None:
                known = self._step(state, char)
            state = known
            if not state[0]:
                return False
        return self._end in self._closure(state, next_is_word=False, at_end=True)

    def _new(self) -> int:
        self._masks.append(0)
        self._after.append([])
        self._next.append(-1)
        return len(self._masks) - 1

    def _link(self, start: int, end: int, condition: Assertion | None = None) -> None:
        self._after[start].append((condition, end))

    def _build(self, node: Node, start: int, end: int) -> None:
        """Add the transitions of a node from `start` to `end`."""
        match node:
            case Chars(mask):
                self._masks[start], self._next[start] = mask, end
            case Assertion():
                self._link(start, end, node)
            case Concat(parts):
                for part in parts:
                    middle = self._new()
                    self._build(part, start, middle)
                    start = middle
                self._link(start, end)
            case Alternate(parts):
                for part in parts:
                    inner = self._new()
                    self._link(start, inner)
                    self._build(part, inner, end)
            case Repeat(part, low, high):
                self._build_repeat(part, low, high, start, end)

    def _build_repeat(self, part: Node, low: int, high: int, start: int, end: int) -> None:
        for _ in range(low):
            inner, start_after = self._new(), self._new()
            self._link(start, inner)
            self._build(part, inner, start_after)
            start = start_after
        if high == -1:
            around, inner = self._new(), self._new()
            self._link(start, around)
            self._link(around, inner)
            self._link(around, end)
            self._build(part, inner, around)
            return
        for _ in range(high - low):
            self._link(start, end)
            inner, start_after = self._new(), self._new()
            self._link(start, inner)
            self._build(part, inner, start_after)
            start = start_after
        self._link(start, end)

    def _closure(self, state: _State, *, next_is_word: bool, at_end: bool) -> set[int]:
        places, before_is_word, at_start = state
        is_boundary = before_is_word != next_is_word
        holds = {
            None: True,
            Assertion.BEGIN: at_start,
            Assertion.END: at_end,
            Assertion.WORD_BOUNDARY: is_boundary,
            Assertion.NO_WORD_BOUNDARY: not is_boundary,
        }
        reached = set(places)
        waiting = list(places)
        while waiting:
            for condition, place in self._after[waiting.pop()]:
                if place not in reached and holds[condition]:
                    reached.add(place)
                    waiting.append(place)
        return reached

    def _step(self, state: _State, char: str) -> _State:
        bit = 1 << ord(char) if char < "\x80" else 0
        is_word = bool(bit & _WORD)
        reached = self._closure(state, next_is_word=is_word, at_end=False)
        after: _State = (frozenset(self._next[place] for place in reached if self._masks[place] & bit), is_word, False)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[state, char] = after
        return after
