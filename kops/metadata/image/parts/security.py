"""Authorization and authentication data: ACLs, SCRAM credentials, delegation tokens.

Source: Kafka's AclsImage, ScramImage, DelegationTokenImage, their deltas, and StandardAcl, ScramCredentialData, DelegationTokenData.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.metadata.image.parts.changes import changed_within, contradiction, remove_unnamed, remove_unnamed_within
from kops.metadata.image.parts.shared_map import SharedMap
from kops.protocol.errors import by_name
from kops.protocol.json_text import uuid_text
from kops.protocol.messages import DescribeUserScramCredentialsResponse
from kops.protocol.messages.describe_user_scram_credentials_response import CredentialInfo, DescribeUserScramCredentialsResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.protocol.messages import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        DescribeUserScramCredentialsRequest,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    )

# The last code of each enumeration in org.apache.kafka.common.resource and .acl. Others are read as UNKNOWN (0).
_LAST_RESOURCE_TYPE: Final = 7
_LAST_PATTERN_TYPE: Final = 4
_LAST_OPERATION: Final = 15
_LAST_PERMISSION_TYPE: Final = 3
_LAST_MECHANISM: Final = 2


def _known(code: int, last: int) -> int:
    return code if 0 <= code <= last else 0


@dataclass(frozen=True, slots=True)
class StandardAcl:
    """An ACL: who may or may not do what to which resources. Kinds are Kafka's codes."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> StandardAcl:
        """Return the ACL of an AccessControlEntryRecord."""
        return cls(
            resource_type=_known(record.resource_type, _LAST_RESOURCE_TYPE),
            resource_name=record.resource_name,
            pattern_type=_known(record.pattern_type, _LAST_PATTERN_TYPE),
            principal=record.principal,
            host=record.host,
            operation=_known(record.operation, _LAST_OPERATION),
            permission_type=_known(record.permission_type, _LAST_PERMISSION_TYPE),
        )


@dataclass(frozen=True, slots=True)
class AclsImage:
    """The ACLs by id."""

    acls: SharedMap[bytes, StandardAcl] = field(default_factory=SharedMap)


class AclsDelta:
    """The changes that records make to the ACLs, in order."""

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changes: dict[bytes, StandardAcl | None] = {}

    def replay_entry(self, record: AccessControlEntryRecord) -> None:
        """Replay a new ACL."""
        self.changes[record.id] = StandardAcl.from_record(record)

    def replay_remove_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        """Replay the removal of an ACL. One that these changes added leaves no trace. Raises DecodeError if there is none."""
        if record.id in self.image.acls:
            self.changes[record.id] = None
        elif self.changes.pop(record.id, None) is None:
            raise contradiction(f"Failed to find existing ACL with ID {uuid_text(record.id)} in either image or changes")

    def finish_snapshot(self) -> None:
        """All records of a snapshot were replayed."""
        remove_unnamed(self.image.acls, self.changes)

    def apply(self) -> AclsImage:
        """The image with the changes."""
        return AclsImage(self.image.acls.changed(self.changes))


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Data that verifies a user's password without revealing it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramImage:
    """The credentials by mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512) and user."""

    mechanisms: SharedMap[int, SharedMap[str, ScramCredential]] = field(default_factory=SharedMap)

    def describe(self, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
        """Return the mechanisms of the requested users, or of all users if none is named."""
        asked = [user.name for user in request.users or ()]
        users: Iterable[str] = dict.fromkeys(asked or [user for credentials in self.mechanisms.values() for user in credentials])
        return DescribeUserScramCredentialsResponse(results=[self._described(user, asked.count(user)) for user in users])

    def _described(self, user: str, asked_count: int) -> DescribeUserScramCredentialsResult:
        infos = [CredentialInfo(kind, users[user].iterations) for kind, users in self.mechanisms.items() if user in users]
        name, message = "", ""
        if asked_count > 1:
            name, message = "DUPLICATE_RESOURCE", "Cannot describe SCRAM credentials for the same user twice in a single request: "
        elif not infos:
            name, message = "RESOURCE_NOT_FOUND", "Attempt to describe a user credential that does not exist: "
        if name:
            return DescribeUserScramCredentialsResult(user=user, error_code=by_name(name).code, error_message=message + user)
        return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)


class ScramDelta:
    """The changes that records make to the credentials."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changes: dict[int, dict[str, ScramCredential | None]] = {}

    def replay_credential(self, record: UserScramCredentialRecord) -> None:
        """Replay a user's credential."""
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._users(record.mechanism)[record.name] = credential

    def replay_remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        """Replay the removal of a user's credential."""
        self._users(record.mechanism)[record.name] = None

    def finish_snapshot(self) -> None:
        """All records of a snapshot were replayed."""
        remove_unnamed_within(self.image.mechanisms, self.changes)

    def apply(self) -> ScramImage:
        """The image with the changes."""
        return ScramImage(changed_within(self.image.mechanisms, self.changes))

    def _users(self, mechanism: int) -> dict[str, ScramCredential | None]:
        return self.changes.setdefault(_known(mechanism, _LAST_MECHANISM), {})


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret. Principals look like `User:alice`. Times are in milliseconds."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int

    @classmethod
    def from_record(cls, record: DelegationTokenRecord) -> DelegationToken:
        """Return the token of a DelegationTokenRecord. Raises DecodeError if a principal has no type."""
        for principal in (record.owner, record.requester, *record.renewers):
            if ":" not in principal:
                raise contradiction(f"expected a string in format principalType:principalName but got {principal}")
        return cls(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp=record.issue_timestamp,
            max_timestamp=record.max_timestamp,
            expiration_timestamp=record.expiration_timestamp,
        )


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    """The tokens by id."""

    tokens: SharedMap[str, DelegationToken] = field(default_factory=SharedMap)


class DelegationTokensDelta:
    """The changes that records make to the tokens."""

    def __init__(self, image: DelegationTokensImage) -> None:
        self.image = image
        self.changes: dict[str, DelegationToken | None] = {}

    def replay_token(self, record: DelegationTokenRecord) -> None:
        """Replay a token or its new expiry. Raises DecodeError if a principal has no type."""
        self.changes[record.token_id] = DelegationToken.from_record(record)

    def replay_remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """Replay the removal of a token."""
        self.changes[record.token_id] = None

    def finish_snapshot(self) -> None:
        """All records of a snapshot were replayed."""
        remove_unnamed(self.image.tokens, self.changes)

    def apply(self) -> DelegationTokensImage:
        """The image with the changes."""
        return DelegationTokensImage(self.image.tokens.changed(self.changes))
