"""The order in which a `java.util.HashMap<Long, …>` is iterated, which is the order of the producers in a snapshot file.

Buckets in turn; within a bucket the order of insertion at its end (`put`) or its beginning (`computeIfAbsent`). A bucket of more
than eight keys becomes a red-black tree in a table of at least 64 buckets (a smaller table doubles instead): then a new key stands behind
its parent in the tree, and the root in front. So the trees are built, too. Source: the JDK's HashMap, whose order is the same since Java 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.storage.java_values import to_int

if TYPE_CHECKING:
    from collections.abc import Iterator

_INITIAL_CAPACITY = 16
_MIN_TREEIFY_CAPACITY = 64
_TREEIFY_THRESHOLD = 8
_UNTREEIFY_THRESHOLD = 6


class _Node:
    __slots__ = ("hash", "is_red", "key", "left", "parent", "right")

    def __init__(self, key: int) -> None:
        self.key = key
        self.hash = _spread(key)
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.is_red = False

    def is_above(self, other: _Node) -> bool:
        """Whether this key goes to the right of the other one."""
        return (self.hash, self.key) > (other.hash, other.key)


class _Bin:
    """A bucket: its nodes in the order of iteration, and the tree's root where it is a tree."""

    __slots__ = ("nodes", "root")

    def __init__(self, nodes: list[_Node] | None = None) -> None:
        self.nodes = nodes if nodes is not None else []
        self.root: _Node | None = None

    def treeify(self) -> None:
        self.root = None
        for node in self.nodes:
            node.left = node.right = None
            self._hang(node)
        self._root_to_front()

    def add_to_tree(self, node: _Node) -> None:
        parent = self._hang(node)
        self.nodes.insert(self.nodes.index(parent) + 1 if parent is not None else 0, node)
        self._root_to_front()

    def _hang(self, node: _Node) -> _Node | None:
        """Put the node under its parent and balance the tree; -> the parent it was put under."""
        parent: _Node | None = None
        below = self.root
        while below is not None:
            parent = below
            below = below.right if node.is_above(below) else below.left
        node.parent = parent
        if parent is not None:
            if node.is_above(parent):
                parent.right = node
            else:
                parent.left = node
        self._balance(node)
        return parent

    def _root_to_front(self) -> None:
        if self.root is not None and self.nodes[0] is not self.root:
            self.nodes.remove(self.root)
            self.nodes.insert(0, self.root)

    def _balance(self, node: _Node) -> None:
        """Red-black insertion as in Cormen, Leiserson, Rivest, Stein."""
        node.is_red = True
        while (parent := node.parent) is not None and parent.is_red and (grand := parent.parent) is not None:
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle is not None and uncle.is_red:
                uncle.is_red = parent.is_red = False
                grand.is_red = True
                node = grand
                continue
            if node is (parent.right if on_left else parent.left):
                self._rotate(parent, to_left=on_left)
                node, parent = parent, node
            parent.is_red = False
            grand.is_red = True
            self._rotate(grand, to_left=not on_left)
        if node.parent is None:
            self.root = node
        if self.root is not None:
            self.root.is_red = False

    def _rotate(self, node: _Node, *, to_left: bool) -> None:
        child = node.right if to_left else node.left
        assert child is not None
        moved = child.left if to_left else child.right
        if to_left:
            node.right, child.left = moved, node
        else:
            node.left, child.right = moved, node
        if moved is not None:
            moved.parent = node
        child.parent = node.parent
        if node.parent is None:
            self.root = child
        elif node.parent.left is node:
            node.parent.left = child
        else:
            node.parent.right = child
        node.parent = child

    def split(self, bit: int) -> tuple[_Bin, _Bin]:
        """The two buckets that this one becomes in a table twice as large."""
        low = _Bin([node for node in self.nodes if not node.hash & bit])
        high = _Bin([node for node in self.nodes if node.hash & bit])
        if self.root is not None:
            for part, other in ((low, high), (high, low)):
                if len(part.nodes) <= _UNTREEIFY_THRESHOLD:
                    continue
                if other.nodes:
                    part.treeify()
                else:
                    part.root = self.root
        return low, high


class HashOrder:
    """The keys of the map; what `put` and `compute_if_absent` are given is not in it yet."""

    __slots__ = ("_count", "_table")

    def __init__(self) -> None:
        self._table = [_Bin() for _ in range(_INITIAL_CAPACITY)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for found in self._table:
            for node in found.nodes:
                yield node.key

    def put(self, key: int) -> None:
        """HashMap.put."""
        node = _Node(key)
        found = self._bin(node)
        if found.root is not None:
            found.add_to_tree(node)
        else:
            found.nodes.append(node)
            if len(found.nodes) > _TREEIFY_THRESHOLD:
                self._treeify(found)
        self._count += 1
        self._grow_if_full()

    def before_compute_if_absent(self) -> None:
        """What HashMap.computeIfAbsent does first, whether the key is in the map or not."""
        self._grow_if_full()

    def compute_if_absent(self, key: int) -> None:
        """HashMap.computeIfAbsent, behind `before_compute_if_absent`."""
        node = _Node(key)
        found = self._bin(node)
        if found.root is not None:
            found.add_to_tree(node)
        else:
            found.nodes.insert(0, node)
            if len(found.nodes) >= _TREEIFY_THRESHOLD:
                self._treeify(found)
        self._count += 1

    def remove(self, key: int) -> None:
        """HashMap.remove, of a key that is in the map.

        In a tree the rest is hung anew in the order in which it stands; Java mends the tree instead, which may order later keys otherwise.
        """
        found = self._bin(_Node(key))
        found.nodes = [node for node in found.nodes if node.key != key]
        if found.root is not None:
            if len(found.nodes) > _UNTREEIFY_THRESHOLD:
                found.treeify()
            else:
                found.root = None
        self._count -= 1

    def clear(self) -> None:
        """HashMap.clear: the table keeps its size."""
        self._table = [_Bin() for _ in self._table]
        self._count = 0

    def _bin(self, node: _Node) -> _Bin:
        return self._table[node.hash & (len(self._table) - 1)]

    def _treeify(self, found: _Bin) -> None:
        if len(self._table) < _MIN_TREEIFY_CAPACITY:
            self._resize()
        else:
            found.treeify()

    def _grow_if_full(self) -> None:
        if self._count > len(self._table) * 3 // 4:
            self._resize()

    def _resize(self) -> None:
        bit = len(self._table)
        halves = [found.split(bit) for found in self._table]
        self._table = [low for low, _ in halves] + [high for _, high in halves]


def _spread(key: int) -> int:
    bits = key & 0xFFFF_FFFF_FFFF_FFFF
    hashed = (bits ^ (bits >> 32)) & 0xFFFF_FFFF
    return to_int(hashed ^ (hashed >> 16))
