"""Compiles the reader of one version of a message, from Python source generated for exactly its fields.

A reader behaves like the `read` methods that Kafka's message generator writes. Where these throw for bad bytes, it raises DecodeError. A
run of fields of fixed size is one `struct` call. The length of a text or an array belongs to the preceding run.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kops.config.values.java import JAVA_UTF8
from kops.errors import DecodeError
from kops.protocol import primitives
from kops.protocol.structure import Field, Reader, Struct, parse_versions

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}


def compile_reader(message: type[Struct], version: int, *, flexible: bool) -> Reader:
    """`(buffer, position) -> (message, position)`; see `Message.read`."""
    source = _ReaderSource(message, version, flexible=flexible)
    namespace = source.namespace
    exec(compile(source.text(), f"<reader of {message.__name__} {version}>", "exec"), namespace)
    reader: Reader = namespace["read"]
    return reader


def _misplaced_tag(name: str, tag: int, version: int, position: int) -> DecodeError:
    """Return the error for a tagged field that another version has."""
    return DecodeError(f"{name}: tag {tag} is not valid for version {version}", code=primitives.BAD_MESSAGE, position=position)


class _ReaderSource:
    def __init__(self, message: type[Struct], version: int, *, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.run: list[tuple[str, str]] = []  # (target of the assignment, struct code)
        self.namespace: dict[str, Any] = {
            "new": object.__new__,
            "struct_error": struct.error,
            "read_varint": primitives.read_varint,
            "ends_early": primitives.ends_early,
            "is_null": primitives.is_null,
            "bad_size": primitives.bad_size,
            "misplaced_tag": _misplaced_tag,
            "unpack_from": struct.unpack_from,
        }
        self.names = 0
        self.has_records = False

    def text(self) -> str:
        self.structure(self.message, "message", 2)
        head = ["def read(buffer, position):", "    size = len(buffer)", *["    view = memoryview(buffer)"] * self.has_records, "    try:"]
        tail = ["    except (IndexError, struct_error):"]
        tail += [f"        raise ends_early({self.message.__name__!r}, position, size) from None", "    return message, position"]
        return "\n".join([*head, *self.lines, *tail])

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def constant(self, stem: str, value: object) -> str:
        """Return a name for a value in the function's globals."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = stem if stem not in self.namespace else self.name(stem + "_")
        self.namespace[name] = value
        return name

    def fixed(self, target: str, code: str) -> None:
        self.run.append((target, code))

    def flush(self, depth: int) -> None:
        if not self.run:
            return
        layout = ">" + "".join(code for _, code in self.run)
        if layout == ">B":
            self.add(depth, f"{self.run[0][0]} = buffer[position]")
            self.add(depth, "position += 1")
            self.run = []
            return
        name = "unpack_" + layout[1:].replace("?", "o")
        compiled = struct.Struct(layout)
        self.namespace.setdefault(name, compiled.unpack_from)
        targets = ", ".join(target for target, _ in self.run) + ("," if len(self.run) == 1 else "")
        self.add(depth, f"{targets} = {name}(buffer, position)")
        self.add(depth, f"position += {compiled.size}")
        self.run = []

    def structure(self, declared: type[Struct], target: str, depth: int) -> None:
        """Read a structure into a local name. Leaves the run empty."""
        self.flush(depth)
        self.add(depth, f"{target} = new({self.constant(declared.__name__, declared)})")
        tagged: list[Field] = []
        misplaced: list[Field] = []
        for field in declared.FIELDS:
            there = self.version in parse_versions(field.versions)
            attribute = f"{target}.{field.name}"
            if not there or field.tag is not None:
                self.default(field, attribute, depth)
                if field.tag is not None:
                    (tagged if there else misplaced).append(field)
            else:
                self.value(field, attribute, depth)
        self.add(depth, f"{target}.unknown_tagged_fields = ()")
        if self.flexible:
            self.tagged(tagged, misplaced, target, declared, depth)
        else:
            self.flush(depth)

    def default(self, field: Field, target: str, depth: int) -> None:
        """Set a field that is not in the bytes. The fields of a structure are set one by one, which takes half the time of a constructor
        call."""
        value = field.default_value()
        if not isinstance(value, Struct):
            self.add(depth, f"{target} = {value!r}")
            return
        local = self.name("default")
        self.add(depth, f"{target} = {local} = new({self.constant(type(value).__name__, type(value))})")
        for inner in value.FIELDS:
            self.default(inner, f"{local}.{inner.name}", depth)
        self.add(depth, f"{local}.unknown_tagged_fields = ()")

    def tagged(self, fields: list[Field], misplaced: list[Field], target: str, declared: type[Struct], depth: int) -> None:
        """Read the tagged fields. `misplaced` are those of other versions, which Kafka's readers refuse."""
        count, tag, unknown = self.name("count"), self.name("tag"), self.name("unknown")
        self.fixed(count, "B")
        self.flush(depth)
        self.add(depth, f"if {count}:")
        self.add(depth + 1, f"if {count} > 127:")
        self.add(depth + 2, f"{count}, position = read_varint(buffer, position - 1)")
        self.add(depth + 1, f"{unknown} = []")
        self.add(depth + 1, f"for _ in range({count}):")
        inner = depth + 2
        self.varint(tag, inner)
        self.varint("length", inner)
        branch = "if"
        for field in fields:
            self.add(inner, f"{branch} {tag} == {field.tag}:")
            self.value(field, f"{target}.{field.name}", inner + 1)
            self.flush(inner + 1)
            branch = "elif"
        for field in misplaced:
            self.add(inner, f"{branch} {tag} == {field.tag}:")
            self.add(inner + 1, f"raise misplaced_tag({declared.__name__!r}, {tag}, {self.version}, position)")
            branch = "elif"
        if fields or misplaced:
            self.add(inner, "else:")
            inner += 1
        self.add(inner, "if not 0 <= length <= size - position:")
        self.add(inner + 1, f"raise bad_size({declared.__name__ + ': an unknown tagged field'!r}, length, size - position, position)")
        self.add(inner, f"{unknown}.append(({tag}, bytes(buffer[position : position + length])))")
        self.add(inner, "position += length")
        self.add(depth + 1, f"{target}.unknown_tagged_fields = tuple({unknown})")

    def varint(self, target: str, depth: int) -> None:
        """Read a variable-length number. Nearly all numbers have one byte, which needs no call."""
        self.add(depth, f"{target} = buffer[position]")
        self.add(depth, "position += 1")
        self.add(depth, f"if {target} > 127:")
        self.add(depth + 1, f"{target}, position = read_varint(buffer, position - 1)")

    def value(self, field: Field, target: str, depth: int) -> None:
        nullable = self.version in parse_versions(field.nullable)
        if field.is_array:
            self.array(field, target, nullable, depth)
        elif field.of is not None:
            self.nested(field, target, nullable, depth)
        else:
            self.plain(field, target, nullable, depth)

    def nested(self, field: Field, target: str, nullable: bool, depth: int) -> None:
        assert field.of is not None
        local = self.name("nested")
        if not nullable:
            self.structure(field.of, local, depth)
            self.add(depth, f"{target} = {local}")
            return
        if field.tag is None:
            self.fixed("there", "b")
            self.flush(depth)
            self.add(depth, "if there < 0:")
        else:
            self.add(depth, "there, position = read_varint(buffer, position)")
            self.add(depth, "if there <= 0:")
        self.add(depth + 1, f"{target} = None")
        self.add(depth, "else:")
        self.structure(field.of, local, depth + 1)
        self.add(depth + 1, f"{target} = {local}")

    def length(self, code: str, compact: bool, depth: int) -> None:
        """Read a length into `length`, together with the preceding run."""
        self.fixed("length", "B" if compact else code)
        self.flush(depth)
        if compact:
            self.add(depth, "if length > 127:")
            self.add(depth + 1, "length, position = read_varint(buffer, position - 1)")
            self.add(depth, "length -= 1")

    def null(self, shown: str, target: str, nullable: bool, depth: int) -> None:
        """Write the branch for a negative length. An `else:` must follow."""
        self.add(depth, "if length < 0:")
        self.add(depth + 1, f"{target} = None" if nullable else f"raise is_null({shown!r}, position)")

    def compact(self, field: Field) -> bool:
        """Whether a field's lengths are varints: in flexible versions, unless the field is exempt (RequestHeader.clientId)."""
        return self.flexible if field.flexible is None else self.version in parse_versions(field.flexible)

    def plain(self, field: Field, target: str, nullable: bool, depth: int) -> None:
        """Read a field that is neither an array nor a structure."""
        if field.type in FIXED:
            self.fixed(target, FIXED[field.type])
            return
        shown = f"{self.message.__name__}: {field.json_name}"
        self.length("h" if field.type == "string" else "i", self.compact(field), depth)
        self.null(shown, target, nullable, depth)
        self.add(depth, "else:")
        self.taken(field.type, shown, depth + 1, f"{target} = {{}}")

    def taken(self, kind: str, shown: str, depth: int, use: str) -> None:
        """Take `length` bytes as text, bytes or records. `use` is the statement that uses the value, with `{}` in its place."""
        self.add(depth, "end = position + length")
        self.add(depth, f"if end > size{' or length > 32767' if kind == 'string' else ''}:")
        self.add(depth + 1, f"raise bad_size({shown!r}, length, size - position, position)")
        taken = "buffer[position:end]"
        if kind == "string":
            taken = f"str({taken}, 'utf-8', {JAVA_UTF8!r}) if length else ''"
        elif kind == "bytes":
            taken = f"bytes({taken})"
        else:
            self.has_records = True
            taken = "view[position:end]"
        self.add(depth, use.format(taken))
        self.add(depth, "position = end")

    def array(self, field: Field, target: str, nullable: bool, depth: int) -> None:
        shown = f"{self.message.__name__}: {field.json_name}"
        self.length("i", self.compact(field), depth)
        self.null(shown, target, nullable, depth)
        code = FIXED.get(field.element)
        width = f" // {struct.calcsize('>' + code)}" if code else ""
        self.add(depth, f"elif length > (size - position){width}:")
        self.add(depth + 1, f"raise bad_size({shown!r}, length, size - position, position)")
        self.add(depth, "else:")
        depth += 1
        if code:
            self.numbers(code, target, depth)
            return
        items = self.name("items")
        self.add(depth, f"{target} = {items} = []")
        self.add(depth, "for _ in range(length):")
        if field.of is not None:
            item = self.name("item")
            self.structure(field.of, item, depth + 1)
            self.add(depth + 1, f"{items}.append({item})")
            return
        self.length("h" if field.element == "string" else "i", self.compact(field), depth + 1)
        self.null(f"{shown}: an element", target, False, depth + 1)
        self.taken(field.element, shown, depth + 1, f"{items}.append({{}})")

    def numbers(self, code: str, target: str, depth: int) -> None:
        size = struct.calcsize(">" + code)
        if size == 16:
            self.add(depth, f"{target} = [bytes(buffer[at : at + 16]) for at in range(position, position + length * 16, 16)]")
        else:
            self.add(depth, f"{target} = list(unpack_from(f'>{{length}}{code}', buffer, position))")
        self.add(depth, f"position += length * {size}")
