"""An S3 interface on loopback: moto's server, and a proxy before it that breaks connections, refuses requests, and counts them."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BUCKET = "kops-tests"
KEYS = "test-key:test-secret@"
_DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class Proxy:
    """A proxy that passes requests on.

    `breaks` is how many bodies of objects end in the middle, `drops` is how many requests get no answer. `on_get` is called with the path
    before each GET of an object. With `closed`, requests without a signature are refused. Every request below the path `forbidden` is
    refused as well.
    """

    def __init__(self, port: int) -> None:
        self.breaks = self.drops = 0
        self.closed = False
        self.forbidden = ""
        self.on_get: Callable[[str], None] = lambda _: None
        self.seen: list[str] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.pass_on(self, port)

            def log_message(self, *_: Any) -> None:
                """Do not log."""

        for method in ("HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.do_GET)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """Pass everything on again."""
        self.breaks = self.drops = 0
        self.closed = False
        self.forbidden = ""
        self.on_get = lambda _: None
        self.seen.clear()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, name: str) -> bool:
        with self._lock:
            left = getattr(self, name)
            setattr(self, name, max(left - 1, 0))
            return bool(left)

    def pass_on(self, asked: BaseHTTPRequestHandler, port: int) -> None:
        """Answer a request as the server does, or break it."""
        body = _body(asked)
        is_object = asked.command == "GET" and "list-type" not in asked.path
        self.seen.append(f"{asked.command} {asked.path}")
        if self._take("drops"):
            asked.close_connection = True
            return
        if (self.closed and "Authorization" not in asked.headers) or (self.forbidden and self.forbidden in asked.path):
            asked.send_response(403)
            asked.send_header("Content-Type", "application/xml")
            asked.send_header("Content-Length", str(len(_DENIED)))
            asked.end_headers()
            asked.wfile.write(b"" if asked.command == "HEAD" else _DENIED)
            return
        if is_object:
            self.on_get(asked.path)
        upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            upstream.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                if name.lower() not in ("transfer-encoding", "content-length"):
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
        finally:
            upstream.close()
        asked.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date"):
                asked.send_header(name, value)
        length = answer.headers["Content-Length"] if asked.command == "HEAD" else str(len(data))
        asked.send_header("Content-Length", length or "0")
        asked.end_headers()
        if is_object and data and self._take("breaks"):
            asked.wfile.write(data[: len(data) // 2])
            asked.close_connection = True
            return
        asked.wfile.write(data)


def _body(asked: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in asked.headers.get("Transfer-Encoding", ""):
        return asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
    parts = []
    while size := int(asked.rfile.readline().split(b";")[0], 16):
        parts.append(asked.rfile.read(size))
        asked.rfile.readline()
    while asked.rfile.readline().strip():
        pass  # trailers
    return b"".join(parts)


_PATIENCE_S = 60
"""pyarrow gives up after three seconds. On a loaded machine the server needs longer to begin."""


class Store:
    """A bucket that is reached through the proxy."""

    def __init__(self, port: int) -> None:
        from pyarrow import fs

        self.proxy = Proxy(port)
        self.system = fs.S3FileSystem(
            access_key="test-key",
            secret_key="test-secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
            connect_timeout=_PATIENCE_S,
            request_timeout=_PATIENCE_S,
        )
        self.system.create_dir(BUCKET)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    def url(self, path: str, keys: str = KEYS) -> str:
        """Return a URL with everything that is needed to reach it."""
        return f"s3://{keys}{BUCKET}/{path}?endpoint_override=127.0.0.1:{self.proxy.port}&scheme=http&region=us-east-1"

    def plain(self, path: str) -> str:
        """Return a URL as findings name it."""
        return f"s3://{BUCKET}/{path}"

    def put(self, path: str, data: bytes) -> None:
        with self.system.open_output_stream(f"{BUCKET}/{path}") as stream:
            stream.write(data)

    def put_tree(self, folder: Path, path: str) -> str:
        """Upload a directory. Returns its URL."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.put(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return self.url(path)

    def tree(self, path: str) -> dict[str, bytes]:
        """Return all objects below a path."""
        from pyarrow import fs

        found = self.system.get_file_info(fs.FileSelector(f"{BUCKET}/{path}", recursive=True))
        return {
            info.path.removeprefix(f"{BUCKET}/{path}/"): self.system.open_input_file(info.path).readall()
            for info in found
            if info.type == fs.FileType.File
        }


@contextmanager
def object_store() -> Iterator[Store]:
    """Provide a server and a bucket for this process and its children."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        store = Store(server.get_host_and_port()[1])
        try:
            yield store
        finally:
            store.proxy.stop()
    finally:
        server.stop()
