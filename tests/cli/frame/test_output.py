"""The formats: what rows and documents look like in each of them. Output is streamed, and safe for any data."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

from kops.cli.printing import documents
from kops.cli.printing.output import Output
from kops.cli.printing.sink import FileSink, OutputError
from kops.cli.printing.table import Column, table, width, without_middle
from kops.cli.printing.text import human_bytes, iso_time, many
from tests.cli import probe
from tests.cli.conftest import Ran

pytestmark = pytest.mark.usefixtures("probes")
Kops = Callable[..., Ran]

# What JSON and YAML can represent, without NaN (which is not equal to itself).
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12)


def test_table(kops: Kops) -> None:
    ran = kops("log", "rows")
    assert ran.text.splitlines() == [
        "NAME             SIZE  TIME",
        "orders-0      1.5 KiB  2023-11-14T22:13:20.123Z",
        "páté\\x1b[31m        -  -",
    ]


def test_wide_shows_all_columns(kops: Kops) -> None:
    assert kops("log", "rows", "--format", "wide").text.splitlines()[0].split() == ["NAME", "SIZE", "TIME", "NOTE"]


def test_json_has_schema_head_and_rows(kops: Kops) -> None:
    document = json.loads(kops("log", "rows", "--format", "json").text)
    assert document == {"schema": "kops.probe/v1", "total": 2, "things": list(probe.ROWS)}
    assert list(document) == ["schema", "total", "things"]


def test_jsonl_is_one_document_a_row_with_its_schema(kops: Kops) -> None:
    lines = [json.loads(line) for line in kops("log", "rows", "--format", "jsonl").text.splitlines()]
    assert lines == [{"schema": "kops.probe/v1", **row} for row in probe.ROWS]


def test_yaml_is_the_json_document(kops: Kops) -> None:
    assert yaml.safe_load(kops("log", "rows", "--format", "yaml").text) == json.loads(kops("log", "rows", "--format", "json").text)


def test_csv_has_every_column_and_quotes(kops: Kops) -> None:
    rows = list(csv.DictReader(io.StringIO(kops("log", "rows", "--format", "csv").text)))
    assert rows == [
        {"name": "orders-0", "size": "1536", "time": "1700000000123", "note": ""},
        {"name": "páté\x1b[31m", "size": "", "time": "-1", "note": 'a "b", c'},
    ]


def test_csv_tells_null_from_the_empty_text(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROWS", ({"name": "", "size": None, "time": 0, "note": 'a "b"'}, {"name": None, "size": 1, "time": 0}))
    lines = kops("log", "rows", "--format", "csv").text.splitlines()
    assert lines == ["name,size,time,note", '"",,0,"a ""b"""', ",1,0,"]


@given(cells=st.lists(st.none() | st.integers() | st.text(), min_size=2))
def test_a_csv_line_is_read_back(cells: list[Any]) -> None:
    line = documents.csv_line(cells)
    assert next(csv.reader(io.StringIO(line, newline=""))) == ["" if cell is None else str(cell) for cell in cells]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow([cell if cell != "" else None for cell in cells])
    if not any(isinstance(cell, str) and "\r" in cell for cell in cells):
        assert written.getvalue() == documents.csv_line([cell if cell != "" else None for cell in cells])


@pytest.mark.parametrize("text_format", ["json", "yaml"])
@given(document=st.dictionaries(st.text(), VALUES, max_size=5))
def test_documents_round_trip(text_format: str, document: dict[str, Any]) -> None:
    writer = documents.JsonDocument if text_format == "json" else documents.YamlDocument
    text = "".join(writer(document))
    read = json.loads(text) if text_format == "json" else yaml.safe_load(text)
    assert (read or {}) == document


@given(values=st.lists(VALUES, max_size=4), late=VALUES)
def test_streamed_documents_round_trip(values: list[Any], late: Any) -> None:
    for read, writer in ((json.loads, documents.JsonDocument), (yaml.safe_load, documents.YamlDocument)):
        text = "".join(writer({"rows": iter(values), "total": lambda: late}))
        assert read(text) == {"rows": values, "total": late}


@given(values=st.lists(VALUES, min_size=1, max_size=4), pieces=st.integers(0, 8))
def test_a_document_can_be_ended_after_any_piece(values: list[Any], pieces: int) -> None:
    writer = documents.JsonDocument({"head": 1, "rows": iter(values), "tail": 2})
    text = ""
    ended = False
    for number, piece in enumerate(writer):
        if number > pieces:
            ended = True
            break
        text += piece
    read = json.loads(text + writer.ending({"interrupted": True}) if ended else text)
    assert read.get("rows", []) == values[: len(read.get("rows", []))]
    assert read.get("interrupted", False) is ended


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "No",
        "null",
        "~",
        "1e3",
        "0x10",
        "1:30",
        "2024-01-01",
        "- a",
        "a: b",
        "a #b",
        " a",
        "a ",
        "",
        "=",
        "!x",
        "'",
        '"',
        "\x85",
        "\u2028",
    ],
)
def test_yaml_strings_stay_strings(text: str) -> None:
    assert yaml.safe_load(documents.yaml_scalar(text)) == text


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e300, 1e-7, 1e16, -0.0, 0.1])
def test_yaml_floats(value: float) -> None:
    assert yaml.safe_load(documents.yaml_scalar(value)) == value


def test_what_json_has_no_shape_for() -> None:
    from dataclasses import dataclass

    @dataclass
    class Point:
        x: int

    assert json.loads(documents.compact({"bytes": b"\x00\xff", "set": {2, 1}, "path": Path("a/b"), "point": Point(1)})) == {
        "bytes": "AP8=",
        "set": [1, 2],
        "path": "a/b",
        "point": {"x": 1},
    }
    with pytest.raises(TypeError, match="no JSON for complex"):
        documents.compact(1j)


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_file_that_could_not_be_written_whole_leaves_the_older_one(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older file also stays if the disk turns out to be full only when the last bytes are written."""

    def write(sink: FileSink, data: bytes | memoryview) -> None:
        sink._stream.write(data[: len(data) // 2])
        raise OutputError("cannot write: the disk is full")

    path = tmp_path / "answer.txt"
    path.write_text("precious")
    monkeypatch.setattr(FileSink, "write", write)
    out = Output(file=str(path))
    with pytest.raises(OutputError):
        out.write(b"x" * size)
        out.commit()
    with contextlib.suppress(OutputError):
        out.abandon()
    assert path.read_text() == "precious"
    assert [each.name for each in tmp_path.iterdir()] == ["answer.txt"]


@pytest.mark.parametrize("is_in_c", [True, False])
def test_a_line_of_json_is_as_json_writes_it(is_in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_in_c:
        monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    monkeypatch.setattr(documents, "_READABLE", documents._readable())
    value = {
        "a": ['é\u2028\x7f"\\\n\x01', 1.5, float("nan"), float("-inf"), -(1 << 70), True, None, [], {}, {"n": {"m": [1, (2,)]}}],
        3: "𝄞",
        None: 0,
    }
    assert documents.compact(value) == json.dumps(value, ensure_ascii=False)
    for simple in (*value["a"], "", 0, 1e300):  # type: ignore[misc]
        assert documents.compact(simple) == json.dumps(simple, ensure_ascii=False)
    assert documents.compact({"name": "\udcff"}) == '{"name": "\\udcff"}'


def test_an_undecodable_file_name_survives_every_format(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    name = b"bad-\xff.log".decode("utf-8", "surrogateescape")
    monkeypatch.setattr(probe, "ROWS", ({"name": name, "size": 1, "time": 0, "note": None},))
    assert b"bad-\\xff.log" in kops("log", "rows").out
    assert json.loads(kops("log", "rows", "--format", "jsonl").out)["name"] == name
    assert b"bad-\xff.log" in kops("log", "rows", "--format", "csv").out
    assert yaml.safe_load(kops("log", "rows", "--format", "yaml").text)["things"][0]["name"] == name


def test_tables_align_wide_letters_and_stream_after_the_look_ahead() -> None:
    rows = ({"name": name, "count": number} for number, name in enumerate(["日本", "ab", *["x"] * 2000]))
    lines = list(table(rows, [Column("name"), Column("count", kind="int")]))
    assert lines[:3] == ["NAME  COUNT", "日本      0", "ab        1"]
    assert len(lines) == 2003
    assert len({width(line) for line in lines}) == 1


def test_columns_of_a_long_table_only_get_wider() -> None:
    rows = ({"name": "x" * (9 if number == 1500 else 3), "count": number % 7} for number in range(3000))
    lines = list(table(rows, [Column("name"), Column("count", kind="int")]))
    assert len(lines) == 3001
    assert [len({len(line) for line in lines[start : start + 1000]}) for start in (1, 1001, 2001)] == [1, 1, 1]
    assert [len(lines[place]) for place in (0, 1, 1001, 2001)] == [11, 11, 16, 16]


def test_cells_of_a_table_are_shown_as_they_are() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "1e5", "count": 1},
        {"name": "  007 ", "count": 22},
        {"name": "", "count": None},
        {"name": "\x01", "count": 3},
    ]
    columns = [Column("count", kind="int"), Column("name", style=lambda name: "red" if name == "1e5" else None)]
    assert list(table(rows, columns)) == ["COUNT  NAME", "    1  1e5", "   22    007", "    -", "    3  \\x01"]
    painted = list(
        table(rows, columns, lambda text, color: f"<{text}>" if color == "bold" else f"\x1b[31m{text}\x1b[0m" if color else text)
    )
    assert painted[:3] == ["<COUNT  NAME>", "    1  \x1b[31m1e5\x1b[0m", "   22    007"]


def test_a_table_of_ascii_is_aligned_as_tabulate_aligns_it() -> None:
    chance = random.Random(1)
    for _ in range(200):
        columns = [Column(str(number), kind=chance.choice(["text", "int"])) for number in range(chance.randint(1, 4))]
        lines = [["".join(chance.choices("ab 1-.,%", k=chance.randint(0, 6))) for _ in columns] for _ in range(chance.randint(1, 5))]
        align = ["right" if column.kind == "int" else "left" for column in columns]
        text = tabulate(lines, tablefmt="plain", colalign=align, disable_numparse=True, preserve_whitespace=True)
        rows = [dict(zip((column.key for column in columns), line, strict=True)) for line in lines[1:]]
        named = [Column(column.key, title, column.kind) for column, title in zip(columns, lines[0], strict=True)]
        shown = list(table(rows, named))
        assert [line.lower() for line in shown] == ([line.rstrip(" ") for line in text.split("\n")] if rows else [])


def test_names_are_shortened_until_the_lines_fit() -> None:
    columns = [Column("topic", kind="name"), Column("lag", kind="int"), Column("client", kind="name"), Column("why")]
    row = {"topic": "t" * 20 + "-" + "u" * 20, "lag": 7, "client": "c" * 30, "why": "because"}
    short = {"topic": "t", "lag": 1, "client": "c", "why": "-"}
    (whole, *_) = list(table([row], columns, room=200))[1:]
    assert whole == f"{row['topic']}    7  {row['client']}  because"
    for room in range(60, len(whole) + 1):
        lines = list(table([row, short], columns, room=room))
        assert len(lines[1]) == room
        assert lines[1].endswith("  because")
        assert lines[2].split() == ["t", "1", "c", "-"]
    assert list(table([row], columns, room=70))[1] == f"{'t' * 13}…{'u' * 13}    7  {'c' * 13}…{'c' * 13}  because"
    assert list(table([row], columns, room=40))[1] == whole, "it would not fit anyway"
    assert (without_middle("日本語テキスト", 7), without_middle("e\u0301" * 5, 5)) == ("日…ト", "e\u0301" * 5)


def test_an_empty_table_prints_nothing() -> None:
    assert list(table([], [Column("name")])) == []


def test_counts_with_their_nouns() -> None:
    assert [many(count, "segment") for count in (0, 1, 1024)] == ["0 segments", "1 segment", "1,024 segments"]
    assert [many(2, what) for what in ("batch", "index", "info")] == ["2 batches", "2 indexes", "2 infos"]
    assert many(1, "batch") == "1 batch"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (-2048, "-2.0 KiB")]
)
def test_human_bytes(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (1 << 62, str(1 << 62)), (-(1 << 62), str(-(1 << 62)))],
)
def test_iso_time(time_ms: int, text: str) -> None:
    assert iso_time(time_ms) == text
