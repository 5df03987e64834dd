"""The rooms of the packages: there are no cycles and at most a dozen modules, each says what it is for, and the picture
shows the imports.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tools.rooms import GENERATED, PROJECT, Rooms, circles, grouped, layers, package_of, placed, reduced

MOST_MODULES = 12
# Modules that may import each other, each with the reason. One of the two imports is under TYPE_CHECKING or in a function.
CIRCLES = {
    ("kops.broker.network.events.loop", "kops.broker.network.events.pipe"): (
        "Two types name each other: the loop watches the ends of pipes, and an end tells the loop what happened to it."
    ),
    ("kops.broker.parts.dynamic_config", "kops.broker.parts.parts"): (
        "Two types name each other: a broker's parts include its changing settings, and a change is carried out on the parts."
    ),
    ("kops.records.batch", "kops.records.decode"): (
        "`Batch.records()` is the public way to the records, and reading them takes the batch's header. One file would have 600 lines, of "
        "which only the header's are compiled."
    ),
}
# Packages with more modules, each with the reason.
LARGE = {GENERATED: "generated from Kafka's descriptors, a module a message"}


@cache
def rooms() -> Rooms:
    return Rooms()


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert [tuple(circle) for circle in circles(rooms().imports)] == sorted(CIRCLES)


def test_no_room_imports_itself_by_way_of_others() -> None:
    found = circles(rooms().arrows)
    assert [(a, b, rooms().between(a, b)) for circle in found for a in circle for b in circle if rooms().between(a, b)] == []


def test_arrows_between_neighbours_go_one_way() -> None:
    """This also holds on every level if a package with all its rooms counts as one."""
    for level in (2, 3, 4):
        groups = {room: ".".join(room.split(".")[:level]) for room in rooms().arrows}
        assert circles(grouped(rooms().arrows, groups)) == []


def test_every_room_says_what_it_is_for() -> None:
    assert [name for name, text in rooms().docs.items() if not text.strip()] == []


def test_no_room_is_full() -> None:
    sizes = {name: len(modules) for name, modules in rooms().rooms.items() if name not in LARGE}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def test_generated_messages_import_what_they_are_declared_with() -> None:
    """That is why they can be left out of the picture."""
    found = set()
    for path in (PROJECT / "kops" / "protocol" / "messages").glob("*.py"):
        found |= set(re.findall(r"^(?:from|import) (kops[\w.]*)", path.read_text(), re.MULTILINE))
    assert {name for name in found if not name.startswith(GENERATED + ".")} <= {"kops.protocol.declaration"}


def write(folder: Path, **sources: str) -> Rooms:
    """Make the rooms of a synthetic kops. `a__b` is the module `kops.a.b`."""
    for name, text in sources.items():
        path = folder.joinpath("kops", *name.split("__")).with_suffix(".py")
        for package in path.parents:
            if package == folder:
                break
            package.mkdir(parents=True, exist_ok=True)
            init = package / "__init__.py"
            if not init.exists():
                init.write_text('"""It. And more."""\n')
        path.write_text(text)
    return Rooms(folder)


def test_every_kind_of_import_counts(tmp_path: Path) -> None:
    made = write(
        tmp_path,
        a__one="from kops.b.two import X\n",
        b__two="def f() -> None:\n    from kops.c import three\n",
        c__three="if TYPE_CHECKING:\n    import kops.d.four\n",
        d__four="try:\n    from kops.e import Y\nexcept ImportError:\n    Y = 1\n",
        e__five="from kops.a.one import Z\n",
    )
    (tmp_path / "kops" / "e" / "__init__.py").write_text('"""It."""\nfrom kops.e.five import Y\n')
    made = Rooms(tmp_path)
    assert circles(made.imports) == [["kops.a.one", "kops.b.two", "kops.c.three", "kops.d.four", "kops.e.five"]]
    assert circles(made.arrows) == [["kops.a", "kops.b", "kops.c", "kops.d", "kops.e"]]
    assert made.between("kops.d", "kops.e") == [("kops.d.four", "kops.e.five")]
    with pytest.raises(ValueError, match="circle"):
        layers(made.arrows)


def test_the_picture_has_every_arrow_down(tmp_path: Path) -> None:
    """The picture has rows, and arrows without those that a longer way implies."""
    made = write(tmp_path, top="from kops.a.x.one import X\nfrom kops.b.two import Y\n", a__x__one="from kops.b.two import Y\n", b__two="")
    assert layers(made.packages()) == [["kops.top"], ["kops.a"], ["kops.b"]]
    assert reduced(made.packages()) == [("kops.a", "kops.b"), ("kops.top", "kops.a")]
    text = placed("before <!-- rooms: begin -->old<!-- rooms: end --> after", made)
    assert text.startswith("before <!-- rooms: begin -->\n```\ntop")
    assert text.endswith("\n```\n<!-- rooms: end --> after")
    assert "b              It\n" in text
    with pytest.raises(ValueError, match="rooms: end"):
        placed("<!-- rooms: begin -->", made)


def test_rows_hold_no_arrow() -> None:
    for package in {package_of(room) for room in rooms().arrows}:
        inside = {room: others for room, others in rooms().arrows.items() if package_of(room) == package}
        inside = {room: others & inside.keys() for room, others in inside.items()}
        heights = {room: number for number, row in enumerate(layers(inside)) for room in row}
        assert all(heights[room] < heights[other] for room, others in inside.items() for other in others)
