"""The rooms of kops and the imports between them: `python tools/rooms.py` prints the picture and its errors.

A room is a package with the modules directly in it. A module directly below `kops` is a room of its own. Every import counts: at the top of
a module, in a function, under TYPE_CHECKING. A name imported from a package counts as an import of the module that the package's `__init__`
has it from. The generated messages are left out, as modules and as imports: they import `kops.protocol.declaration` and nothing else.

`make docs` puts the picture into ARCHITECTURE.md and docs/rooms.md, tests/unit/test_rooms.py checks the rules.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

PROJECT = Path(__file__).resolve().parent.parent
GENERATED: Final = "kops.protocol.messages"
BEGIN: Final = "<!-- rooms: begin -->"
END: Final = "<!-- rooms: end -->"
Graph = Mapping[str, set[str]]


class Rooms:
    """All modules below a folder `kops`, read once."""

    def __init__(self, project: Path = PROJECT) -> None:
        self.modules: set[str] = set()
        """Modules that are not packages."""
        self.docs: dict[str, str] = {}
        """The docstring of each package's `__init__`."""
        self._purposes: dict[str, str] = {}
        self._statements: dict[str, list[ast.Import | ast.ImportFrom]] = {}
        """The imports of each module. The rest of its tree is dropped at once: all trees together cost as much time to keep as to make."""
        for path in sorted((project / "kops").rglob("*.py")):
            name = ".".join(path.relative_to(project).with_suffix("").parts)
            package = name.removesuffix(".__init__")
            if package != name:
                self.docs[package] = self._read(package, path)
            elif path.name != "__main__.py":
                self.modules.add(name)
                if not name.startswith(GENERATED + "."):
                    self._purposes[name] = self._read(name, path)

    def _read(self, name: str, path: Path) -> str:
        """Keep the imports of a module or package, and return its docstring."""
        tree = ast.parse(path.read_bytes())
        self._statements[name] = [node for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        return ast.get_docstring(tree) or ""

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Module → the modules that it imports."""
        return {name: self._imports(name) for name in self._statements if name in self.modules}

    @cached_property
    def rooms(self) -> dict[str, set[str]]:
        """Room → its modules."""
        found: dict[str, set[str]] = {name: set() for name in self.docs if name != "kops"}
        for name in self.modules:
            found.setdefault(room_of(name), set()).add(name)
        return found

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Room → the rooms that it imports from."""
        found: dict[str, set[str]] = {name: set() for name in self.rooms if name != GENERATED}
        for name, imported in self.imports.items():
            found[room_of(name)] |= {room_of(each) for each in imported} - {room_of(name)}
        return found

    def between(self, room: str, other: str) -> list[tuple[str, str]]:
        """The imports that make an arrow: (module of `room`, module of `other`)."""
        return sorted((a, b) for a in self.rooms[room] for b in self.imports.get(a, ()) if room_of(b) == other)

    def packages(self) -> dict[str, set[str]]:
        """The arrows among the packages and single modules directly below `kops`."""
        return grouped(self.arrows, {name: package_of(name) for name in self.arrows})

    def purpose(self, name: str) -> str:
        """The first sentence of a package's or a module's docstring, in one line."""
        text = self.docs[name] if name in self.docs else self._purposes[name]
        paragraph = " ".join(text.partition("\n\n")[0].split())
        sentence, _, _ = paragraph.partition(". ")
        return sentence.removesuffix(".")

    @cached_property
    def _exports(self) -> dict[str, dict[str, str]]:
        """Package → the names that its `__init__` imports, and where from."""
        found: dict[str, dict[str, str]] = {}
        for package in self.docs:
            names = found[package] = {}
            for node in self._statements[package]:
                if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
                    for alias in node.names:
                        full = f"{node.module}.{alias.name}"
                        names[alias.asname or alias.name] = full if full in self.modules else str(node.module)
        return found

    def _imports(self, name: str) -> set[str]:
        found = set()
        for node in self._statements[name]:
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
                found |= {self._target(str(node.module), alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        return {each for each in found if each in self.modules and not each.startswith(GENERATED)} - {name}

    def _target(self, module: str, name: str) -> str:
        """The module that `from module import name` takes the name from."""
        while module in self._exports and name in self._exports[module]:
            source = self._exports[module][name]
            if source == module or source not in self._exports:
                return source
            module = source
        full = f"{module}.{name}"
        return full if full in self.modules else module


def package_of(room: str) -> str:
    """The package or module directly below `kops` that contains the room, or is the room."""
    return ".".join(room.split(".")[:2])


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; imports are statements, so expressions need no look."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield child
            yield from statements(child)


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == "kops" or module.startswith("kops."))


def room_of(module: str) -> str:
    """The room of a module."""
    return module if module.count(".") == 1 else module.rpartition(".")[0]


def circles(graph: Graph) -> list[list[str]]:
    """The cycles: strongly connected components of more than one node (Tarjan)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: list[str] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        waiting.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in waiting:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            place = waiting.index(node)
            component = sorted(waiting[place:])
            del waiting[place:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted(found)


def within(arrows: Graph, nodes: Iterable[str]) -> dict[str, set[str]]:
    """The arrows among some of the nodes."""
    chosen = set(nodes)
    return {node: arrows.get(node, set()) & chosen for node in chosen}


def grouped(arrows: Graph, group: Mapping[str, str]) -> dict[str, set[str]]:
    """The arrows among groups of nodes."""
    found: dict[str, set[str]] = {name: set() for name in group.values()}
    for node, others in arrows.items():
        if node in group:
            found[group[node]] |= {group[other] for other in others if other in group} - {group[node]}
    return found


def layers(arrows: Graph) -> list[list[str]]:
    """The nodes in rows, so that every arrow goes to a row further down and no row has an arrow in it. ValueError for a circle."""
    heights: dict[str, int] = {}
    left = set(arrows)
    while left:
        ready = {node for node in left if not arrows[node] & left}
        if not ready:
            raise ValueError(f"a circle: {circles(arrows)}")
        for node in ready:
            heights[node] = 1 + max((heights[other] for other in arrows[node]), default=-1)
        left -= ready
    rows: list[list[str]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
    for node in sorted(heights):
        rows[heights[node]].append(node)
    return rows[::-1]


def reduced(arrows: Graph) -> list[tuple[str, str]]:
    """The arrows without those that a longer path replaces (transitive reduction)."""
    below: dict[str, set[str]] = {}
    for row in reversed(layers(arrows)):
        for node in row:
            below[node] = set().union(*(below[other] | {other} for other in arrows[node]))
    kept = []
    for node in sorted(arrows):
        far = set().union(*(below[other] for other in arrows[node]))
        kept += [(node, other) for other in sorted(arrows[node] - far)]
    return kept


# The picture.


def label(room: str, package: str) -> str:
    """The name of a room in the picture of its package."""
    return room.removeprefix(package + ".") if room != package else "(itself)"


def rows(rooms: Rooms, package: str) -> list[list[str]]:
    """The rooms of a package in rows, the uppermost first. A package's `__init__` without a module beside it is not a room."""
    inside = [name for name in rooms.arrows if package_of(name) == package and rooms.rooms[name]]
    return layers(within(rooms.arrows, inside))


def picture(rooms: Rooms) -> str:
    """The picture in ARCHITECTURE.md: packages in rows, and in each package its rooms in rows."""
    lines = ["```"]
    for level in layers(rooms.packages()):
        for package in level:
            lines.append(f"{package.removeprefix('kops.'):<15}{rooms.purpose(package)}")
            if len(inside := rows(rooms, package)) > 1:
                lines += [f"    {'  |  '.join(label(room, package) for room in row)}" for row in inside]
        lines.append("-" * 100)
    return "\n".join([*lines[:-1], "```"])


def placed(text: str, rooms: Rooms) -> str:
    """A document with the picture between its two markers. Raises ValueError if they are missing."""
    before, found, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not found or not ends:
        raise ValueError(f"no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{picture(rooms)}\n{END}{after}"


def diagram(names: Mapping[str, str], arrows: Graph) -> list[str]:
    """A Mermaid flow chart, without the arrows that a longer path replaces."""
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {_id(node)}["{names[node]}"]' for node in sorted(arrows)]
    lines += [f"    {_id(node)} --> {_id(other)}" for node, other in reduced(arrows)]
    return [*lines, "```"]


def _id(node: str) -> str:
    return node.replace(".", "_")


def page(rooms: Rooms) -> str:
    """docs/rooms.md: every package with its rooms, what each is for, and the arrows between them."""
    packages = rooms.packages()
    lines = [
        "# Rooms",
        "",
        "A room is a package with the modules directly in it. It has at most a dozen modules, and it imports only rooms below",
        "it. The diagrams omit an arrow if a longer path leads to the same room. `(itself)` stands for the modules directly",
        "in the package.",
        "",
        "`make docs` writes this page from the imports in the source. A test compares it.",
        "",
        *diagram({name: label(name, "kops") for name in packages}, packages),
    ]
    for level in layers(packages):
        for package in level:
            inside = rows(rooms, package)
            title = package.removeprefix("kops.").replace("_", "\\_")
            lines += ["", f"## {title}", "", rooms.purpose(package)]
            if len(inside) > 1:
                lines += ["", *table(rooms, package, inside)]
                lines += ["", *diagram({room: label(room, package) for row in inside for room in row}, _inner(rooms, package))]
    return "\n".join(lines) + "\n"


def _inner(rooms: Rooms, package: str) -> dict[str, set[str]]:
    return within(rooms.arrows, [room for row in rows(rooms, package) for room in row])


def table(rooms: Rooms, package: str, inside: list[list[str]]) -> list[str]:
    """The rooms of a package, the uppermost first."""
    arrows = _inner(rooms, package)
    lines = ["| room | modules | what it is for | imports |", "| --- | ---: | --- | --- |"]
    for room in (each for row in inside for each in row):
        purpose = "" if room == package else rooms.purpose(room).replace("|", "\\|")
        below = ", ".join(f"`{label(other, package)}`" for other in sorted(arrows[room]))
        lines.append(f"| `{label(room, package)}` | {len(rooms.rooms[room])} | {purpose} | {below} |")
    return lines


def main() -> int:
    """Print the picture and the circles. The exit code is 1 if rooms are in a circle."""
    rooms = Rooms()
    for circle in circles(rooms.imports):
        print("modules that import each other:", *circle)
    found = circles(rooms.arrows)
    for circle in found:
        print("rooms that import each other:", *circle)
        for room in circle:
            for other in circle:
                for importing, imported in rooms.between(room, other):
                    print(f"    {importing} imports {imported}")
    if not found:
        print(picture(rooms))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
