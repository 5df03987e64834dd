"""Regular expressions of consumer groups compared with RE2J: the same errors and the same topics. The hash of topics is compared with
hash4j's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.modern.metadata_hash import group_hash, topic_hash
from kops.coordinators.groups.regexes.automaton import Automaton
from kops.coordinators.groups.regexes.parser import Parser, RegexError
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.parts.groups.coordinator_images import Topic

PIECES = r"""
a b foo bar - _ . x1 0 7 * + ? *? { } {2} {1,3} {2,} {,3} {1001} {3,2} {a} {11} ( ) (?: (?i) (?i: (?-i) (?P<n> (?<n> (?<m> (?P=n) (?=
(?s-i: (?-) (?U) (?m) | [ ] [^ [a-c] [z-a] [[:alpha:]] [[:^digit:]] [[:foo:]] \d \D \w \W \s \b \B \A \z \Z \Qa.b\E \Q \E \pL \p \pN
\p{Lu} \P{Greek} \p{Foo} \p{^Lu} \x41 \x{61} \x{ \x4 \1 \07 \12 \C \ \. \- \q ^ $ a- -z \u0041 && é \é (?i)k [:alpha:] [a\] []a] [-a]
[a-] [a-\d] [\d-z] [a-b-c]
"""
NAMES = "a b ab foo foobar Foo FOO x1 a.b a-b a_b foo-bar.baz_7 0 77 K k s A1 aaa aaab - _ ."


def _compare(oracle: Oracle, seed: int, count: int) -> tuple[int, int]:
    """Return how many expressions were valid and how many invalid."""
    numbers = random.Random(seed)
    pieces, names = PIECES.split(), NAMES.split()
    compile_theirs = oracle.java_class("com.google.re2j.Pattern").compile
    right = wrong = 0
    for _ in range(count):
        regex = "".join(numbers.choice(pieces) for _ in range(numbers.randint(1, 6)))
        try:
            theirs = compile_theirs(regex)
        except Py4JJavaError as error:
            with pytest.raises(RegexError) as raised:
                Parser(regex).parse()
            assert raised.value.description == error.java_exception.getDescription(), regex
            wrong += 1
            continue
        ours = Automaton(Parser(regex).parse())
        for name in numbers.sample(names, 8):
            assert ours.matches(name) == theirs.matcher(name).matches(), (regex, name)
        right += 1
    return right, wrong


def test_random_regexes(oracle: Oracle) -> None:
    right, wrong = _compare(oracle, 1, 150)
    assert right > 20 and wrong > 20


@pytest.mark.slow
def test_many_random_regexes(oracle: Oracle, seed_count: int | None) -> None:
    for seed in range(seed_count or 3):
        _compare(oracle, 100 + seed, 500)


def test_hashes(oracle: Oracle) -> None:
    java = JavaCoordinators(oracle)
    utils = oracle.java_class(f"{KAFKA}coordinator.group.Utils")
    numbers = random.Random(3)
    topics = {f"t{'ö' * size}{size}": (numbers.randbytes(16), count) for size, count in enumerate((1, 3, 9, 20, 60, 300))}
    image = java.image(topics)
    hashes = {name: topic_hash(Topic(name, *topic)) for name, topic in topics.items()}
    assert hashes == {name: utils.computeTopicHash(name, image) for name in topics}
    for count in range(len(topics) + 1):
        some = dict(list(hashes.items())[:count])
        theirs = oracle.jvm.java.util.HashMap()
        for name, value in some.items():
            theirs.put(name, java.long(value))
        assert group_hash(some) == utils.computeGroupHash(theirs)


@dataclass(frozen=True)
class RackedTopic(Topic):
    """A topic whose partition n is on n + 1 brokers in racks."""

    racks: tuple[str | None, ...] = ()

    def partition_racks(self, partition: int) -> list[str]:
        """Return the known racks."""
        return [rack for rack in self.racks[: partition + 1] if rack is not None]


def test_hash_with_racks(oracle: Oracle) -> None:
    java = JavaCoordinators(oracle)
    racks = ("rack-b", None, "ä", "rack-a", "rack-b")
    ours = topic_hash(RackedTopic("orders", bytes(range(16)), 5, racks))
    theirs = oracle.java_class(f"{KAFKA}coordinator.group.Utils").computeTopicHash
    assert ours == theirs("orders", java.image({"orders": (bytes(range(16)), 5)}, racks))
    assert ours != topic_hash(Topic("orders", bytes(range(16)), 5))
