"""What belongs to users and clients: SCRAM credentials, delegation tokens, quotas.

Source: Kafka's KafkaAdminClient (…UserScramCredentials, …DelegationToken, …ClientQuotas), ScramFormatter.hi, ScramMechanism,
ClientQuotaEntity, ClientQuotaFilter, ClientQuotaAlteration, DelegationToken.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import always, ask, deadline_ms, in_order, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, raise_error
from kops.client.admin.core.values import as_names
from kops.client.errors import KafkaError, error_named
from kops.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kops.protocol.messages.alter_client_quotas_request import EntityData, EntryData, OpData
from kops.protocol.messages.alter_user_scram_credentials_request import ScramCredentialDeletion, ScramCredentialUpsertion
from kops.protocol.messages.create_delegation_token_request import CreatableRenewers
from kops.protocol.messages.describe_client_quotas_request import ComponentData
from kops.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenOwner
from kops.protocol.messages.describe_user_scram_credentials_request import UserName

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client

_EXACT, _DEFAULT, _SPECIFIED = range(3)  # DescribeClientQuotasRequest's match types
_SALT_SIZE: Final = 16


# SCRAM credentials


class ScramMechanism(IntEnum):
    """The mechanism of a credential."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN


_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class ScramCredentialInfo(NamedTuple):
    """A credential, without its secret."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    name: str
    credential_infos: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A credential to be set. The password does not leave the client, only its salted hash."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = 4096
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(_SALT_SIZE), repr=False)

    def salted_password(self) -> bytes:
        """Return Hi(password, salt, iterations) of RFC 5802."""
        password = self.password.encode() if isinstance(self.password, str) else self.password
        return hashlib.pbkdf2_hmac(_HASHES[self.mechanism], password, self.salt, self.iterations)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential to be deleted."""

    user: str
    mechanism: ScramMechanism


def describe_user_scram_credentials(
    client: Client, users: Iterable[str] | None = None, *, timeout: float | None = None
) -> Steps[Results[str, UserScramCredentialsDescription]]:
    """Return the credentials of users, or of all users that have any (None)."""
    names = as_names(users or ())
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] if names else None)
    deadline = deadline_ms(client, timeout)
    handle = is_a(DescribeUserScramCredentialsResponse)
    response = yield from ask(client, "describe SCRAM credentials", Ask.BROKER, always(request), handle, deadline)
    raise_error(response.error_code, response.error_message)
    return Results(
        {
            one.user: error_of(one.error_code, one.error_message)
            or UserScramCredentialsDescription(
                one.user, tuple(ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations) for info in one.credential_infos)
            )
            for one in response.results
        }
    )


def alter_user_scram_credentials(
    client: Client,
    alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
    *,
    timeout: float | None = None,
) -> Steps[Results[str, None]]:
    """Set and delete credentials. The outcomes are by user."""
    wanted = list(alterations)
    failed = {one.user: error for one in wanted if (error := _bad_credential(one)) is not None}
    good = [one for one in wanted if one.user not in failed]
    request = AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=one.user, mechanism=one.mechanism, iterations=one.iterations, salt=one.salt, salted_password=one.salted_password()
            )
            for one in good
            if isinstance(one, UserScramCredentialUpsertion)
        ],
        deletions=[
            ScramCredentialDeletion(name=one.user, mechanism=one.mechanism) for one in good if isinstance(one, UserScramCredentialDeletion)
        ],
    )
    deadline = deadline_ms(client, timeout)
    handle = of_controller(client, AlterUserScramCredentialsResponse, lambda response: (one.error_code for one in response.results))
    response = yield from ask(client, "alter SCRAM credentials", Ask.CONTROLLER_OF_BROKERS, always(request), handle, deadline)
    found = {one.user: error_of(one.error_code, one.error_message) for one in response.results}
    return in_order("alter SCRAM credentials", dict.fromkeys(one.user for one in wanted), {**found, **failed})


def _bad_credential(one: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> KafkaError | None:
    if not one.user:
        return error_named("UNACCEPTABLE_CREDENTIAL", "the name of the user is empty")
    if isinstance(one, UserScramCredentialUpsertion) and not one.password:
        return error_named("UNACCEPTABLE_CREDENTIAL", "the password is empty")
    if one.mechanism not in _HASHES:
        return error_named("UNSUPPORTED_SASL_MECHANISM", "unknown SCRAM mechanism")
    return None


# delegation tokens


class KafkaPrincipal(NamedTuple):
    """Who a client is: `User` and a name."""

    principal_type: str
    name: str


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with which a program may act as its owner. Times are ms since the epoch."""

    token_id: str
    owner: KafkaPrincipal
    token_requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int
    hmac: bytes = field(repr=False)


def create_delegation_token(
    client: Client,
    *,
    renewers: Iterable[KafkaPrincipal] = (),
    owner: KafkaPrincipal | None = None,
    max_lifetime_ms: int = -1,
    timeout: float | None = None,
) -> Steps[DelegationToken]:
    """Create a token of the program's own principal, or of another owner. -1 is the longest lifetime that the brokers allow."""
    who = tuple(renewers)
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type=one.principal_type, principal_name=one.name) for one in who],
        max_lifetime_ms=max_lifetime_ms,
        owner_principal_type=None if owner is None else owner.principal_type,
        owner_principal_name=None if owner is None else owner.name,
    )
    handle = is_a(CreateDelegationTokenResponse)
    one = yield from ask(client, "create delegation token", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    raise_error(one.error_code)
    return DelegationToken(
        one.token_id,
        KafkaPrincipal(one.principal_type, one.principal_name),
        KafkaPrincipal(one.token_requester_principal_type, one.token_requester_principal_name),
        who,
        one.issue_timestamp_ms,
        one.max_timestamp_ms,
        one.expiry_timestamp_ms,
        bytes(one.hmac),
    )


def renew_delegation_token(client: Client, hmac: bytes, *, renew_time_period_ms: int = -1, timeout: float | None = None) -> Steps[int]:
    """Let a token expire later. Returns the new time, in ms since the epoch."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_time_period_ms)
    handle = is_a(RenewDelegationTokenResponse)
    response = yield from ask(client, "renew delegation token", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    raise_error(response.error_code)
    return response.expiry_timestamp_ms


def expire_delegation_token(client: Client, hmac: bytes, *, expiry_time_period_ms: int = -1, timeout: float | None = None) -> Steps[int]:
    """Let a token expire after this time, or at once (-1). Returns the new time, in ms since the epoch."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_time_period_ms)
    handle = is_a(ExpireDelegationTokenResponse)
    response = yield from ask(client, "expire delegation token", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    raise_error(response.error_code)
    return response.expiry_timestamp_ms


def describe_delegation_token(
    client: Client, *, owners: Iterable[KafkaPrincipal] | None = None, timeout: float | None = None
) -> Steps[list[DelegationToken]]:
    """Return the tokens of owners, or all that the program may see."""
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [DescribeDelegationTokenOwner(principal_type=one.principal_type, principal_name=one.name) for one in owners]
    )
    handle = is_a(DescribeDelegationTokenResponse)
    response = yield from ask(client, "describe delegation token", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    raise_error(response.error_code)
    return [
        DelegationToken(
            one.token_id,
            KafkaPrincipal(one.principal_type, one.principal_name),
            KafkaPrincipal(one.token_requester_principal_type, one.token_requester_principal_name),
            tuple(KafkaPrincipal(renewer.principal_type, renewer.principal_name) for renewer in one.renewers),
            one.issue_timestamp,
            one.max_timestamp,
            one.expiry_timestamp,
            bytes(one.hmac),
        )
        for one in response.tokens
    ]


# quotas


class ClientQuotaEntity(frozenset[tuple[str, str | None]]):
    """Whom quotas are for: names by type (`user`, `client-id`, `ip`). None stands for all that have no quotas of their own."""

    __slots__ = ()

    @classmethod
    def of(cls, entries: Mapping[str, str | None]) -> ClientQuotaEntity:
        """Return the entity for a mapping."""
        return cls(entries.items())

    @property
    def entries(self) -> dict[str, str | None]:
        """The names by type."""
        return dict(sorted(self, key=lambda one: one[0]))


class ClientQuotaFilterComponent(NamedTuple):
    """One type of an entity: with this name, the default (None), or any that is given (`is_any`)."""

    entity_type: str
    match: str | None = None
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """Quotas to be set by name (`producer_byte_rate` …), or to be removed (None)."""

    entity: ClientQuotaEntity
    ops: Mapping[str, float | None]


def describe_client_quotas(
    client: Client,
    components: Iterable[ClientQuotaFilterComponent] = (),
    *,
    strict: bool = False,
    timeout: float | None = None,
) -> Steps[dict[ClientQuotaEntity, dict[str, float]]]:
    """Return the quotas of the entities that match all components. `strict` leaves out entities that have other types, too."""
    entries = [
        ComponentData(
            entity_type=one.entity_type,
            match_type=_SPECIFIED if one.is_any else _DEFAULT if one.match is None else _EXACT,
            match=None if one.is_any else one.match,
        )
        for one in components
    ]
    request = DescribeClientQuotasRequest(components=entries, strict=strict)
    handle = is_a(DescribeClientQuotasResponse)
    response = yield from ask(client, "describe client quotas", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    raise_error(response.error_code, response.error_message)
    return {
        ClientQuotaEntity((part.entity_type, part.entity_name) for part in one.entity): {value.key: value.value for value in one.values}
        for one in response.entries or ()
    }


def alter_client_quotas(
    client: Client, entries: Iterable[ClientQuotaAlteration], *, validate_only: bool = False, timeout: float | None = None
) -> Steps[Results[ClientQuotaEntity, None]]:
    """Set and remove quotas. The outcomes are by entity."""
    wanted = list(entries)
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one.entity.entries.items()],
                ops=[OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in one.ops.items()],
            )
            for one in wanted
        ],
        validate_only=validate_only,
    )
    handle = is_a(AlterClientQuotasResponse)
    response = yield from ask(client, "alter client quotas", Ask.BROKER, always(request), handle, deadline_ms(client, timeout))
    found = {
        ClientQuotaEntity((part.entity_type, part.entity_name) for part in one.entity): error_of(one.error_code, one.error_message)
        for one in response.entries
    }
    return in_order("alter client quotas", dict.fromkeys(one.entity for one in wanted), found)
