"""Raw requests of transactions, valid and invalid ones, that are sent to a kops node and to a Kafka node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from kops.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kops.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kops.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kops.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker, WritableTxnMarkerTopic
from kops.records import Record, build_batch
from tests.support.kafka.two_brokers import Side
from tests.support.requests.group_steps import ready

Steps = Iterator[tuple[str, Any]]
PATIENCE_S = 60
_BUSY = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR")


class Producer:
    """A transactional id on one side."""

    def __init__(self, side: Side, name: str) -> None:
        self.side, self.name = side, name
        self.id = self.epoch = -1
        self.find()
        self.topic = f"{name}-topic"
        side.create(self.topic, partitions=2)

    def find(self) -> None:
        """Wait until there is a coordinator."""
        self.patient(lambda: self.side.ask(FindCoordinatorRequest(self.name, 1), 3))

    def patient(self, ask: Any) -> Any:
        """Retry until the answer is not one of those that ask for a retry."""
        limit = time.monotonic() + PATIENCE_S
        while (answer := ask())["error_code"] in _BUSY:
            assert time.monotonic() < limit, answer
            time.sleep(0.02)
        return answer

    def init(self, *, version: int = 5, patient: bool = True, **fields: Any) -> Any:
        """Send InitProducerId. The id is masked: the answer only shows whether it is the same as before."""
        request = InitProducerIdRequest(self.name, 60_000, **fields)
        answer = self.patient(lambda: self.side.ask(request, version)) if patient else self.side.ask(request, version)
        is_same = answer["producer_id"] == self.id
        if answer["error_code"] in (0, "NONE"):
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer | {"producer_id": is_same}

    def add(self, version: int, *numbers: int, topic: str | None = None, epoch: int | None = None, verify: bool = False) -> Any:
        """Send AddPartitionsToTxn."""
        return self.add_all(version, {topic or self.topic: list(numbers)}, epoch=epoch, verify=verify)

    def add_all(self, version: int, partitions: dict[str, list[int]], *, epoch: int | None = None, verify: bool = False) -> Any:
        """Send AddPartitionsToTxn with several topics."""
        topics = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in partitions.items()]
        own_epoch = self.epoch if epoch is None else epoch
        if version < 4:
            return self.side.ask(AddPartitionsToTxnRequest([], self.name, self.id, own_epoch, topics), version)
        transaction = AddPartitionsToTxnTransaction(self.name, self.id, own_epoch, verify, topics)
        return self.side.ask(AddPartitionsToTxnRequest([transaction]), version)

    def produce(self, version: int, sequence: int, *, number: int = 0, epoch: int | None = None) -> Any:
        """Produce one record."""
        own_epoch = self.epoch if epoch is None else epoch
        record = Record(0, 1_700_000_000_000, "CreateTime", None, b"value")
        batch = build_batch([record], producer_id=self.id, producer_epoch=own_epoch, base_sequence=sequence, transactional=True)
        topics = [TopicProduceData(self.topic, partition_data=[PartitionProduceData(number, batch)])]
        return self.side.ask(ProduceRequest(self.name, -1, 5000, topics), version)

    def end(self, *, version: int, is_commit: bool = True, epoch: int | None = None) -> Any:
        """Send EndTxn. The id is masked."""
        request = EndTxnRequest(self.name, self.id, self.epoch if epoch is None else epoch, is_commit)
        answer = self.patient(lambda: self.side.ask(request, version))
        if answer.get("producer_epoch", -1) >= 0 and epoch is None:
            self.epoch = answer["producer_epoch"]
        return answer | {"producer_id": answer.get("producer_id", -1) == self.id}

    def describe(self) -> Any:
        """Describe the transaction without its times, after its end is complete."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            answer = self.side.ask(DescribeTransactionsRequest([self.name, "absent", ""]), 0)
            states = answer["transaction_states"]
            if not states[0]["transaction_state"].startswith("Prepare") or time.monotonic() > limit:
                break
            time.sleep(0.02)
        for state in states:
            state["producer_id"] = state["producer_id"] == self.id
            state["transaction_start_time_ms"] = state["transaction_start_time_ms"] > 0
        return states


def old_transactions(side: Side, version: int) -> Steps:
    """Run a client of transaction version 0, in this version of the three APIs (as far as they have it)."""
    end, add = min(version, 4), min(version, 3)
    producer = Producer(side, f"old-{version}")
    yield "init", producer.init(version=min(version, 5))
    yield "end of nothing", producer.end(version=end)
    yield "not in the transaction", producer.produce(9, 0)
    yield "not in the transaction, newer", producer.produce(11, 0)
    yield "add", producer.add(add, 0, 1)
    yield "add again", producer.add(add, 0)
    yield "add what is not there", producer.add(add, 0, 9)
    for topic in ("__transaction_state", "__consumer_offsets", "__share_group_state"):
        yield f"add {topic}", producer.add(add, 0, 999, topic=topic)
    yield "add also an internal topic", producer.add_all(add, {producer.topic: [0, 9], "__transaction_state": [0]})
    yield "add nothing", producer.add_all(add, {producer.topic: [0, 0], "nowhere": []})
    yield "old epoch", producer.add(add, 1, epoch=5)
    yield "produce", producer.produce(9, 0)
    yield "describe", producer.describe()
    yield "commit", producer.end(version=end)
    yield "committed", producer.describe()
    yield "commit again", producer.end(version=end)
    yield "abort what is committed", producer.end(version=end, is_commit=False)
    yield "wrong epoch", producer.end(version=end, epoch=7)
    yield "offsets", side.ask(AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, "group"), min(version, 4))
    yield "offsets, wrong", side.ask(AddOffsetsToTxnRequest(producer.name, producer.id + 1, producer.epoch, "group"), min(version, 4))
    yield "offsets, wrong epoch", side.ask(AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch + 3, "group"), min(version, 4))
    yield "fence", producer.init(version=min(version, 5), patient=False)
    old = producer.epoch
    yield "init after the fence", producer.init(version=min(version, 5))
    yield "zombie adds", producer.add(add, 0, epoch=old)
    yield "zombie ends", producer.end(version=end, epoch=old)


def new_transactions(side: Side, version: int) -> Steps:
    """Run a client of version 2. Produce adds the partitions, and each end raises the epoch."""
    producer = Producer(side, f"new-{version}")
    yield "init", producer.init()
    yield "commit nothing", producer.end(version=5)
    yield "abort nothing", producer.end(version=5, is_commit=False)
    yield "aborted", producer.describe()
    first = producer.epoch
    yield "verify", producer.add(version, 0, verify=True)
    yield "produce", producer.produce(12, 0)
    yield "verify again", producer.add(version, 0, 1, verify=True)
    yield "verify an internal topic", producer.add(version, 0, topic="__transaction_state", verify=True)
    yield "add", producer.add(version, 1)
    yield "add what is not there", producer.add(version, 0, 9)
    yield "ongoing", producer.describe()
    yield "commit", producer.end(version=5)
    yield "committed", producer.describe()
    yield "commit again, old epoch", producer.end(version=5, epoch=first)
    yield "abort what is committed, old epoch", producer.end(version=5, epoch=first, is_commit=False)
    yield "zombie", producer.produce(12, 1, epoch=first)
    yield "next", producer.produce(12, 0)
    yield "old client's end", producer.end(version=4, epoch=first)
    yield "fence", producer.init(patient=False)
    yield "init after the fence", producer.init()
    epoch = producer.epoch
    yield "goes on", producer.init(producer_id=producer.id, producer_epoch=epoch)
    yield "goes on, again", producer.init(producer_id=producer.id, producer_epoch=epoch)
    yield "another id", producer.init(producer_id=producer.id + 7, producer_epoch=0)
    yield "two-phase commit", side.ask(InitProducerIdRequest(producer.name, 5, enable2_pc=True), 6)


def markers(side: Side, version: int) -> Steps:
    """Write markers as an administrator who ends hanging transactions, also for missing partitions."""
    producer = Producer(side, f"markers-{version}")
    producer.init(version=4)
    producer.add(3, 0)
    producer.produce(9, 0)

    def write(is_commit: bool, epoch: int, coordinator_epoch: int, *numbers: int, topic: str | None = None) -> Any:
        topics = [WritableTxnMarkerTopic(topic or producer.topic, list(numbers))]
        marker = WritableTxnMarker(producer.id, epoch, is_commit, topics, coordinator_epoch, 0)
        answer = side.ask(WriteTxnMarkersRequest([marker]), version)
        for one in answer["markers"]:
            one["producer_id"] = one["producer_id"] == producer.id
            for each in one["topics"]:
                each["partitions"].sort(key=lambda part: part["partition_index"])
        return answer

    yield "nothing", side.ask(WriteTxnMarkersRequest([]), version)
    yield "no partitions", write(True, 0, 5)
    yield "no topics", side.ask(WriteTxnMarkersRequest([WritableTxnMarker(producer.id, 0, True, [], 5, 0)]), version)
    yield "absent", write(True, 0, 5, 0, topic="absent")
    yield "old epoch", write(False, -1, 5, 0)
    yield "abort", write(False, 0, 5, 0, 9)
    yield "again", write(False, 0, 5, 0)
    yield "old coordinator", write(False, 0, 4, 0)


def lists(side: Side, version: int) -> Steps:
    """List transactions with every filter of the version."""
    producer = Producer(side, f"list-{version}")
    producer.init(version=4)
    producer.add(3, 0)

    def ask(*arguments: Any) -> Any:
        answer = side.ask(ListTransactionsRequest(*arguments), version)
        found = [one for one in answer["transaction_states"] if one["transactional_id"] == producer.name]
        return answer | {"transaction_states": [one | {"producer_id": one["producer_id"] == producer.id} for one in found]}

    yield "all", ask()
    yield "states", ask(["Ongoing", "Nonsense"])
    yield "other states", ask(["Empty"])
    yield "producers", ask([], [producer.id])
    yield "other producers", ask([], [producer.id + 1])
    if version >= 1:
        yield "long", ask([], [], 600_000)
        yield "any duration", ask([], [], 0)
    if version >= 2:
        yield "pattern", ask([], [], -1, "list-[0-9]+")
        yield "part of it", ask([], [], -1, "list")
        yield "no pattern", ask([], [], -1, "(")


def offsets(side: Side, version: int) -> Steps:
    """Commit offsets of a group in transactions, with this version of TxnOffsetCommit. Version 5 adds the group itself."""
    ready(side)
    producer, group, end = Producer(side, f"offsets-{version}"), f"offsets-of-{version}", 5 if version >= 5 else 4
    yield "init", producer.init()
    member: dict[str, Any] = {"member_id": "m", "generation_id": 3} if version >= 3 else {}

    def add(group_id: str = group, **fields: Any) -> Any:
        asked = {"transactional_id": producer.name, "producer_id": producer.id, "producer_epoch": producer.epoch, **fields}
        return producer.patient(lambda: side.ask(AddOffsetsToTxnRequest(group_id=group_id, **asked), min(version, 4)))

    def commit(offset: int, group_id: str = group, *, topic: str = producer.topic, metadata: str | None = "note", **fields: Any) -> Any:
        parts = [TxnOffsetCommitRequestPartition(number, offset, committed_metadata=metadata) for number in (0, 1, 9)]
        asked = {"producer_id": producer.id, "producer_epoch": producer.epoch, **fields}
        request = TxnOffsetCommitRequest(producer.name, group_id, topics=[TxnOffsetCommitRequestTopic(topic, parts)], **asked)
        limit = time.monotonic() + PATIENCE_S
        while True:
            answer = side.ask(request, version)
            found = [part["error_code"] for each in answer["topics"] for part in each["partitions"]]
            if not set(found) & set(_BUSY) or time.monotonic() > limit:
                return answer

    def fetch(*, stable: bool) -> Any:
        topics = [OffsetFetchRequestTopics(producer.topic, partition_indexes=[0, 1])]
        return side.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable), 9)

    yield "not in the transaction", commit(1)
    yield "aborted", producer.end(version=end, is_commit=False)
    yield "completely", producer.describe()
    yield "nothing is committed", fetch(stable=True)
    yield "added", add()
    yield "committed", commit(5)
    yield "long metadata", commit(6, metadata="x" * 5000)
    yield "without metadata", commit(7, metadata=None)
    yield "a negative offset", commit(-1)
    yield "an absent topic", commit(5, topic="absent")
    yield "of a member of nothing", commit(5, **member)
    yield "of the empty group", commit(5, "")
    yield "of another group", commit(5, f"other-{group}")
    yield "of another producer", commit(5, producer_id=producer.id + 1)
    yield "of a later epoch", commit(5, producer_epoch=producer.epoch + 1)
    yield "unstable", fetch(stable=True)
    yield "not yet committed", fetch(stable=False)
    yield "ongoing", producer.describe()
    yield "committed with it", producer.end(version=end)
    yield "complete", producer.describe()
    yield "stable", fetch(stable=True)
    yield "added to the empty group", add("")
    yield "added by nobody", add(transactional_id="nobody")
    yield "added by an empty id", add(transactional_id="")
    yield "added by another producer", add(producer_id=producer.id + 1)
    yield "added in another epoch", add(producer_epoch=producer.epoch + 5)
    yield "added again", add()
    yield "to be aborted", commit(50)
    yield "is aborted", producer.end(version=end, is_commit=False)
    yield "is aborted completely", producer.describe()
    yield "as before", fetch(stable=True)
    yield "ended by nobody", side.ask(EndTxnRequest("nobody", producer.id, producer.epoch, True), end)
    yield "ended by an empty id", side.ask(EndTxnRequest("", producer.id, producer.epoch, True), end)


OFFSET_CASES = {f"offsets_in_transactions-{version}": (offsets, version) for version in TxnOffsetCommitRequest.VERSIONS}
CASES = {
    f"{steps.__name__}-{version}": (steps, version)
    for steps, versions in ((old_transactions, range(6)), (new_transactions, range(4, 6)), (markers, range(1, 3)), (lists, range(3)))
    for version in versions
}
