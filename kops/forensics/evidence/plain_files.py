"""A view of the file system for evidence: it hides links, pipes and devices, and bad sectors of a disk read as zeros."""

from __future__ import annotations

import os
import stat

from kops.forensics.recover.copies.disk import PatientFiles


class PlainFiles(PatientFiles):
    """Regular files and directories of `base`, for reading only."""

    def list(self, path: str) -> list[str]:
        """Return only names of regular files and directories."""
        return [name for name in super().list(path) if _is_plain(os.path.join(path, name))]


def _is_plain(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True  # opening it raises the error
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
