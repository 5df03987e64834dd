"""The generated documents agree with the tables, and the marks of settings are true."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import kops
from kops.config.broker_keys.table import MARKS
from kops.config.groups import limits_of_groups
from kops.coordinators.groups.config import GroupCoordinatorConfig
from tools import make_docs

SOURCE = Path(kops.__file__).parent
PARTS = ("broker", "coordinators", "metadata", "replication", "storage")
# Modules in which settings are derived from other settings.
DERIVED = tuple(f"config/{name}.py" for name in ("broker/config", "broker/settings", "broker/listeners", "broker_keys/quorum", "topic"))
# These only decide whether a node may start, or whether Kafka's own class is meant.
ASKED_FOR = {"remote.log.storage.system.enable", "replica.selector.class"}
# There is one assignor of share groups, so this is only checked.
CHECKED = {"group.share.assignors"}


def test_the_documents_are_current() -> None:
    assert make_docs.differences() == [], "run: make docs"


def test_a_row_for_every_setting() -> None:
    text = make_docs.configuration()
    for name in MARKS:
        assert text.count(f"| `{name}` |") == 1, name


def test_used_is_said_of_what_is_read() -> None:
    """A setting is read by its name, so the code of the parts contains the name of each used one, but not of those marked `none` or
    `refused`.
    """
    files = [path for part in PARTS for path in (SOURCE / part).rglob("*.py")]
    named = "".join(path.read_text() for path in files)
    derived = named + "".join((SOURCE / path).read_text() for path in DERIVED)
    derived += "".join(f'"{field.name.replace("_", ".")}"' for field in fields(GroupCoordinatorConfig))
    derived += "".join(f'"{name}"' for limited in limits_of_groups() for name in limited)
    used = {name for name, mark in MARKS.items() if mark.effect == "used"}
    assert [name for name in used - CHECKED if f'"{name}"' not in derived] == []
    assert [name for name in MARKS if f'"{name}"' in named and name not in used | ASKED_FOR] == []


def test_every_setting_of_groups_is_read() -> None:
    """Otherwise a setting that nobody reads would be called used."""
    read = "".join(path.read_text() for part in PARTS for path in (SOURCE / part).rglob("*.py"))
    assert [field.name for field in fields(GroupCoordinatorConfig) if read.count(field.name) < 2] == []
