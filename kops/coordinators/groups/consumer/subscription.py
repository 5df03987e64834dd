"""Changes of members' subscriptions and their effects: records, a new group epoch, regular expressions to resolve.

Source: Kafka's GroupMetadataManager (hasMemberSubscriptionChanged, maybeUpdateRegularExpressions, updateSubscriptionMetadata).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.state.group import ConsumerGroup, ResolvedRegex, is_homogeneous
from kops.coordinators.groups.consumer.state.member import ConsumerGroupMember
from kops.coordinators.groups.modern.subscriptions import count, count_regex
from kops.coordinators.groups.records.consumer import epoch_record, regex_record, regex_tombstone, subscription_metadata_tombstone
from kops.coordinators.groups.regexes.topics import check_regex, resolve_regexes
from kops.coordinators.runtime.image import CoordinatorDelta, CoordinatorImage
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError, KopsError

_MIN_REFRESH_INTERVAL_MS: Final = 10_000
_NEVER_MS: Final = -(2**63)


class RegexStatus(Enum):
    """The result of updating a member's regular expression."""

    NO_CHANGE = 0
    UPDATED = 1
    UPDATED_AND_RESOLVED = 2


class Metadata:
    """The group's next epoch, and whether all members have the same subscription."""

    __slots__ = ("group_epoch", "is_homogeneous")

    def __init__(self, group_epoch: int, is_homogeneous: bool) -> None:
        self.group_epoch = group_epoch
        self.is_homogeneous = is_homogeneous


def note_subscription(group_id: str, old: ConsumerGroupMember, new: ConsumerGroupMember, records: list[CoordinatorRecord]) -> bool:
    """Append the record of a changed member. Returns whether its topic names changed."""
    if new is old or new == old:
        return False
    records.append(new.subscription_record(group_id))
    return new.subscribed_topic_names != old.subscribed_topic_names


class Subscriptions:
    """Handles changes of subscriptions and of metadata."""

    def __init__(self, lookup: GroupLookup) -> None:
        self._lookup = lookup
        self._last_version_with_new_topics = -1

    def on_metadata_update(self, delta: CoordinatorDelta | None, image: CoordinatorImage) -> None:
        """Resolve regular expressions again if there are new topics."""
        if self._last_version_with_new_topics == -1 or (delta is not None and any(True for _ in delta.created_topic_ids)):
            self._last_version_with_new_topics = image.version

    def update_metadata(
        self,
        group: ConsumerGroup,
        old: ConsumerGroupMember,
        new: ConsumerGroupMember,
        records: list[CoordinatorRecord],
        *,
        bump: bool,
    ) -> Metadata:
        """Check the metadata of the group's topics. The epoch also rises if that has changed."""
        topics = group.topics_with(old, new)
        metadata_hash = self._lookup.topic_hashes.of_topics(topics, self._lookup.image)
        member_count = group.member_count
        if not group.has_member(new.member_id) and (new.instance_id is None or new.instance_id not in group.static_members):
            member_count += 1
        homogeneous = is_homogeneous(group.regexes_with(old, new), topics, member_count)
        epoch = group.group_epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
        group.note_metadata_check(self._lookup.around.now_ms(), epoch)
        if group.has_subscription_metadata_record:
            records.append(subscription_metadata_tombstone(group.group_id))
        return Metadata(epoch, homogeneous)

    def update_regexes(
        self, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember, records: list[CoordinatorRecord]
    ) -> RegexStatus:
        """Handle a changed regular expression, and start resolving the group's expressions if due. Raises ApiError
        INVALID_REGULAR_EXPRESSION."""
        status, must_refresh = self._note_regex(group, old, new, records)
        if not must_refresh and not group.subscribed_regexes:
            return status
        executor, key = self._lookup.around.executor, f"{group.group_id}-regex"
        if executor.is_scheduled(key):
            return status
        now_ms = self._lookup.around.now_ms()
        last = group.last_resolved_regex
        last_ms = _NEVER_MS if last is None else last.timestamp
        if now_ms <= last_ms + _MIN_REFRESH_INTERVAL_MS:
            return status
        counts = dict(group.subscribed_regexes)
        if old.subscribed_topic_regex:
            count(counts, old.subscribed_topic_regex, -1)
        if new.subscribed_topic_regex:
            count(counts, new.subscribed_topic_regex, 1)
        must_refresh = (
            must_refresh
            or len(counts) != len(group.resolved_regexes)
            or (0 if last is None else last.version) < self._last_version_with_new_topics
            or now_ms > last_ms + self._lookup.around.config.group_consumer_regex_refresh_interval_ms
        )
        if must_refresh and counts:
            self._resolve(key, group.group_id, tuple(counts))
        return status

    def _note_regex(
        self, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember, records: list[CoordinatorRecord]
    ) -> tuple[RegexStatus, bool]:
        old_regex, new_regex = old.subscribed_topic_regex, new.subscribed_topic_regex
        if old_regex == new_regex:
            return RegexStatus.NO_CHANGE, False
        if old_regex and group.subscribed_member_count(old_regex) == 1:
            records.append(regex_tombstone(group.group_id, old_regex))
        if not new_regex:
            return (RegexStatus.UPDATED_AND_RESOLVED if old_regex else RegexStatus.UPDATED), False
        if group.subscribed_member_count(new_regex) == 0:
            check_regex(new_regex)
            return RegexStatus.UPDATED, True
        return (RegexStatus.UPDATED_AND_RESOLVED if new_regex in group.resolved_regexes else RegexStatus.UPDATED), False

    def _resolve(self, key: str, group_id: str, regexes: tuple[str, ...]) -> None:
        around = self._lookup.around

        def task() -> dict[str, ResolvedRegex]:
            started_ms, image = around.now_ms(), self._lookup.image  # the newest, as in Kafka
            return {
                regex: ResolvedRegex(topics, image.version, started_ms)
                for regex, topics in resolve_regexes(regexes, image.topic_names()).items()
            }

        around.executor.schedule(key, task, lambda resolved, error: self._on_resolved(group_id, resolved, error))

    def _on_resolved(self, group_id: str, resolved: dict[str, ResolvedRegex] | None, error: KopsError | None) -> CoordinatorResult[None]:
        """Write the topics that the regular expressions match. The epoch rises if these or their metadata have changed."""
        if error is not None or resolved is None:
            return CoordinatorResult()
        try:
            group = self._lookup.group(group_id)
        except ApiError:
            return CoordinatorResult()
        records: list[CoordinatorRecord] = []
        topics = dict(group.subscribed_topic_names)
        bump = False
        for regex, new in resolved.items():
            if group.subscribed_member_count(regex) == 0:
                continue
            old = group.resolved_regexes.get(regex)
            old_topics = {} if old is None else old.topics
            if old_topics != new.topics:
                bump = True
                count_regex(topics, old_topics, -1)
                count_regex(topics, new.topics, 1)
            records.append(regex_record(group_id, regex, *new))
        metadata_hash = self._lookup.topic_hashes.of_topics(topics, self._lookup.image)
        if bump or metadata_hash != group.metadata_hash:
            epoch = group.group_epoch + 1
            records.append(epoch_record(group_id, epoch, metadata_hash))
            group.note_metadata_check(self._lookup.around.now_ms(), epoch)
        return CoordinatorResult(records)
