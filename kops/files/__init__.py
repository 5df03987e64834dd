"""The interface to files, and its implementations.

These are the file system, objects behind URLs, files in memory, copy-on-write over another tree, another tree as it was first seen, and two
that fail on purpose.

files = OsFiles(read_only=True)
with files.open("/data/topic-0/00000000000000000000.log") as log:
    window = log.read(0, 1 << 20)
"""

from __future__ import annotations

from kops.files.api import LOCK_FILE, File, Files, FileStat, Lock, Mode, ReadOnlyError
from kops.files.os_files import OsFile, OsFiles
from kops.late import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.files.crash import CrashFiles
    from kops.files.faulty import Crash, FaultyFiles
    from kops.files.tree import Changes, MemoryFiles, OverlayFiles, SnapshotFiles

__all__ = [
    "LOCK_FILE",
    "Changes",
    "Crash",
    "CrashFiles",
    "FaultyFiles",
    "File",
    "FileStat",
    "Files",
    "Lock",
    "MemoryFiles",
    "Mode",
    "OsFile",
    "OsFiles",
    "OverlayFiles",
    "ReadOnlyError",
    "SnapshotFiles",
]

_LATER = {
    "Changes": "kops.files.tree",
    "Crash": "kops.files.faulty",
    "CrashFiles": "kops.files.crash",
    "FaultyFiles": "kops.files.faulty",
    "MemoryFiles": "kops.files.tree",
    "OverlayFiles": "kops.files.tree",
    "SnapshotFiles": "kops.files.tree",
}


# A mere inspection of files does not need these.
__getattr__ = late(globals(), _LATER)
