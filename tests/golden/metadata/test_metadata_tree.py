"""`kops.forensics.metadata_log` on the metadata logs of real nodes: the tree, differences, and what a replay finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.metadata_log.compare import compare
from kops.forensics.metadata_log.replay import replay
from kops.forensics.metadata_log.source import MetadataSource, open_metadata
from kops.forensics.metadata_log.tree import Folder, find_node, matching, tree, walk
from kops.forensics.metadata_log.verify import verify_metadata
from kops.metadata.records import write_record
from kops.protocol.messages import TopicRecord
from kops.records import Record, build_batch
from tests.support import corpus

FILES = OsFiles(read_only=True)
CLEAN = [
    ("broker-damage-4.3.0-none", "clean"),
    ("broker-damage-4.3.0-none-dynamic", "clean"),
    ("broker-damage-4.3.0-none-snapshot", "clean"),
    ("broker-dir-4.3.0", "recovered"),
    ("cluster-3.9.1", "nodes/n1"),
    ("cluster-4.3.0", "nodes/n1"),
    ("cluster-4.3.0", "nodes/n100"),
]
# What only a replay finds, or what is damaged in any case.
DAMAGED = {
    "metadata-flip-topic-record": {"batch-crc-mismatch", "metadata-record-contradiction"},
    "metadata-record-type-wrong-crc-ok": {"metadata-record-unreadable"},
    "snapshot-flipped": {"metadata-snapshot-malformed"},
    "snapshot-footer-missing": {"metadata-snapshot-incomplete"},
    "snapshots-all-missing": {"metadata-start-missing", "metadata-record-contradiction"},
}


def source_of(folder: Path) -> MetadataSource:
    found = [path for path in folder.rglob("__cluster_metadata-0") if path.is_dir()]
    assert len(found) == 1
    return open_metadata(str(found[0]), FILES)


def clean(case_id: str, part: str) -> MetadataSource:
    return source_of(corpus.load(case_id).root / part)


@pytest.mark.parametrize(("case_id", "part"), CLEAN)
def test_what_kafka_wrote_is_clean(case_id: str, part: str) -> None:
    source = clean(case_id, part)
    assert [found.code for found in verify_metadata(source, FILES) if found.is_problem] == []
    result = replay(source, FILES)
    assert result.faults == []
    assert result.image.offset == result.end_offset - 1
    assert not result.open_transaction


@pytest.mark.parametrize(("case_id", "part"), CLEAN)
def test_the_way_over_the_snapshot_and_the_way_over_the_log_give_the_same(case_id: str, part: str) -> None:
    source = clean(case_id, part)
    if source.logs[0].offset:
        return
    over_log = replay(source, FILES, use_snapshots=False)
    assert over_log.snapshot is None
    assert list(compare(tree(over_log.image), tree(replay(source, FILES).image))) == []


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_found_and_the_rest_is_shown(damage: str) -> None:
    source = clean(f"broker-damage-4.3.0-{damage}", "before")
    assert {found.code for found in verify_metadata(source, FILES) if found.is_problem} == DAMAGED[damage]
    result = replay(source, FILES)
    assert result.faults
    # The last record of the log is there, whatever was lost before it.
    assert result.image.offset == result.end_offset - 1 > 0


def test_an_older_snapshot_takes_the_place_of_a_damaged_one() -> None:
    whole = replay(clean("broker-damage-4.3.0-none-snapshot", "clean"), FILES)
    for damage in ("snapshot-flipped", "snapshot-empty", "snapshot-footer-missing", "snapshot-truncated"):
        result = replay(clean(f"broker-damage-4.3.0-{damage}", "before"), FILES)
        assert result.snapshot is not None
        assert whole.snapshot is not None
        assert result.snapshot.name < whole.snapshot.name
        assert result.faults[0].file.endswith(whole.snapshot.name)
        topics = find_node(tree(result.image), "topics/byName")
        assert topics.keys() == find_node(tree(whole.image), "topics/byName").keys()


def test_a_snapshot_that_is_not_what_the_log_says(tmp_path: Path) -> None:
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "n1", "nodes/n1")
    source = source_of(folder)
    old, new = source.snapshots[0], source.snapshots[-1]
    Path(new.path).chmod(0o600)
    Path(new.path).write_bytes(Path(old.path).read_bytes())
    found = [each for each in verify_metadata(source_of(folder), FILES) if each.code == "metadata-snapshot-differs"]
    assert [each.file for each in found] == [new.path]
    assert " in the log, " in found[0].detail


def test_a_log_without_a_metadata_version(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    record = Record(0, 5, "CreateTime", None, write_record(TopicRecord(name="a", topic_id=bytes(15) + b"a"), 0))
    (folder / "00000000000000000000.log").write_bytes(build_batch([record], partition_leader_epoch=1))
    found = [each for each in verify_metadata(open_metadata(str(folder), FILES), FILES) if each.severity == "error"]
    assert [(each.code, each.detail[:32]) for each in found] == [("metadata-record-contradiction", "no record sets metadata.version,")]


def test_the_tree_has_kafkas_nodes() -> None:
    root = tree(replay(clean("cluster-4.3.0", "nodes/n1"), FILES).image)
    parts = ["provenance", "features", "cluster", "topics", "configs", "clientQuotas", "producerIds", "acls", "scram", "delegationToken"]
    assert list(root) == parts
    topic = find_node(root, "topics/byName/orders-epochs")
    assert find_node(root, f"topics/byId/{topic['id']}") is topic
    assert find_node(root, "/topics/byName/orders-epochs/0/")["replicas"] == [1, 2, 3]
    assert find_node(root, "features/metadataVersion") == "4.3-IV0"
    assert find_node(root, "configs/TOPIC:orders-epochs/index.interval.bytes") == "256"
    assert sorted(root["cluster"]["brokers"]) == ["1", "2", "3"]
    assert root["cluster"]["brokers"]["2"]["fenced"] is False
    assert next(path for path, _ in matching(root, "configs", "*orders*")) == "configs/TOPIC:orders-epochs"
    for wrong in ("nothing", "topics/byName/none", "features/metadataVersion/more"):
        with pytest.raises(KeyError):
            find_node(root, wrong)
    assert sum(not isinstance(node, Folder) for _, node in walk(root)) > 50


def test_an_image_before_a_topic_was_made() -> None:
    source = clean("broker-damage-4.3.0-none", "clean")
    whole = tree(replay(source, FILES).image)
    names = whole["topics"]["byName"].keys()
    counts = []
    for end in range(replay(source, FILES).end_offset + 1):
        result = replay(source, FILES, end=end)
        assert result.end_offset == end
        counts.append(len(result.image.topics.by_name))
    assert counts[0] == 0
    assert counts[-1] == len(names)
    assert counts == sorted(counts)
    before = tree(replay(source, FILES, end=counts.index(1)).image)
    added = [each.path for each in compare(before, whole) if each.change == "added" and each.path.endswith("/name")]
    assert len(added) == len(names) - 1
