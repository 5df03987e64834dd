"""Tests of consumers that Kafka publishes up to 4.0 only, changed so that they run with the classes of the tests' version.

Later versions have these tests in a module whose jar is not published. They are compiled against helpers that have other names since then,
and read the factories of their parameters by name. Both are text in the constant pool of a class file, where it is replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.support.kafka.kafka_jars import CACHE, OLDER_SUITES, OLDER_VERSION, kafka_jars

CLASSES: Final = re.compile(
    r"kafka/api/(PlaintextConsumer(|Assign|Callback|Commit|Fetch|Poll|Subscription)Test|BaseConsumerTest\$(Des|S)erializerImpl"
    r"|ConsumerBounceTest|ConsumerTopicCreationTest|LogAppendTimeTest|ProducerFailureHandlingTest|ProducerIdExpirationTest"
    r"|ProducerSendWhileDeletionTest|TransactionsExpirationTest|TransactionsWithMaxInFlightOneTest)\b"
)
"""The classes, with the names of their files in the jar. All others are those of the tests' version."""
FACTORY: Final = re.compile(r"getTestQuorumAndGroupProtocolParameters(All|ClassicGroupProtocolOnly|ConsumerGroupProtocolOnly)")
MOVED: Final = (
    (re.compile(r"org/apache/kafka/common/record/(?=[A-Z])(?!TimestampType)"), "org/apache/kafka/common/record/internal/"),
    (re.compile(r"org/apache/kafka/test/TestUtils(?![\w$])"), "kops/OlderTestUtils"),
)
UTF8: Final = 1
SIZES: Final = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant by its tag (JVM specification, 4.4). Those with the tags 5 and 6 count twice."""


def older_tests() -> Path:
    """Return a jar with the changed classes, which is kept beside the others. Raises RuntimeError if the jar can't be fetched."""
    said = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    target = CACHE / f"{OLDER_VERSION}-older-{said}.jar"
    source = kafka_jars(OLDER_VERSION, OLDER_SUITES) / f"kafka_2.13-{OLDER_VERSION}-test.jar"
    if not target.exists():
        descriptor, beside = tempfile.mkstemp(prefix=target.name, dir=CACHE)
        with open(descriptor, "wb") as output, zipfile.ZipFile(source) as old, zipfile.ZipFile(output, "w") as new:
            for name in old.namelist():
                if CLASSES.search(name):
                    new.writestr(name, changed(old.read(name)))
        os.replace(beside, target)
    return target


def changed(data: bytes) -> bytes:
    """Return a class file with the names of this version."""
    (count,) = struct.unpack_from(">H", data, 8)
    parts = [data[:10]]
    position, index = 10, 1
    while index < count:
        tag = data[position]
        if tag == UTF8:
            (length,) = struct.unpack_from(">H", data, position + 1)
            text = renamed(data[position + 3 : position + 3 + length])
            parts.append(struct.pack(">BH", UTF8, len(text)) + text)
            position += 3 + length
        else:
            parts.append(data[position : position + 1 + SIZES[tag]])
            position += 1 + SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    return b"".join(parts) + data[position:]


def renamed(text: bytes) -> bytes:
    """Return a constant with the names of this version. Text that is not plain UTF-8 has none of them."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        return text
    factory = FACTORY.fullmatch(name)
    if factory:
        return f"kops.OlderParameters#{factory.group(1).removesuffix('GroupProtocolOnly').lower()}".encode()
    for pattern, replacement in MOVED:
        name = pattern.sub(replacement, name)
    return name.encode()
