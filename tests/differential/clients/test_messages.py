"""Messages of kops through Kafka's own generated classes, which read and write them with the same bytes and the same JSON."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.errors import DecodeError
from kops.protocol import api_keys, errors, json_text
from kops.protocol.declaration import Message
from kops.protocol.messages import TransactionLogKey
from kops.protocol.structure import parse_versions
from tests.support.kafka.oracle import Oracle
from tests.support.requests.messages import all_versions, random_message, seeded

PACKAGES = (
    "org.apache.kafka.common.message",
    "org.apache.kafka.common.metadata",
    "org.apache.kafka.coordinator.group.generated",
    "org.apache.kafka.coordinator.transaction.generated",
    "org.apache.kafka.coordinator.share.generated",
    "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "org.apache.kafka.storage.internals.log.generated",
    "org.apache.kafka.raft.generated",
)
FAST_COUNT = 300
SLOW_COUNT = 4000


class JavaMessages:
    """Kafka's classes of the messages, by kops's names."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
        self.wrap = oracle.java_class("java.nio.ByteBuffer").wrap
        self.to_buffer = oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor
        self.found: dict[str, tuple[Any, Any]] = {}
        self.shorts: dict[int, Any] = {}

    def short(self, number: int) -> Any:
        """Return a Java short, which is made only once."""
        if number not in self.shorts:
            self.shorts[number] = self.oracle.short(number)
        return self.shorts[number]

    def classes(self, name: str) -> tuple[Any, Any]:
        """Return a message's class and its JSON converter."""
        if name not in self.found:
            names = [f"{package}.{name}{suffix}" for package in PACKAGES for suffix in ("", "Data")]
            there = next(one for one in names if self.is_there(f"{one}JsonConverter"))
            self.found[name] = self.oracle.java_class(there), self.oracle.java_class(f"{there}JsonConverter")
        return self.found[name]

    def is_there(self, name: str) -> bool:
        """Return whether the class path has a class."""
        resource = name.replace(".", "/") + ".class"
        return self.oracle.java_class("java.lang.ClassLoader").getSystemResource(resource) is not None

    def through(self, declared: type[Message], version: int, data: bytes) -> tuple[bytes, str]:
        """Return the bytes as Kafka reads and writes them again, and Kafka's JSON of the message."""
        java, converter = self.classes(declared.__name__)
        number = self.short(version)
        message = java(self.accessor(self.wrap(data)), number)
        written = bytes(self.to_buffer(message, number).buffer().array())
        return written, str(converter.write(message, number, False).toString())


@pytest.fixture(scope="module")
def java(oracle: Oracle) -> JavaMessages:
    return JavaMessages(oracle)


def check(java: JavaMessages, declared: type[Message], version: int, seed: int) -> None:
    """Check one random message in both directions."""
    message = random_message(declared, version, seed)
    data = message.encode(version)
    written, text = java.through(declared, version, data)
    assert written == data, (declared, version, seed)
    decoded, end = declared.read(written, version)
    assert (decoded, end) == (message, len(data)), (declared, version, seed)
    assert json_text.json_text(json_text.to_json(decoded, version)) == text, (declared, version, seed)


def test_messages(java: JavaMessages) -> None:
    """Some versions of every message pass, the newest one always."""
    newest = [(declared, version) for declared, version in all_versions() if version == declared.VERSIONS[-1]]
    for declared, version in newest:
        check(java, declared, version, 0)
    for declared, version, seed in list(seeded(FAST_COUNT))[len(newest) :]:
        check(java, declared, version, seed + 1)


@pytest.mark.slow
def test_thousands_of_messages(java: JavaMessages) -> None:
    for declared, version, seed in seeded(SLOW_COUNT):
        check(java, declared, version, seed + 100)


def test_tags_of_other_versions(java: JavaMessages) -> None:
    """A tagged field that only other versions have is no unknown one: both refuse the message."""
    count = 0
    for declared, version in all_versions():
        if not declared.is_flexible(version):
            continue
        for field in declared.FIELDS:
            if field.tag is None or version in parse_versions(field.versions):
                continue
            whole = random_message(declared, version, 1)
            whole.unknown_tagged_fields = ((field.tag, b"\0"),)
            data = whole.encode(version)
            with pytest.raises(Py4JJavaError, match=f"Tag {field.tag} is not valid for version {version}"):
                java.through(declared, version, data)
            with pytest.raises(DecodeError, match=f"tag {field.tag} is not valid for version {version}"):
                declared.read(data, version)
            count += 1
    assert count > 10


def test_texts_that_are_no_utf8(java: JavaMessages) -> None:
    """Each malformed sequence becomes as many U+FFFD as in Java."""
    rng = random.Random(8)
    pieces = (b"a", b"\xc3\xa9", b"\xed\xa0\x80", b"\xed\xbf", b"\xf0\x9f\x8e", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xff", b"\xe2\x82")
    for _ in range(60):
        text = b"".join(rng.choices(pieces, k=6))
        data = len(text).to_bytes(2, "big") + text + bytes(8)
        _, shown = java.through(TransactionLogKey, 0, data)
        assert json_text.json_text(json_text.to_json(TransactionLogKey.decode(data, 0), 0)) == shown, text


def test_the_table_of_error_codes(oracle: Oracle) -> None:
    """Codes, names, exceptions and the properties that their superclasses imply are those of Kafka's enum."""
    found = {}
    for error in oracle.java_class("org.apache.kafka.common.protocol.Errors").values():
        exception = error.exception()
        chain = [] if exception is None else superclasses(exception.getClass())
        found[error.code()] = (error.name(), chain[0] if chain else "", reaction(chain))
    assert found == {error.code: (error.name, error.exception, error.reaction) for error in errors.ERRORS}


def superclasses(java_class: Any) -> list[str]:
    """Return the simple names of a class and its superclasses."""
    names = []
    while java_class is not None:
        names.append(str(java_class.getSimpleName()))
        java_class = java_class.getSuperclass()
    return names


def reaction(chain: list[str]) -> errors.Reaction:
    """Return what the superclasses say about an exception."""
    kinds = {
        "InvalidMetadataException": errors.Reaction.METADATA,
        "RefreshRetriableException": errors.Reaction.REFRESH,
        "RetriableException": errors.Reaction.RETRIABLE,
        "ApplicationRecoverableException": errors.Reaction.RECOVERABLE,
        "InvalidConfigurationException": errors.Reaction.FATAL,
    }
    return next((kind for name, kind in kinds.items() if name in chain), errors.Reaction.PLAIN)


def test_the_table_of_apis(oracle: Oracle) -> None:
    """Keys, names, versions, header versions, listeners and flags are those of Kafka's enum."""
    listeners = oracle.java_class("org.apache.kafka.common.message.ApiMessageType$ListenerType").values()
    fields = {name: oracle.java_class("java.lang.Class").forName(API_KEYS).getField(name) for name in FIELDS}
    found = {}
    for api in oracle.java_class(API_KEYS).values():
        values = {name: field.get(api) for name, field in fields.items()}
        versions = range(api.oldestVersion(), api.latestVersion() + 1)
        headers = [(api.requestHeaderVersion(oracle.short(one)), api.responseHeaderVersion(oracle.short(one))) for one in versions]
        served = frozenset(str(one.name()) for one in listeners if api.inScope(one))
        flags = (values["clusterAction"], values["forwardable"], api.latestVersion(False))
        found[values["id"]] = (api.name(), values["name"], versions, headers, served, flags)
    assert found == {api.key: described(api) for api in api_keys.API_KEYS}


API_KEYS = "org.apache.kafka.common.protocol.ApiKeys"
FIELDS = ("id", "name", "clusterAction", "forwardable")


def described(api: api_keys.ApiKey) -> tuple[object, ...]:
    """Return kops's row in the same form."""
    headers = [(api.request_header_version(one), api.response_header_version(one)) for one in api.versions]
    flags = (api.cluster_action, api.forwardable, api.served_versions().stop - 1)
    return api.constant, api.name, api.versions, headers, frozenset(one.name for one in api.listeners), flags
