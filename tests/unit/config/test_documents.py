"""The documents that are made from tables are those of the tables as they are, and the marks of settings say what is so."""

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
# What of the settings is derived where they are read.
DERIVED = tuple(f"config/{name}.py" for name in ("broker/config", "broker/settings", "broker/listeners", "broker_keys/quorum", "topic"))
# These only decide whether a node may be started, or whether Kafka's own class is meant.
ASKED_FOR = {"remote.log.storage.system.enable", "replica.selector.class"}


def test_the_documents_are_current() -> None:
    assert make_docs.differences() == [], "run: make docs"


def test_a_row_for_every_setting() -> None:
    text = make_docs.configuration()
    for name in MARKS:
        assert text.count(f"| `{name}` |") == 1, name


def test_used_is_said_of_what_is_read() -> None:
    """What is read is read by its name, so it stands in the code of the parts; what is `none` or `refused` does not."""
    files = [path for part in PARTS for path in (SOURCE / part).rglob("*.py")]
    named = "".join(path.read_text() for path in files)
    derived = named + "".join((SOURCE / path).read_text() for path in DERIVED)
    derived += "".join(f'"{field.name.replace("_", ".")}"' for field in fields(GroupCoordinatorConfig))
    derived += "".join(f'"{name}"' for limited in limits_of_groups() for name in limited)
    used = {name for name, mark in MARKS.items() if mark.effect == "used"}
    assert [name for name in used if f'"{name}"' not in derived] == []
    assert [name for name in MARKS if f'"{name}"' in named and name not in used | ASKED_FOR] == []
