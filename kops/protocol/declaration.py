"""What the generated messages are declared with: messages, and the fields and structures in them.

A message compiles the reader and the writer of a version when the first bytes of that version come or go.
"""

from __future__ import annotations

from typing import ClassVar, Self

from kops.errors import ApiError
from kops.protocol.primitives import Buffer
from kops.protocol.structure import UNSET, ZERO_UUID, Encoded, Field, Reader, Records, Struct, Writer, parse_versions

__all__ = ["UNSET", "ZERO_UUID", "Field", "Message", "Records", "Struct"]


class Message(Struct):
    """A structure that goes over the wire or into a record, in versions. `API_KEY` is a request's, or a record type's."""

    __slots__ = ()
    KIND: ClassVar[str]  # request, response, header, data, metadata, coordinator-key, coordinator-value
    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range]
    FLEXIBLE: ClassVar[str]
    UNSTABLE_VERSION: ClassVar[int | None] = None  # the last version, where it is not stable yet
    READERS: ClassVar[dict[int, Reader]]
    WRITERS: ClassVar[dict[int, Writer]]

    def __init_subclass__(cls) -> None:
        cls.READERS = {}
        cls.WRITERS = {}

    @classmethod
    def read(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """-> (message, position behind it). `records` are views of the buffer, everything else is copied.

        DecodeError where the bytes are not this version of the message; ApiError (UNSUPPORTED_VERSION) where there is no such version.
        """
        reader = cls.READERS.get(version)
        if reader is None:
            from kops.protocol.read_compiler import compile_reader

            reader = cls.READERS[version] = compile_reader(cls, cls.check_version(version), flexible=cls.is_flexible(version))
        return reader(buffer, position)

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """`read` from the first byte on. Bytes behind the message are not looked at, as in Kafka."""
        return cls.read(buffer, version)[0]

    def write(self, version: int, prefix: bytearray | None = None) -> list[Encoded]:
        """The buffers of this message, the first of them begun with `prefix`; records are put between as the objects they are, not copied.

        ApiError: UNSUPPORTED_VERSION where there is no such version or it can't carry a value that is set; UNKNOWN_SERVER_ERROR, what a
        broker makes of Java's RuntimeException, where a text is too long or the unknown tagged fields are not in order.
        """
        writer = self.WRITERS.get(version)
        if writer is None:
            from kops.protocol.write_compiler import compile_writer

            writer = self.WRITERS[version] = compile_writer(type(self), self.check_version(version), flexible=self.is_flexible(version))
        buffers: list[Encoded] = []
        last = writer(self, buffers, bytearray() if prefix is None else prefix)
        if last or not buffers:
            buffers.append(last)
        return buffers

    def encode(self, version: int) -> bytes:
        """All bytes of a message whose records, if it has any, are in memory. Raises what `write` does."""
        return b"".join(self.write(version))  # type: ignore[arg-type]  # a FileSlice here is the caller's error

    @classmethod
    def check_version(cls, version: int) -> int:
        """The version; ApiError (UNSUPPORTED_VERSION) where this message has none of that number."""
        if version not in cls.VERSIONS:
            raise ApiError("UNSUPPORTED_VERSION", f"{cls.__name__} has no version {version}")
        return version

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return version in parse_versions(cls.FLEXIBLE)
