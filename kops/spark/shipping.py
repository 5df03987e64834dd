"""kops for executors that don't have it: one zip of this kops and of the packages that its tasks need, unpacked beside each executor.

Spark unpacks `spark.archives` into the working directory of an executor, and `spark.executorEnv.PYTHONPATH` puts it on the path of its
Python workers. So machine code goes along, which the interpreter takes if it is of the driver's version and platform. On others kops runs
interpreted, and codecs come from what is installed there. A session that runs already gets the same zip by `addPyFile`; machine code is
not loaded from a zip. pyspark comes with Spark. Needs no Spark.
"""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from kops import _compiled
from kops._compiled import GROUPS, HOT_MODULES, status
from kops.environment import cache_dir
from kops.errors import MissingDependencyError

FOLDER: Final = "kops_shipped"
"""The name of the unpacked zip in the working directory of an executor."""
PACKAGES: Final = ("mypy_extensions", "librt", "crcmod", "crc32c", "lz4", "zstandard", "cramjam")
"""What tasks import besides kops; crcmod stands in for crc32c."""
_LEFT_OUT: Final = ("zstandard/_cffi.",)  # a second backend, as large as the first
_NATIVE: Final = (".so", ".pyd", ".dylib")
_ARCHIVES: Final = "spark.archives"
_PATH: Final = "spark.executorEnv.PYTHONPATH"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_UNUSED_S: Final = 30 * 24 * 3600


def needs_shipping(master: str) -> bool:
    """Whether executors may have another interpreter or file system than this process."""
    return not master.startswith("local")


def shipped_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that bring kops to the executors of this master, joined with the user's. Raises MissingDependencyError as `archive`."""
    if not needs_shipping(master):
        return {}
    archives = [each for each in (settings.get(_ARCHIVES), f"{archive()}#{FOLDER}") if each]
    folders = [each for each in (FOLDER, settings.get(_PATH)) if each]
    return {_ARCHIVES: ",".join(archives), _PATH: ":".join(folders)}


def archive() -> Path:
    """The zip, in the user's cache directory; made if it is not there yet. Raises MissingDependencyError if it can't be written."""
    members = sorted(_members(), key=lambda each: (each[0].endswith(_NATIVE), each[0]))
    digest = hashlib.sha256()
    for name, path in members:
        found = path.stat()
        digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    folder = cache_dir()
    target = folder / f"executors-{digest.hexdigest()[:16]}.zip"
    try:
        if target.exists():
            target.touch()  # in use
            return target
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unused(folder)
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            _write(beside, members)
            beside.rename(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise MissingDependencyError(f"can't write {target} ({error.strerror}): set KOPS_CACHE_DIR to another directory") from error
    return target


def _members() -> Iterator[tuple[str, Path]]:
    """The names in the zip and the files: sources, and machine code unless this process takes the sources."""
    root = Path(_compiled.__file__).parent
    is_compiled = all(status(name).state == "compiled" for name in HOT_MODULES)
    for path in root.rglob("*"):
        if path.suffix in (".py", ".typed") or (is_compiled and path.suffix in _NATIVE):
            yield f"kops/{path.relative_to(root).as_posix()}", path
    if is_compiled:
        for path in root.parent.glob("*__mypyc.*"):
            if path.suffix in _NATIVE and path.name.split("__mypyc")[0] in GROUPS:
                yield path.name, path
    for name in PACKAGES:
        try:
            found = distribution(name).files or []
        except PackageNotFoundError:
            continue  # a light install; the executors are asked what they have
        for file in found:
            text = file.as_posix()
            if text.endswith((".py", *_NATIVE)) and not text.startswith(("..", *_LEFT_OUT)):
                yield text, Path(str(file.locate()))


def _write(target: Path, members: list[tuple[str, Path]]) -> None:
    """Machine code comes last: unpacked, it is not older than its source, or it would be ignored."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, path in members:
            file.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)


def _remove_unused(folder: Path) -> None:
    """Remove zips that no scan has used for a month."""
    for path in folder.glob("executors-*.zip"):
        with suppress(FileNotFoundError):  # another kops was faster
            if path.stat().st_mtime + _UNUSED_S < time.time():
                path.unlink()
