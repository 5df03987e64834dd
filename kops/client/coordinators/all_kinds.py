"""Describes groups of any kind. A caller does not know the kind of a group, and each kind has its own API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kops.client.client import Client
from kops.client.coordinators.groups import GroupDescription, describe_groups
from kops.client.coordinators.share_groups import describe_share_groups
from kops.client.coordinators.streams_groups import describe_streams_groups
from kops.errors import ApiError

_Describe = Callable[[Client, Iterable[str]], dict[str, GroupDescription | ApiError]]


def describe_all_kinds(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Describe groups of all kinds. An id without a group gives GROUP_ID_NOT_FOUND."""
    return _described(client, group_ids, (describe_share_groups, describe_streams_groups))


def describe_committing_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ApiError]:
    """Describe groups that commit offsets: all kinds except share groups. Other ids give GROUP_ID_NOT_FOUND."""
    return _described(client, group_ids, (describe_streams_groups,))


def _described(client: Client, group_ids: Iterable[str], others: Sequence[_Describe]) -> dict[str, GroupDescription | ApiError]:
    found = describe_groups(client, group_ids)
    for describe in others:
        missing = [group_id for group_id, one in found.items() if isinstance(one, ApiError) and one.name == "GROUP_ID_NOT_FOUND"]
        for group_id, one in describe(client, missing).items() if missing else ():
            # If a broker does not support this kind of groups, the first answer counts.
            if not isinstance(one, ApiError):
                found[group_id] = one
    return found
