"""Compiles the writer of one version of a message, from Python source generated for exactly its fields.

A writer behaves like the `write` methods that Kafka's message generator writes, including their checks of sizes. Records are not copied:
the bytes before them become one buffer, the records the next, and a new buffer begins after them. Small records are copied, because that is
cheaper than three buffers.
"""

from __future__ import annotations

import struct
from typing import Any

from kops.protocol import primitives
from kops.protocol.read_compiler import FIXED
from kops.protocol.structure import SMALL_RECORDS_SIZE, Field, Struct, Writer, parse_versions


def compile_writer(message: type[Struct], version: int, *, flexible: bool) -> Writer:
    """`(message, buffers, out) -> out`: appends to `out`. Complete buffers before it go to `buffers`."""
    source = _WriterSource(message, version, flexible=flexible)
    exec(compile(source.text(), f"<writer of {message.__name__} {version}>", "exec"), source.namespace)
    writer: Writer = source.namespace["write"]
    return writer


class _WriterSource:
    def __init__(self, message: type[Struct], version: int, *, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.run: list[tuple[str, str]] = []  # (expression, struct code)
        self.out = "out"
        self.namespace: dict[str, Any] = {
            "pack": struct.pack,
            "one_byte": primitives.ONE_BYTE,
            "varint": primitives.varint,
            "tagged_section": primitives.tagged_section,
            "too_long": primitives.too_long,
            "not_carried": primitives.not_carried,
            "no_tags": primitives.no_tags,
            "size_of": primitives.size_of,
        }
        self.names = 0

    def text(self) -> str:
        self.structure(self.message, "message", 1)
        return "\n".join(["def write(message, buffers, out):", *self.lines, "    return out"])

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def flush(self, depth: int) -> None:
        if not self.run:
            return
        layout = "".join(code for _, code in self.run)
        name = "pack_" + layout.replace("?", "o")
        self.namespace.setdefault(name, struct.Struct(">" + layout).pack)
        self.add(depth, f"{self.out} += {name}({', '.join(value for value, _ in self.run)})")
        self.run = []

    def structure(self, declared: type[Struct], source: str, depth: int) -> None:
        """Write a structure from a local name. Leaves the run empty."""
        self.flush(depth)
        tagged: list[Field] = []
        for field in declared.FIELDS:
            value = f"{source}.{field.name}"
            if self.version not in parse_versions(field.versions):
                if not field.ignorable:
                    self.add(depth, f"if {self.is_set(field, value)}:")
                    self.add(depth + 1, f"raise not_carried({field.json_name!r}, {self.version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(field, value, depth)
        self.flush(depth)
        if self.flexible:
            self.tagged(sorted(tagged, key=lambda field: field.tag or 0), source, depth)
        else:
            self.add(depth, f"if {source}.unknown_tagged_fields:")
            self.add(depth + 1, f"raise no_tags({self.version})")

    def is_set(self, field: Field, value: str) -> str:
        """Return the condition that a value is not the default. For a structure, one of its fields must differ, so that no default
        structure has to be created."""
        default = field.default_value()
        if isinstance(default, Struct):
            inner = [self.is_set(one, f"{value}.{one.name}") for one in default.FIELDS]
            there = " or ".join([*inner, f"{value}.unknown_tagged_fields"])
            return f"({value} is None or {there})" if field.nullable != "none" else f"({there})"
        if default is None or isinstance(default, bool):
            return f"{value} is not {default!r}"
        return f"{value} != {default!r}"

    def tagged(self, fields: list[Field], source: str, depth: int) -> None:
        conditions = [self.is_set(field, f"{source}.{field.name}") for field in fields]
        self.add(depth, f"if {' or '.join([*conditions, f'{source}.unknown_tagged_fields'])}:")
        known, outer = self.name("known"), self.out
        self.add(depth + 1, f"{known} = []")
        for field, condition in zip(fields, conditions, strict=True):
            self.out = self.name("content")
            self.add(depth + 1, f"if {condition}:")
            self.add(depth + 2, f"{self.out} = bytearray()")
            self.value(field, f"{source}.{field.name}", depth + 2)
            self.flush(depth + 2)
            self.add(depth + 2, f"{known}.append(({field.tag}, {self.out}))")
        self.out = outer
        self.add(depth + 1, f"{self.out} += tagged_section({known}, {source}.unknown_tagged_fields)")
        self.add(depth, "else:")
        self.add(depth + 1, f"{self.out} += one_byte[0]")

    def value(self, field: Field, value: str, depth: int) -> None:
        nullable = self.version in parse_versions(field.nullable)
        if field.is_array:
            self.array(field, value, nullable, depth)
        elif field.of is not None:
            self.nested(field, value, nullable, depth)
        elif field.type in FIXED:
            self.run.append((value, FIXED[field.type]))
        else:
            local = self.name("value")
            self.flush(depth)
            self.add(depth, f"{local} = {value}")
            self.sized(field, field.type, local, nullable, depth)

    def nested(self, field: Field, value: str, nullable: bool, depth: int) -> None:
        assert field.of is not None
        self.flush(depth)
        local = self.name("nested")
        self.add(depth, f"{local} = {value}")
        if nullable:
            null, there = ("b'\\xff'", "one_byte[1]") if field.tag is None else ("one_byte[0]", "one_byte[1]")
            self.add(depth, f"if {local} is None:")
            self.add(depth + 1, f"{self.out} += {null}")
            self.add(depth, "else:")
            depth += 1
            self.add(depth, f"{self.out} += {there}")
        self.structure(field.of, local, depth)

    def compact(self, field: Field) -> bool:
        return self.flexible if field.flexible is None else self.version in parse_versions(field.flexible)

    def length(self, length: str, code: str, compact: bool, depth: int) -> None:
        if compact:
            self.add(depth, f"{self.out} += one_byte[{length} + 1] if {length} < 127 else varint({length} + 1)")
        else:
            self.add(depth, f"{self.out} += pack_{code}({length})")
            self.namespace.setdefault(f"pack_{code}", struct.Struct(">" + code).pack)

    def null_branch(self, local: str, code: str, compact: bool, depth: int) -> None:
        null = "one_byte[0]" if compact else ("b'\\xff\\xff'" if code == "h" else "b'\\xff\\xff\\xff\\xff'")
        self.add(depth, f"if {local} is None:")
        self.add(depth + 1, f"{self.out} += {null}")
        self.add(depth, "else:")

    def sized(self, field: Field, kind: str, local: str, nullable: bool, depth: int) -> None:
        """Write text, bytes or records from a local name, after their length."""
        code = "h" if kind == "string" else "i"
        if nullable:
            self.null_branch(local, code, self.compact(field), depth)
            depth += 1
        if kind == "string":
            self.add(depth, f"{local} = {local}.encode('utf-8', 'replace')")
        self.add(depth, f"length = {'size_of' if kind == 'records' else 'len'}({local})")
        if kind == "string":
            self.add(depth, "if length > 32767:")
            self.add(depth + 1, f"raise too_long({field.json_name!r}, length)")
        self.length("length", code, self.compact(field), depth)
        if kind == "records":
            self.add(depth, f"if length <= {SMALL_RECORDS_SIZE} and type({local}) is bytes:")
            self.add(depth + 1, f"{self.out} += {local}")
            self.add(depth, "else:")
            self.add(depth + 1, f"buffers += ({self.out}, {local})")
            self.add(depth + 1, f"{self.out} = bytearray()")
        else:
            self.add(depth, f"{self.out} += {local}")

    def array(self, field: Field, value: str, nullable: bool, depth: int) -> None:
        self.flush(depth)
        items = self.name("items")
        self.add(depth, f"{items} = {value}")
        if nullable:
            self.null_branch(items, "i", self.compact(field), depth)
            depth += 1
        self.add(depth, f"length = len({items})")
        self.length("length", "i", self.compact(field), depth)
        code = FIXED.get(field.element)
        if code == "16s":
            self.add(depth, f"{self.out} += b''.join({items})")
        elif code:
            self.add(depth, f"{self.out} += pack(f'>{{length}}{code}', *{items})")
        else:
            item = self.name("item")
            self.add(depth, f"for {item} in {items}:")
            if field.of is not None:
                self.structure(field.of, item, depth + 1)
            else:
                self.sized(field, field.element, item, False, depth + 1)
