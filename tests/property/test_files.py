"""Random operations do the same on a file in memory, on an overlay file and on a file of the system as on a bytearray."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kops.files import File, MemoryFiles, OsFiles, OverlayFiles

Operation = tuple[str, int, bytes]
POSITIONS = st.integers(0, 120)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), POSITIONS, st.binary(max_size=40)),
        st.tuples(st.just("truncate"), POSITIONS, st.just(b"")),
        st.tuples(st.just("read"), POSITIONS, st.binary(max_size=60)),
    ),
    max_size=40,
)


def apply(file: File, model: bytearray, operation: Operation) -> None:
    kind, position, data = operation
    if kind == "write":
        file.write(position, data)
        if data:
            model.extend(bytes(max(position - len(model), 0)))
            model[position : position + len(data)] = data
    elif kind == "truncate":
        file.truncate(position)
        del model[position:]
        model.extend(bytes(position - len(model)))
    else:
        assert file.read(position, len(data)) == model[position : position + len(data)]
    assert file.size() == len(model)


@given(st.binary(max_size=100), OPERATIONS)
def test_a_file_is_its_bytes(start: bytes, operations: list[Operation]) -> None:
    base = MemoryFiles()
    base.write_all("/a", start)
    over = OverlayFiles(base)
    with tempfile.TemporaryDirectory() as directory:
        system = OsFiles()
        path = str(Path(directory) / "a")
        system.write_all(path, start)
        for files, name in ((base, "/a"), (over, "/a"), (system, path)):
            model = bytearray(start)
            source = OverlayFiles(files) if files is base else files
            with source.open(name, "rw") as file:
                for operation in operations:
                    apply(file, model, operation)
                assert file.read(0, 1000) == model
            assert source.read_all(name) == model
            if source is over:
                assert over.changes().changed == ([] if model == start else ["/a"])
    assert base.read_all("/a") == start


@given(OPERATIONS)
def test_memory(operations: list[Operation]) -> None:
    files = MemoryFiles()
    model = bytearray()
    with files.open("/a", "create") as file:
        for operation in operations:
            apply(file, model, operation)
    assert files.read_all("/a") == model
