"""Quotas of users, client ids and addresses (Kafka ClientQuotasImage, ClientQuotasDelta)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.image.parts.changes import changed_within, remove_unnamed_within
from kops.metadata.image.parts.shared_map import SharedMap
from kops.protocol.messages import DescribeClientQuotasResponse
from kops.protocol.messages.describe_client_quotas_response import EntityData, EntryData, ValueData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.protocol.messages import ClientQuotaRecord, DescribeClientQuotasRequest

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2

# The type and name of each part, sorted. A part without a name is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return an entity's parts as a key."""
    return tuple(sorted(parts.items()))


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """The quotas by entity and key."""

    entities: SharedMap[QuotaEntity, SharedMap[str, float]] = field(default_factory=SharedMap)

    def describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        """Return the entities that match the filter. Raises ApiError INVALID_REQUEST or UNSUPPORTED_VERSION for an invalid filter."""
        exact, specified = _filter(request)
        entries = [
            EntryData(entity=[EntityData(*part) for part in entity], values=[ValueData(key, value) for key, value in quotas.items()])
            for entity, quotas in self.entities.items()
            if _matches(dict(entity), exact, specified, strict=request.strict)
        ]
        return DescribeClientQuotasResponse(entries=entries)


class ClientQuotasDelta:
    """The changes that records make to the quotas."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changes: dict[QuotaEntity, dict[str, float | None]] = {}

    def replay_client_quota(self, record: ClientQuotaRecord) -> None:
        """Replay a quota that is set or removed."""
        entity = quota_entity({part.entity_type: part.entity_name for part in record.entity})
        self.changes.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        remove_unnamed_within(self.image.entities, self.changes)

    def apply(self) -> ClientQuotasImage:
        """Return the image with the changes."""
        return ClientQuotasImage(changed_within(self.image.entities, self.changes))


def _filter(request: DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for part in request.components:
        kind = part.entity_type
        if not kind:
            raise ApiError("INVALID_REQUEST", "Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise ApiError("INVALID_REQUEST", f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise ApiError("UNSUPPORTED_VERSION", f"Unsupported entity type {kind}")
        _check_match(part.match_type, part.match)
        if part.match_type == _SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = part.match
    kinds = exact.keys() | specified
    if IP in kinds and len(kinds) > 1:
        raise ApiError(
            "INVALID_REQUEST",
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.",
        )
    return exact, specified


def _check_match(match_type: int, match: str | None) -> None:
    if match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
        raise ApiError("INVALID_REQUEST", f"Unknown match type {match_type}")
    if match_type == _EXACT:
        if match is None:
            raise ApiError("INVALID_REQUEST", "Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif match is not None:
        name = "MATCH_TYPE_DEFAULT" if match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise ApiError("INVALID_REQUEST", f"Request specified {name}, but also specified a match string.")


def _matches(entity: dict[str, str | None], exact: dict[str, str | None], specified: set[str], *, strict: bool) -> bool:
    if strict and len(entity) != len(exact) + len(specified):
        return False
    return exact.items() <= entity.items() and specified <= entity.keys()
