"""The file system as evidence sees it: links, pipes and devices are not there, and bad places of a disk read as zeros."""

from __future__ import annotations

import os
import stat

from kops.forensics.recover.copies.disk import PatientFiles


class PlainFiles(PatientFiles):
    """Regular files and directories of `base`, for reading only."""

    def list(self, path: str) -> list[str]:
        """Only names of regular files and directories."""
        return [name for name in super().list(path) if _is_plain(os.path.join(path, name))]


def _is_plain(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True  # who opens it gets the error
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
