"""URLs among the paths: how to recognise and normalise them, and how their file systems are reached.

A URL is `scheme://authority/path`. Options are in its query, as pyarrow has them (`?endpoint_override=127.0.0.1:9000&scheme=http`), and an
access key may stand before the authority. `plain_path` takes both off, so that no finding and no message shows a secret, and keeps them for
this process as the connection of `scheme://authority`. Without them, the environment applies: the variables of Amazon's SDK for `s3:`.
`connections` is what another process needs to reach the same places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

from kops.errors import UsageError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
ENVIRONMENT: Final = {
    "access_key": ("AWS_ACCESS_KEY_ID",),
    "secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_override": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""Options of `s3:` and the variables of the environment that stand for them. The first one that is set counts."""
_CREDENTIALS: Final = ("access_key", "secret_key", "session_token")
_SHARED: Final = "s3://"
Connections = dict[str, dict[str, str]]

_known: Connections = {}


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return "://" in path and _URL.fullmatch(path) is not None


def parts_of_url(url: str) -> tuple[str, str]:
    """`scheme://authority`, and the path behind it without a slash at either end, of a URL without options."""
    found = _URL.fullmatch(url)
    if found is None:
        raise UsageError(f"{url}: not a URL")
    scheme = found[1].lower()
    names = [name for name in found[3].split("/") if name not in ("", ".")]
    return f"{_ALIASES.get(scheme, scheme)}://{found[2]}", "/".join(names)


def plain_path(path: str | os.PathLike[str]) -> str:
    """A URL without its options, which are remembered; any other path as it is. UsageError for a URL that nothing can be read from."""
    text = os.fspath(path)
    if not is_url(text):
        return text
    found = _URL.fullmatch(text)
    assert found is not None
    user, at, authority = found[2].rpartition("@")
    scheme = _ALIASES.get(found[1].lower(), found[1].lower())
    options = dict(parse_qsl(found[4] or "", keep_blank_values=True))
    if at and scheme == "s3":
        key, _, secret = user.partition(":")
        options |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    elif at:
        authority = found[2]  # A container of Azure, or a user of HDFS.
    if scheme == "file" and authority not in ("", "localhost"):
        raise UsageError(f"{found[1]}://{authority}{found[3]}: a file of another machine; write file:///path")
    if scheme != "file" and not authority:
        raise UsageError(f"{found[1]}://{found[3]}: no bucket or host after ://")
    place = f"{scheme}://{'' if scheme == 'file' else authority}"
    if options:
        _known[place] = options
    below = parts_of_url(f"{place}{found[3]}")[1]
    return f"/{unquote(below)}" if scheme == "file" else f"{place}/{below}".rstrip("/")


def plain_paths(paths: Iterable[str | os.PathLike[str]] | os.PathLike[str]) -> list[str]:
    """`plain_path` of each. One text is one path, and not a list of letters."""
    return [plain_path(path) for path in ((paths,) if isinstance(paths, str | os.PathLike) else paths)]


def absolute_path(path: str) -> str:
    """The absolute name of a path: a URL has no other. The same object if nothing changes, because a plan has many."""
    if is_url(path):
        return path
    absolute = os.path.abspath(path)
    return path if absolute == path else absolute


def connection(place: str) -> dict[str, str]:
    """The options of `scheme://authority`: of a URL that was given, else of the process that named it, else of the environment.

    A secret key and a token belong to their access key, so all three come from the same source.
    """
    sources = [_known.get(place, {})]
    if place.startswith("s3://"):
        sources += [_known.get(_SHARED, {}), _from_environment(os.environ)]
    options: dict[str, str] = {}
    for source in sources:
        has_key = "access_key" in options
        options |= {name: value for name, value in source.items() if name not in options and not (has_key and name in _CREDENTIALS)}
    return options


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, variables in ENVIRONMENT.items():
        value = next((environment[each] for each in variables if environment.get(each)), None)
        if value is not None:
            found[name] = value
    return found


def connections() -> Connections:
    """What another process needs to reach the places that this one reaches. It has secrets: pass it on, show it to nobody."""
    shared = {**_from_environment(os.environ), **_known.get(_SHARED, {})}
    return {**_known, **({_SHARED: shared} if shared else {})}


def connect(given: Connections) -> None:
    """Reach places as the process that `given` comes from."""
    _known.clear()
    _known.update(given)
