"""Java's hash codes and the iteration order of its hash maps, for the producers in a snapshot and the keys in meta.properties.

HashMap (`HashOrder`) is iterated bucket by bucket. A bucket is in order of insertion, at its end (`put`) or its beginning
(`computeIfAbsent`). In a table of at least 64 buckets, a bucket of more than eight keys becomes a red-black tree (a smaller table doubles
instead). A new key then comes after its parent in the tree, and the root is first, so this module also builds the trees. ConcurrentHashMap,
the base of Properties, has another order (`store_order`). Sources: the JDK's HashMap, ConcurrentHashMap, String.hashCode, Long.hashCode,
the same since Java 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from kops.config.values.java import to_int

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

K = TypeVar("K", int, str)

_KEPT_PARTITIONS = 4096
_INITIAL_CAPACITY = 16
_MIN_TREEIFY_CAPACITY = 64
_TREEIFY_THRESHOLD = 8
_UNTREEIFY_THRESHOLD = 6


def string_hash(text: str) -> int:
    """Return the 32 bits of String.hashCode."""
    value = 0
    for unit in utf16(text):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value


@lru_cache(_KEPT_PARTITIONS)
def partition_of(text: str, count: int) -> int:
    """Return the partition of an id, out of `count`, as coordinators do: Java's hash code, made non-negative by Kafka's Utils.abs.

    It is cached, because a transactional id is looked up more than a dozen times in a transaction.
    """
    code = string_hash(text)
    if code >= 1 << 31:
        code = (1 << 32) - code
    return 0 if code == 1 << 31 else code % count


def long_hash(value: int) -> int:
    """Return the 32 bits of Long.hashCode."""
    bits = value & 0xFFFF_FFFF_FFFF_FFFF
    return (bits ^ bits >> 32) & 0xFFFF_FFFF


def utf16(text: str) -> list[int]:
    """Return the text's UTF-16 units, which are Java's chars."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[i] | data[i + 1] << 8 for i in range(0, len(data), 2)]


def _spread(key: int | str) -> int:
    """Return the hash that a hash map computes from a key's hash code."""
    code = string_hash(key) if isinstance(key, str) else long_hash(key)
    return to_int(code ^ code >> 16)


class _Node(Generic[K]):
    __slots__ = ("hash", "is_red", "key", "left", "parent", "right")

    def __init__(self, key: K) -> None:
        self.key: K = key
        self.hash = _spread(key)
        self.parent: _Node[K] | None = None
        self.left: _Node[K] | None = None
        self.right: _Node[K] | None = None
        self.is_red = False

    def is_above(self, other: _Node[K]) -> bool:
        """Whether this key belongs to the right of the other one."""
        if isinstance(self.key, str) and isinstance(other.key, str):
            return (self.hash, utf16(self.key)) > (other.hash, utf16(other.key))
        return (self.hash, self.key) > (other.hash, other.key)


class _Bin(Generic[K]):
    """A bucket: its nodes in iteration order, and the root if it is a tree."""

    __slots__ = ("nodes", "root")

    def __init__(self, nodes: list[_Node[K]] | None = None) -> None:
        self.nodes: list[_Node[K]] = nodes if nodes is not None else []
        self.root: _Node[K] | None = None

    def treeify(self) -> None:
        self.root = None
        for node in self.nodes:
            node.left = node.right = None
            self._hang(node)
        self._root_to_front()

    def add_to_tree(self, node: _Node[K]) -> None:
        parent = self._hang(node)
        self.nodes.insert(self.nodes.index(parent) + 1 if parent is not None else 0, node)
        self._root_to_front()

    def _hang(self, node: _Node[K]) -> _Node[K] | None:
        """Insert the node, balance the tree, and return the node's parent."""
        parent: _Node[K] | None = None
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

    def _balance(self, node: _Node[K]) -> None:
        """Balance after an insertion, as in the red-black tree of Cormen, Leiserson, Rivest, Stein."""
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

    def _rotate(self, node: _Node[K], *, to_left: bool) -> None:
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

    def split(self, bit: int) -> tuple[_Bin[K], _Bin[K]]:
        """Return the two buckets that replace this one in a table of twice the size."""
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


class HashOrder(Generic[K]):
    """The keys of the map, all Long or all String. A key passed to `put` or `compute_if_absent` must not be in the map."""

    __slots__ = ("_count", "_table")

    def __init__(self) -> None:
        self._table: list[_Bin[K]] = [_Bin() for _ in range(_INITIAL_CAPACITY)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for found in self._table:
            for node in found.nodes:
                yield node.key

    def put(self, key: K) -> None:
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
        """Do the first step of HashMap.computeIfAbsent, whether the key is in the map or not."""
        self._grow_if_full()

    def compute_if_absent(self, key: K) -> None:
        """Do the second step of HashMap.computeIfAbsent, after `before_compute_if_absent`."""
        node = _Node(key)
        found = self._bin(node)
        if found.root is not None:
            found.add_to_tree(node)
        else:
            found.nodes.insert(0, node)
            if len(found.nodes) >= _TREEIFY_THRESHOLD:
                self._treeify(found)
        self._count += 1

    def remove(self, key: K) -> None:
        """Remove a key of the map, as HashMap.remove does.

        A tree is rebuilt from its remaining keys in their order. Java repairs the tree instead, which may order later keys differently.
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
        """Remove all keys. As with HashMap.clear, the table keeps its size."""
        if self._count:
            self._table = [_Bin() for _ in self._table]
            self._count = 0

    def _bin(self, node: _Node[K]) -> _Bin[K]:
        return self._table[node.hash & (len(self._table) - 1)]

    def _treeify(self, found: _Bin[K]) -> None:
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


def hash_map_order(keys: Iterable[K]) -> list[K]:
    """Return the distinct keys in the order of a HashMap that was filled with computeIfAbsent, one after the other."""
    asked = list(keys)
    distinct = list(dict.fromkeys(asked))
    if len(distinct) < 2:
        return distinct
    if len(distinct) < _TREEIFY_THRESHOLD:
        # The first table has room for all keys, and a new key comes first in its bucket.
        distinct.reverse()
        distinct.sort(key=lambda key: _spread(key) & (_INITIAL_CAPACITY - 1))
        return distinct
    order: HashOrder[K] = HashOrder()
    seen = set()
    for key in asked:
        order.before_compute_if_absent()
        if key not in seen:
            seen.add(key)
            order.compute_if_absent(key)
    return list(order)


def put_order(keys: Iterable[K], size: int = 16) -> list[K]:
    """Return the distinct keys in the order of a HashMap that was filled with put: bin by bin, and within a bin by insertion.

    `size` is the number of bins at the beginning, a power of two. More than seven keys in one bin would become a tree, which is not
    supported.
    """
    found = list(dict.fromkeys(keys))
    while len(found) > size * 3 // 4:
        size *= 2
    return sorted(found, key=lambda key: _spread(key) & (size - 1))


def store_order(keys: Iterable[str]) -> list[str]:
    """Return the order in which Properties.store (Java 9 and later) writes keys that were set in the given order.

    It is that of a ConcurrentHashMap whose table starts with 16 bins and doubles at three quarters: bin by bin, and within a bin by
    insertion, until a doubling reverses parts of it. More than seven keys in one bin would become a tree, which is not supported.
    """
    bins: list[list[tuple[int, str]]] = [[] for _ in range(16)]
    for count, key in enumerate(dict.fromkeys(keys), 1):
        hashed = _spread(key)
        bins[hashed & (len(bins) - 1)].append((hashed, key))
        if count >= len(bins) * 3 // 4:
            halves = [_split_bin(nodes, len(bins)) for nodes in bins]
            bins = [low for low, _ in halves] + [high for _, high in halves]
    return [key for nodes in bins for _, key in nodes]


def scala_map_order(numbers: Iterable[int]) -> list[int]:
    """Return the numbers from 0 to 65535 in the order of Scala's mutable.HashMap[Int, _]: bin by bin, and within a bin by size."""
    found = list(numbers)
    size = 16
    while len(found) >= size * 3 // 4:
        size *= 2
    return sorted(found, key=lambda number: (number & (size - 1), number))


def _split_bin(nodes: list[tuple[int, str]], bit: int) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return a bin's two halves after the table doubled. The last run of one half keeps its order, and all nodes before it are added at the
    front one by one.
    """
    run = len(nodes)
    while run and (run == len(nodes) or nodes[run - 1][0] & bit == nodes[run][0] & bit):
        run -= 1
    low = [node for node in nodes[run:] if not node[0] & bit]
    high = [node for node in nodes[run:] if node[0] & bit]
    for node in nodes[:run]:
        (high if node[0] & bit else low).insert(0, node)
    return low, high
