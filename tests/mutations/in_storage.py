"""Mutations of `kops.storage`."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "index-entry-one-batch-early",
        "kops/storage/segments/segment.py",
        "            if self._bytes_since_last_index_entry > self._index_interval_bytes:\n",
        "            if self._bytes_since_last_index_entry >= self._index_interval_bytes:\n",
        "tests/unit/storage/segments/test_segment.py",
    ),
    Mutation(
        "marked-flushed-without-flush",
        "kops/storage/unified_log.py",
        "                self._local.flush(flush_offset)\n",
        "",
        "tests/unit/storage/test_unified_log.py",
    ),
    Mutation(
        "retention-above-the-high-watermark",
        "kops/storage/log_retention.py",
        "        if log.high_watermark < upper_bound or not condition",
        "        if not condition",
        "tests/unit/storage/test_unified_log_files.py",
    ),
    Mutation(
        "epochs-keep-what-begins-at-the-cut",
        "kops/storage/segments/epoch_cache.py",
        "entries[-1].start_offset >= end_offset:",
        "entries[-1].start_offset > end_offset:",
        "tests/unit/storage/segments/test_epoch_cache.py",
    ),
    Mutation(
        "recovery-point-runs-ahead",
        "kops/storage/start/loader.py",
        "        return min(self._recovery_point, log_end_offset), log_end_offset\n",
        "        return log_end_offset, log_end_offset\n",
        "tests/unit/storage/start/test_loader.py",
    ),
    Mutation(
        "any-sequence-in-a-new-epoch",
        "kops/storage/producers/checks.py",
        "            if sequence != 0 and known_epoch != NO_EPOCH:\n",
        "            if sequence < 0 and known_epoch != NO_EPOCH:\n",
        "tests/unit/storage/producers/test_producer_checks.py",
    ),
    Mutation(
        "index-takes-an-offset-twice",
        "kops/storage/segment_files/mapped_index.py",
        "        if offset <= self.last_offset and self.entries:\n",
        "        if offset < self.last_offset and self.entries:\n",
        "tests/unit/storage/segment_files/test_indexes.py",
    ),
    Mutation(
        "delete-horizon-without-retention",
        "kops/storage/cleaning/cleaner_filter.py",
        "        new_horizon = self.now_ms + self.delete_retention_ms if begins_grace",
        "        new_horizon = self.now_ms if begins_grace",
        "tests/golden/logs/test_cleaner.py",
    ),
    Mutation(
        "look-up-behind-the-timestamp",
        "kops/storage/log_lookup.py",
        "        if segment.largest_timestamp >= target:\n",
        "        if segment.largest_timestamp > target:\n",
        "tests/unit/storage/test_unified_log_read.py",
    ),
    Mutation(
        "a-failed-read-ends-recovery",
        "kops/storage/segments/recovery.py",
        "        except (CorruptRecordError, InvalidRecordError) as error:\n            self.damage = error\n",
        "        except LoadError as error:\n            self.damage = error\n",
        "tests/faults/test_read_errors.py",
    ),
)
