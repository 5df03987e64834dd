"""`kops log meta` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


@pytest.fixture(scope="module")
def node() -> str:
    """Provide the log directory of a controller."""
    return str(corpus.load("cluster-4.3.0").root / "nodes" / "n1")


def test_ls_cat_find(kops: Kops, node: str) -> None:
    assert kops("log", "meta", "ls", "--format", "csv", node, "topics").text == "path,children,value\ntopics/byName,5,\ntopics/byId,5,\n"
    document = json.loads(kops("log", "meta", "cat", node, "topics/byName/orders-epochs/0").text)
    assert document["schema"] == "kops.meta-node/v1"
    assert document["path"] == "topics/byName/orders-epochs/0"
    assert document["value"]["leaderEpoch"] == 5
    early = json.loads(kops("log", "meta", "cat", "--to-offset", "230", node, "topics/byName/orders-epochs/0").text)
    assert early["value"]["leaderEpoch"] == 4
    lines = kops("log", "meta", "find", "--name", "*orders*", "--format", "jsonl", node, "configs").text.splitlines()
    assert [json.loads(line)["path"] for line in lines] == [
        "configs/TOPIC:orders-epochs",
        "configs/TOPIC:orders-epochs/index.interval.bytes",
        "configs/TOPIC:orders-epochs/internal.segment.bytes",
    ]
    assert kops("log", "meta", "ls", "--format", "csv", node, "features/metadataVersion").text == (
        "path,children,value\nfeatures/metadataVersion,,4.3-IV0\n"
    )


def test_what_is_not_there(kops: Kops, node: str, tmp_path: Path) -> None:
    ran = kops("log", "meta", "cat", node, "topics/byName/none")
    assert (ran.code, ran.err) == (
        8,
        "kops: error: topics/byName/none: no such node; kops log meta find lists the nodes, and --name '*…*' searches for names\n",
    )
    assert kops("log", "meta", "find", "--name", "none", node).code == 8
    assert kops("log", "meta", "ls", str(tmp_path / "none")).code == 8
    ran = kops("log", "meta", "ls", node + "/orders-epochs-0")
    assert (ran.code, "no metadata log" in ran.err) == (16, True)


def test_diff(kops: Kops, node: str) -> None:
    ran = kops("log", "meta", "diff", "--format", "json", node)
    document = json.loads(ran.text)
    assert (ran.code, document["beforeOffset"], document["afterOffset"]) == (0, 230, 249)
    fenced = {"change": "changed", "path": "cluster/brokers/1", "field": "fenced", "before": False, "after": True}
    assert fenced in document["differences"]
    assert kops("log", "meta", "diff", "--from-offset", "250", node).err == "nothing differs between offset 249 and offset 249\n"
    assert "251: " in (beyond := kops("log", "meta", "diff", "--from-offset", "251", node)).err and beyond.code == 16
    other = node.replace("/n1", "/n3")
    rows = [json.loads(line) for line in kops("log", "meta", "diff", "--format", "jsonl", node, other).text.splitlines()]
    assert {"cluster/brokers/3"} == {row["path"] for row in rows if row["path"].startswith("cluster")}
    assert kops("log", "meta", "diff", "--from-offset", "1", node, other).code == 16


def test_verify(kops: Kops, node: str) -> None:
    ran = kops("log", "meta", "verify", node)
    assert (ran.code, ran.text) == (0, "clean in 1 segment and 4 snapshots of the metadata log\n")
    damaged = str(corpus.load("broker-damage-4.3.0-metadata-record-type-wrong-crc-ok").root / "before" / "disk1")
    ran = kops("log", "meta", "verify", damaged)
    assert ran.code == 4
    assert "metadata-record-unreadable [12]: Unknown metadata id 99" in ran.text
    ran = kops("log", "meta", "ls", damaged)
    assert ran.code == 4
    assert "[12]: left out: Unknown metadata id 99" in ran.err
    assert "topics" in ran.text
