"""Acknowledgements as requests contain them, and the records in flight that they belong to."""

from __future__ import annotations

import pytest

from kops.client.errors import error_named
from kops.client.share.core.acknowledgements import AckBatch, Acknowledgements, AcknowledgeType, TopicIdPartition
from kops.client.share.core.inflight import InFlightBatch, ShareFetch
from kops.client.share.core.records import ShareRecord
from kops.errors import UsageError

PART = TopicIdPartition(bytes(16), 0, "t")
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def acknowledged(types: dict[int, int]) -> Acknowledgements:
    found = Acknowledgements()
    found.types.update(types)
    return found


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, offset, 0, "CreateTime", None, b"v", (), 0, -1, 1, 1)


def fetch(*offsets: int) -> ShareFetch:
    batch = InFlightBatch(1, PART, 30_000)
    batch.records = {offset: record(offset) for offset in offsets}
    found = ShareFetch()
    found.add(batch)
    return found


@pytest.mark.parametrize(
    ("types", "batches"),
    [
        ({}, []),
        ({5: 1}, [AckBatch(5, 5, [1])]),
        ({2: 1, 1: 1, 3: 1}, [AckBatch(1, 3, [1])]),
        ({1: 1, 2: 2, 3: 0}, [AckBatch(1, 3, [1, 2, 0])]),
        ({1: 1, 3: 1}, [AckBatch(1, 1, [1]), AckBatch(3, 3, [1])]),
        # Ten of a type stay among others, eleven get a separate batch.
        ({0: 2, **dict.fromkeys(range(1, 11), 1)}, [AckBatch(0, 10, [2, *[1] * 10])]),
        ({0: 2, **dict.fromkeys(range(1, 12), 1), 12: 3}, [AckBatch(0, 0, [2]), AckBatch(1, 11, [1]), AckBatch(12, 12, [3])]),
    ],
)
def test_batches(types: dict[int, int], batches: list[AckBatch]) -> None:
    assert acknowledged(types).batches() == batches


class TestInFlight:
    def test_what_is_acknowledged_is_taken(self) -> None:
        found = fetch(1, 2, 3)
        assert not found.is_acknowledged
        found.acknowledge("t", 0, 1, ACCEPT)
        found.acknowledge("t", 0, 1, REJECT)
        (taken,) = found.take_acknowledgements().values()
        assert (taken.node_id, taken.acknowledgements.types) == (1, {1: REJECT})
        assert [one.offset for one in found.records()] == [2, 3]
        with pytest.raises(UsageError):
            found.acknowledge("t", 0, 1, ACCEPT)
        with pytest.raises(UsageError):
            found.acknowledge("t", 1, 2, ACCEPT)

    def test_the_rest(self) -> None:
        found = fetch(1, 2, 3)
        found.acknowledge("t", 0, 2, RELEASE)
        found.acknowledge_rest(ACCEPT)
        assert found.is_acknowledged
        (taken,) = found.take_acknowledgements().values()
        assert taken.acknowledgements.types == {1: ACCEPT, 2: RELEASE, 3: ACCEPT}
        assert found.is_empty

    @pytest.mark.parametrize("is_renewed", [True, False])
    def test_a_renewed_record_comes_back_and_a_lost_lock_does_not(self, is_renewed: bool) -> None:
        found = fetch(1, 2)
        found.acknowledge("t", 0, 1, RENEW)
        found.acknowledge("t", 0, 2, ACCEPT)
        (taken,) = found.take_acknowledgements().values()
        assert found.is_empty
        assert found.has_renewals
        taken.acknowledgements.complete(None if is_renewed else error_named("INVALID_RECORD_STATE"))
        assert found.renew({PART: taken.acknowledgements}, 10_000) == is_renewed
        found.take_renewed()
        assert [one.offset for one in found.records()] == ([1] if is_renewed else [])
        assert found.lock_timeout_ms == 10_000
        assert not found.has_renewals

    def test_a_record_that_could_not_be_delivered(self) -> None:
        batch = InFlightBatch(1, PART, None)
        batch.fail(error_named("CORRUPT_MESSAGE"), [4, 5], REJECT)
        found = ShareFetch()
        found.add(batch)
        with pytest.raises(UsageError):
            found.acknowledge_failed("t", 0, 3, RELEASE)
        found.acknowledge_failed("t", 0, 4, RELEASE)
        (taken,) = found.take_acknowledgements().values()
        assert taken.acknowledgements.types == {4: RELEASE, 5: REJECT}
        with pytest.raises(UsageError):
            found.acknowledge_failed("t", 0, 5, RELEASE)
