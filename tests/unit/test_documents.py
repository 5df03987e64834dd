"""Everything that the documents name exists: modules, files and the targets of links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md"), PROJECT / "tests" / "golden" / "README.md"])
HISTORY = "CHANGELOG.md"  # it names modules by their former names


def quoted() -> Iterator[tuple[str, str]]:
    """Yield everything in backticks, with its document and line."""
    for path in DOCUMENTS:
        if path.name == HISTORY:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(PROJECT)}:{number}"
            yield from ((where, text) for text in re.findall(r"`([^`]+)`", line))


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module or a package."""
    path = PROJECT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def defines(module: str, name: str) -> bool:
    """Return whether a module's source (or a package's `__init__`) has this name."""
    path = PROJECT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return source.is_file() and re.search(rf"\b{name}\b", source.read_text()) is not None


def test_modules_are_there() -> None:
    names = [(where, text) for where, text in quoted() if re.fullmatch(r"kops(\.\w+)+|tests(\.\w+)+", text)]
    assert len(names) > 300
    missing = [f"{where}: {name}" for where, name in names if not is_module(name) and not defines(*name.rpartition(".")[::2])]
    assert missing == []


def test_files_are_there() -> None:
    paths = [(where, text) for where, text in quoted() if re.fullmatch(r"(kops|tests|tools|docs|man|\.ci)/[\w./-]+", text)]
    assert len(paths) > 50
    assert [f"{where}: {path}" for where, path in paths if not (PROJECT / path).exists()] == []


def test_links_lead_somewhere() -> None:
    broken = []
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
            file, _, heading = target.partition("#")
            linked = (path.parent / file) if file else path
            if not linked.exists() or (heading and heading not in headings(linked)):
                broken.append(f"{path.relative_to(PROJECT)}: {target}")
    assert broken == []


def headings(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
