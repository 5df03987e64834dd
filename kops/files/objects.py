"""Files behind URLs, for reading: objects of S3 and of stores that speak its protocol, Google's and Azure's storage, HDFS.

The file systems are those of `pyarrow.fs`; for other schemes those of fsspec, if it is installed. A directory is listed once and then
remembered, with the sizes and times in it, because a store answers each question in tens of milliseconds. So these files are a view of the
moment of the first listing: an object that has another size or time when it is opened, or another tag when it was read, raises OSError
(ESTALE). A connection that breaks is tried again a few times, ever later. Errors are those of the operating system, with the URL.
"""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from kops.errors import MissingDependencyError, UsageError
from kops.files.api import File, FileStat, Mode
from kops.files.read_only import ReadOnlyFile, ReadOnlyFiles, refuse
from kops.files.urls import connection, parts_of_url

if TYPE_CHECKING:
    from pyarrow import fs as pa_fs

Result = TypeVar("Result")
BLOCK: Final = 8 << 20
"""The most bytes of one request. An open file holds two blocks and reads a third one ahead."""
BROKEN: Final = errno.ECONNABORTED
"""What may be over in a moment. It is not EIO, which stands for a bad sector: the bytes are there."""
_FIRST_BLOCK: Final = 1 << 20
_AT_A_TIME: Final = 16
_PATIENCE: Final = {"connect_timeout": 10.0, "request_timeout": 30.0}
"""Seconds. The SDK's own, one and three, are too short for a store under load."""
_OF_PYARROW: Final = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs")
WAITS_S: Final = (0.25, 1.0, 4.0)
"""How long to wait before each further attempt after a broken connection."""
S3_OPTIONS: Final = (
    "access_key", "secret_key", "session_token", "anonymous", "region", "scheme", "endpoint_override", "role_arn", "tls_ca_file_path",
)  # fmt: skip


class ObjectFiles(ReadOnlyFiles):
    """The trees of all URLs. `ahead`: when a directory is listed, list those below it, too, several at a time.

    `growing`: an object may have changed since it was listed. `sleep` waits before another attempt.
    """

    def __init__(self, *, ahead: bool = False, growing: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        self._is_ahead = ahead
        self._is_growing = growing
        self._sleep = sleep
        self._systems: dict[str, tuple[pa_fs.FileSystem, str]] = {}
        self._listed: dict[str, dict[str, FileStat]] = {}
        self._coming: dict[str, Future[dict[str, FileStat]]] = {}
        self._expected: dict[str, tuple[int, int]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def expect(self, known: Mapping[str, tuple[int, int]]) -> None:
        """The sizes and times (ms) that objects had when the work was planned. Opening one that has others fails."""
        self._expected.update(known)

    def absolute(self, path: str) -> str:
        place, below = parts_of_url(path)
        return posixpath.join(place, below) if below else place

    def open(self, path: str, mode: Mode = "r") -> File:
        if mode != "r":
            refuse(path)
        system, inner = self.system(path)
        source = self.attempt(path, lambda: system.open_input_file(inner))
        file = ObjectFile(self, path, source)
        size, mtime_ms = self._planned(path) or (file.size(), 0)
        if size != file.size() or (mtime_ms and file.mtime_ms and mtime_ms // 1000 != file.mtime_ms // 1000):
            file.close()
            raise changed(path, f"it had {size} bytes when it was listed, and has {file.size()} now")
        return file

    def _planned(self, path: str) -> tuple[int, int] | None:
        if path in self._expected:
            return self._expected[path]
        if self._is_growing:
            return None
        known = self._listed.get(posixpath.dirname(path), {}).get(posixpath.basename(path))
        return None if known is None else (known.size, known.mtime_ms)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._check_place(path)
            return False
        return True

    def stat(self, path: str) -> FileStat:
        name = self.absolute(path)
        folder, own = posixpath.split(name)
        if folder in self._listed:
            if own not in self._listed[folder]:
                raise _missing(path)
            return self._listed[folder][own]
        if name in self._listed:
            return FileStat(0, 0, True, 0o755, False)
        system, inner = self.system(name)
        info = self.attempt(path, lambda: system.get_file_info(inner))
        found = _stat(info)
        if found is None:
            raise _missing(path)
        return found

    def forget(self) -> None:
        """Forget the listings, to see what has changed."""
        for coming in self._coming.values():
            coming.cancel()
        self._coming.clear()
        self._listed.clear()

    def list(self, path: str) -> list[str]:
        return sorted(self._names(self.absolute(path)))

    def _names(self, path: str) -> dict[str, FileStat]:
        """The names in a directory."""
        if path not in self._listed:
            coming = self._coming.pop(path, None)
            self._listed[path] = found = self._ask(path) if coming is None else coming.result()
            if self._is_ahead:
                below = [posixpath.join(path, name) for name, each in found.items() if each.is_dir]
                self._coming |= {child: self.later(self._ask, child) for child in below if child not in self._listed}
        return self._listed[path]

    def _ask(self, path: str) -> dict[str, FileStat]:
        system, inner = self.system(path)
        from pyarrow.fs import FileSelector

        found: dict[str, FileStat] = {}
        for info in self.attempt(path, lambda: system.get_file_info(FileSelector(inner))):
            status = _stat(info)
            if status is not None and info.base_name:
                found[info.base_name] = status
        return found

    def _check_place(self, path: str) -> None:
        """Raise FileNotFoundError if not even the bucket is there."""
        place, below = parts_of_url(path)
        if place.startswith("s3://") and below:
            system, inner = self.system(place)
            if _stat(self.attempt(place, lambda: system.get_file_info(inner))) is None:
                raise OSError(errno.ENOENT, "there is no such bucket", path)

    def system(self, path: str) -> tuple[pa_fs.FileSystem, str]:
        """The file system of a URL, and the path there."""
        place, below = parts_of_url(path)
        if place not in self._systems:
            self._systems[place] = _connect(place)
        system, root = self._systems[place]
        return system, posixpath.join(root, below) if below else root or "/"

    def later(self, function: Callable[..., Result], *values: Any) -> Future[Result]:
        """Run the function in another thread."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_A_TIME, "kops-objects")
        return self._pool.submit(function, *values)

    def attempt(self, path: str, function: Callable[[], Result]) -> Result:
        """The function's result. What may be over in a moment is tried again. Raises OSError with the URL."""
        for wait in (*WAITS_S, None):
            try:
                return function()
            except OSError as error:
                told = plain_error(error, path)
                if wait is None or told.errno != BROKEN:
                    raise told from error
            except (ValueError, NotImplementedError) as error:  # ArrowInvalid and its like
                raise OSError(errno.EINVAL, _first_line(error), path) from error
            self._sleep(wait)
        raise AssertionError("unreachable")

    def __getstate__(self) -> NoReturn:
        raise TypeError("ObjectFiles has connections; another process makes its own")


class ObjectFile(ReadOnlyFile):
    """An open object. Reads that follow one another get larger, up to `BLOCK`, and the next block is read in another thread."""

    def __init__(self, files: ObjectFiles, path: str, source: Any) -> None:
        self.path = path
        self._files = files
        self._source = source
        self._size = int(source.size())
        self._seen = _tag(source)
        self.mtime_ms = _tag_time(self._seen)
        self._start, self._data = 0, b""
        self._ahead: tuple[int, Future[bytes]] | None = None
        self._step = 0
        self._requests = 0
        self._is_open = True

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self._size)
        parts: list[bytes] = []
        while position < end:
            offset = position - self._start
            if not 0 <= offset < len(self._data):
                self._load(position, end - position)
                offset = position - self._start
            part = self._data[offset : offset + end - position]
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _load(self, position: int, size: int) -> None:
        """Replace the block in memory with the one at `position`."""
        follows = bool(self._data) and position == self._start + len(self._data)
        # The first block is small, because a look into an index or at a single batch needs no more.
        self._step = min(max(self._step * 2, _FIRST_BLOCK), BLOCK) if follows else max(min(size, BLOCK), min(_FIRST_BLOCK, size))
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == position:
            data = ahead[1].result()
        else:
            data = self._get(position, self._step)
        self._start, self._data = position, data
        following = position + len(data)
        if follows and following < self._size:
            self._ahead = (following, self._files.later(self._get, following, min(self._step * 2, BLOCK)))

    def _get(self, position: int, size: int) -> bytes:
        wanted = min(size, self._size - position)
        self._requests += 1

        def get() -> bytes:
            data: bytes = self._source.read_at(wanted, position)
            if len(data) < wanted:
                raise OSError(BROKEN, f"{len(data)} of {wanted} bytes came", self.path)
            return data

        try:
            return self._files.attempt(self.path, get)
        except OSError:
            self._check()
            raise

    def _check(self) -> None:
        """Raise OSError (ESTALE) if the object is no longer the one that was opened."""
        system, inner = self._files.system(self.path)
        try:
            with self._files.attempt(self.path, lambda: system.open_input_file(inner)) as now:
                is_same = now.size() == self._size and _tag(now) == self._seen
        except FileNotFoundError:
            raise changed(self.path, "it is gone") from None
        if not is_same:
            raise changed(self.path, "another object has taken its place")

    def close(self) -> None:
        """Close it. If it was read by several requests, they must have seen the same object: else raises OSError (ESTALE)."""
        if not self._is_open:
            return
        self._is_open = False
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead[1].cancel():
            ahead[1].exception()  # It is no longer needed; a failure of it neither.
        self._source.close()
        self._data = b""
        if self._requests > 1:
            self._check()


def changed(path: str, why: str) -> OSError:
    """The error for an object that is another one than it was."""
    return OSError(errno.ESTALE, f"changed during the scan: {why}", path)


def plain_error(error: OSError, path: str) -> OSError:
    """An error of pyarrow as the operating system would raise it, with the URL."""
    text = _first_line(error)
    # Source of the words: Arrow's cpp/src/arrow/filesystem/s3_internal.h (ErrorToString) and the errors of the other file systems.
    if error.errno not in (None, 0, errno.EIO):
        return OSError(error.errno, os.strerror(error.errno or 0), path)
    for words, number, told in _TOLD:
        if any(word in text for word in words):
            return OSError(number, told + (_advice(path) if number == errno.EACCES else ""), path)
    return OSError(BROKEN, error.strerror or text, path)


_TOLD: Final = (
    (("NO_SUCH_BUCKET",), errno.ENOENT, "there is no such bucket"),
    (("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"), errno.ENOENT, os.strerror(errno.ENOENT)),
    (("ACCESS_DENIED", "HTTP status 403", "PermissionDenied"), errno.EACCES, "access denied"),
    (("INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId"), errno.EACCES, "access denied: the store does not know the access key"),
    (("SIGNATURE_DOES_NOT_MATCH",), errno.EACCES, "access denied: the secret key is not that of the access key"),
    (("EXPIRED_TOKEN", "ExpiredToken"), errno.EACCES, "access denied: the session token has expired"),
    (("HTTP status 301", "PermanentRedirect", "HTTP status 400"), errno.EINVAL, "the store refuses the request: is it the right region?"),
)


def _advice(path: str) -> str:
    place, _ = parts_of_url(path)
    if not place.startswith("s3://") or "access_key" in connection(place):
        return ""
    return "; no credentials were given: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


def _connect(place: str) -> tuple[pa_fs.FileSystem, str]:
    """The file system at `scheme://authority`, and the path of its root there."""
    try:
        from pyarrow import fs as pa_fs
    except ImportError as error:
        raise MissingDependencyError(f"{place}: reading URLs needs pyarrow: pip install 'kops[spark]'") from error
    options = connection(place)
    scheme, _, authority = place.partition("://")
    try:
        if scheme == "s3":
            chosen = _s3_options(place, options)
            if "region" not in chosen:
                chosen |= _region(authority)
            return pa_fs.S3FileSystem(**chosen), authority
        query = "&".join(f"{name}={value}" for name, value in options.items())
        system, root = pa_fs.FileSystem.from_uri(f"{place}/{'?' if query else ''}{query}")
        return system, root.rstrip("/")
    except (ValueError, NotImplementedError) as error:
        if "Unrecognized filesystem" in str(error):
            return _from_fsspec(scheme, place, options)
        raise UsageError(f"{place}: {_first_line(error)}") from error
    except OSError as error:
        raise OSError(BROKEN, _first_line(error), place) from error


def check_url(url: str) -> None:
    """Raise UsageError for a URL whose scheme or options nothing can be read with. No store is asked."""
    place, _ = parts_of_url(url)
    scheme = place.partition("://")[0]
    if scheme == "s3":
        _s3_options(place, connection(place))
    elif scheme not in _OF_PYARROW:
        _connect(place)


def _s3_options(place: str, options: dict[str, str]) -> dict[str, Any]:
    unknown = [name for name in options if name not in S3_OPTIONS]
    if unknown:
        raise UsageError(f"{place}: unknown option {unknown[0]}; the options of s3 are {', '.join(S3_OPTIONS)}")
    found: dict[str, Any] = {**_PATIENCE, **options}
    if "anonymous" in found:
        found["anonymous"] = found["anonymous"].lower() == "true"
    scheme, separator, host = found.get("endpoint_override", "").rpartition("://")
    if separator:
        found |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
    if "region" not in found and "endpoint_override" in found:
        found["region"] = "us-east-1"  # What such stores take. Else Amazon's SDK asks the metadata service of EC2, which may not answer.
    return found


def _region(bucket: str) -> dict[str, str]:
    """The region of a bucket of Amazon's, as an option; nothing if it does not tell: then the SDK's configuration decides."""
    from pyarrow.fs import resolve_s3_region

    try:
        return {"region": resolve_s3_region(bucket)}
    except OSError:
        return {}


def _from_fsspec(scheme: str, place: str, options: dict[str, str]) -> tuple[pa_fs.FileSystem, str]:
    try:
        import fsspec
        from pyarrow.fs import FSSpecHandler, PyFileSystem
    except ImportError as error:
        raise UsageError(f"{place}: kops can't read {scheme}: URLs; it reads file, s3, gs, abfs, hdfs, and those of fsspec") from error
    try:
        system = fsspec.filesystem(scheme, **options)
    except (ValueError, ImportError, TypeError) as error:
        raise UsageError(f"{place}: {_first_line(error)}") from error
    return PyFileSystem(FSSpecHandler(system)), place.partition("://")[2]


def _stat(info: Any) -> FileStat | None:
    """None: there is nothing."""
    kind = info.type.name
    if kind == "NotFound":
        return None
    mtime_ms = 0 if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000
    is_dir = kind == "Directory"
    return FileStat(int(info.size or 0), mtime_ms, is_dir, 0o755 if is_dir else 0o644, kind == "File")


def _tag(source: Any) -> dict[str, bytes]:
    """What tells one version of an object from another: for stores that have it, the tag and the time."""
    try:
        metadata = source.metadata()
    except (OSError, ValueError, NotImplementedError):
        return {}
    return {name.lower(): value for name, value in dict(metadata or {}).items() if name.lower() in ("etag", "last-modified")}


def _tag_time(seen: Mapping[str, bytes]) -> int:
    """The time in a tag (ms); 0 if there is none."""
    from datetime import datetime

    text = seen.get("last-modified", b"").decode("ascii", "replace")
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _missing(path: str) -> OSError:
    return OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
