"""A program that copies a topic in transactions, with kops's consumer and producer: each transaction has the offsets of what it read."""

from __future__ import annotations

import time

import kops


def copy_in_transactions(servers: str, source: str, target: str, count: int, protocol: str) -> int:
    """Copy the first `count` records, as the group and with the transactional id `source`. Returns the number of transactions."""
    settings: dict[str, object] = {"bootstrap.servers": servers, "group.id": source, "group.protocol": protocol, "max.poll.records": 6}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    with kops.Consumer(settings) as consumer, kops.Producer(bootstrap_servers=servers, transactional_id=source) as producer:
        producer.init_transactions()
        consumer.subscribe([source])
        deadline, copied, transactions = time.monotonic() + 60, 0, 0
        while copied < count:
            assert time.monotonic() < deadline, f"{copied} of {count} records"
            records = consumer.poll(1)
            if records:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value)
                    producer.send_offsets_to_transaction(records.next_offsets(), consumer.group_metadata())
                copied += len(records)
                transactions += 1
    return transactions
