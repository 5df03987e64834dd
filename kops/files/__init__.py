"""The interface to files, and its implementations: the file system, memory, copy-on-write over another, and one that fails on purpose.

files = OsFiles(read_only=True)
with files.open("/data/topic-0/00000000000000000000.log") as log:
    window = log.read(0, 1 << 20)
"""

from kops.files.api import LOCK_FILE, File, Files, FileStat, Lock, Mode, ReadOnlyError
from kops.files.faulty import Crash, FaultyFiles
from kops.files.os_files import OsFile, OsFiles
from kops.files.tree import Changes, MemoryFiles, OverlayFiles

__all__ = [
    "LOCK_FILE",
    "Changes",
    "Crash",
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
]
