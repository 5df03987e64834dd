"""The base class of the generated messages.

A message compiles the reader and the writer of a version when that version is first read or written.
"""

from __future__ import annotations

from typing import ClassVar, Self

from kops.errors import ApiError
from kops.protocol.primitives import Buffer, read_message, write_message
from kops.protocol.structure import UNSET, ZERO_UUID, Encoded, Field, Reader, Records, Struct, Writer, parse_versions

__all__ = ["UNSET", "ZERO_UUID", "Field", "Message", "Records", "Struct"]


class Message(Struct):
    """A structure with versions, which is sent over the wire or stored in a record. `API_KEY` is the key of a request or of a record
    type."""

    __slots__ = ()
    KIND: ClassVar[str]  # request, response, header, data, metadata, coordinator-key, coordinator-value
    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range]
    FLEXIBLE: ClassVar[str]
    UNSTABLE_VERSION: ClassVar[int | None] = None  # the last version if it is not stable yet
    READERS: ClassVar[dict[int, Reader]]
    WRITERS: ClassVar[dict[int, Writer]]

    def __init_subclass__(cls) -> None:
        cls.READERS = {}
        cls.WRITERS = {}

    @classmethod
    def read(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """Return (message, position after it). `records` are views of the buffer, everything else is copied.

        Raises DecodeError if the bytes are not this version of the message, ApiError (UNSUPPORTED_VERSION) if there is no such version.
        """
        return read_message(cls, buffer, version, position)

    @classmethod
    def new_reader(cls, version: int) -> Reader:
        """Compile the reader of a version. Raises ApiError (UNSUPPORTED_VERSION) if there is no such version."""
        from kops.protocol.read_compiler import compile_reader

        reader = cls.READERS[version] = compile_reader(cls, cls.check_version(version), flexible=cls.is_flexible(version))
        return reader

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """Read from the first byte. As in Kafka, bytes after the message are ignored."""
        return cls.read(buffer, version)[0]

    def write(self, version: int, prefix: bytearray | None = None) -> list[Encoded]:
        """Return the buffers of this message. The first one begins with `prefix`. Records are put between them as objects, without a copy.

        Raises ApiError: UNSUPPORTED_VERSION if there is no such version or if it can't represent a value that is set; UNKNOWN_SERVER_ERROR
        (a broker's code for Java's RuntimeException) if a text is too long or the unknown tagged fields are not in order.
        """
        return write_message(self, version, prefix)

    @classmethod
    def new_writer(cls, version: int) -> Writer:
        """Compile the writer of a version. Raises ApiError (UNSUPPORTED_VERSION) if there is no such version."""
        from kops.protocol.write_compiler import compile_writer

        writer = cls.WRITERS[version] = compile_writer(cls, cls.check_version(version), flexible=cls.is_flexible(version))
        return writer

    def encode(self, version: int, prefix: bytearray | None = None) -> bytes:
        """Return all bytes of a message whose records, if any, are in memory, behind `prefix`. Raises the errors of `write`."""
        return b"".join(self.write(version, prefix))  # type: ignore[arg-type]  # a FileSlice here is the caller's error

    @classmethod
    def check_version(cls, version: int) -> int:
        """Return the version. Raises ApiError (UNSUPPORTED_VERSION) if this message does not have it."""
        if version not in cls.VERSIONS:
            raise ApiError("UNSUPPORTED_VERSION", f"{cls.__name__} has no version {version}")
        return version

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return version in parse_versions(cls.FLEXIBLE)
