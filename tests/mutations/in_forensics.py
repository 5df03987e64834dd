"""Mutations of `kops.forensics`."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "an-entry-at-a-batchs-first-offset-is-wrong",
        "kops/forensics/verify/facts/index.py",
        "batch[0] <= offset <= batch[1]",
        "batch[0] < offset <= batch[1]",
        "tests/golden/forensics/test_verify_clean.py",
    ),
    Mutation(
        "last-offset-of-an-index-is-beyond",
        "kops/forensics/verify/facts/index.py",
        "        if max(relative) > last:\n            beyond.update(number for number, each in enumerate(relative) if each > last)\n",
        "        if max(relative) >= last:\n            beyond.update(number for number, each in enumerate(relative) if each >= last)\n",
        "tests/golden/forensics/test_verify_clean.py",
    ),
    Mutation(
        "an-epoch-that-begins-at-the-end",
        "kops/forensics/verify/checks/state.py",
        "        if epoch.start_offset > view.end_offset:\n",
        "        if epoch.start_offset >= view.end_offset:\n",
        "tests/golden/forensics/test_verify_clean.py",
    ),
    Mutation(
        "neighbouring-ranges-stay-apart",
        "kops/forensics/forecast/offset_ranges.py",
        "        if merged and first <= merged[-1][1] + 1:\n",
        "        if merged and first <= merged[-1][1]:\n",
        "tests/unit/forensics/forecast/test_offset_ranges.py",
    ),
    Mutation(
        "a-truncation-within-a-batch",
        "kops/forensics/truncate.py",
        "    report.new_end_offset = offset if report.first_lost is None else min(offset, report.first_lost)\n",
        "    report.new_end_offset = offset\n",
        "tests/cli/log/test_log_lines.py",
    ),
    Mutation(
        "markers-are-dumped-with-the-records",
        "kops/forensics/dump/isolation.py",
        "        if batch.is_control or batch.last_offset < self.log_start_offset:\n",
        "        if batch.last_offset < self.log_start_offset:\n",
        "tests/unit/forensics/dump/test_isolation.py",
    ),
    Mutation(
        "an-entry-before-its-batch-is-right",
        "kops/forensics/dump/kafka_index.py",
        "                    if found[0] != offset:\n",
        "                    if found[0] < offset:\n",
        "tests/golden/forensics/test_dump_text.py",
    ),
    Mutation(
        "the-default-interval-is-taken-unseen",
        "kops/forensics/plans/index_interval.py",
        "    if not known or low <= default <= high:\n",
        "    if not known or low <= high:\n",
        "tests/unit/forensics/plans/test_index_spacing.py",
    ),
    Mutation(
        "an-offset-twice-in-a-chain",
        "kops/forensics/plans/chain.py",
        "        if item.base <= last or",
        "        if item.base < last or",
        "tests/unit/forensics/plans/test_chain.py",
    ),
    Mutation(
        "from-offset-is-left-out",
        "kops/forensics/dump/filters.py",
        "batch.last_offset < self.from_offset:",
        "batch.last_offset <= self.from_offset:",
        "tests/unit/forensics/dump/test_filters.py",
    ),
)
