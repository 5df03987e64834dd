"""The corpus cases of a whole broker, as files that a node can start on: an overlay in memory over the read-only files of the case."""

from __future__ import annotations

from kops.files import Files, OsFiles, OverlayFiles
from tests.support.corpus import Case


def broker_files(case: Case, mode: str) -> tuple[Files, list[str]]:
    """Return files and log directories of a `broker-damage` case as they were before a start in a mode (`clean`, `left`)."""
    overlay = OverlayFiles(OsFiles(read_only=True))
    log_dirs = [str(case.root / "before" / name) for name in case.json["logDirs"]]
    for log_dir in log_dirs:
        for empty in case.json["before"].get("emptyDirs") or ():
            path = str(case.root / "before" / empty)
            if path.startswith(log_dir) and not overlay.exists(path):
                overlay.mkdir(path)
        marker = f"{log_dir}/.kafka_cleanshutdown"
        if mode == "left" and overlay.exists(marker):
            overlay.unlink(marker)
    return overlay, log_dirs
