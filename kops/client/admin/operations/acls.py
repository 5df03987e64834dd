"""Access control lists: create, describe, delete.

Source: Kafka's KafkaAdminClient (createAcls, describeAcls, deleteAcls), AclBinding, AclBindingFilter, ResourcePattern, ResourceType,
PatternType, AclPermissionType.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from kops.client.admin.core.asking import Node as Ask
from kops.client.admin.core.asking import always, ask, deadline_ms, is_a, of_controller
from kops.client.admin.core.results import Results, error_of, missing, raise_error
from kops.client.admin.core.values import AclOperation
from kops.client.errors import KafkaError, error_named
from kops.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kops.protocol.messages.create_acls_request import AclCreation
from kops.protocol.messages.delete_acls_request import DeleteAclsFilter

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.client import Client


class _Code(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class ResourceType(_Code):
    """What an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How the name of a resource is compared. `MATCH` is for filters: it finds every pattern that applies to a name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(_Code):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """An ACL: a principal (`User:alice`) on a host (`*`: any) may do, or may not do, an operation on resources."""

    resource_type: ResourceType
    name: str
    principal: str
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


class AclBindingFilter(NamedTuple):
    """Which ACLs are meant. None and ANY stand for all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether one of its elements is unknown to this version of Kafka."""
        return 0 in (self.resource_type, self.operation, self.permission_type, self.pattern_type)


class DeletedAcl(NamedTuple):
    """An ACL that a filter matched. With an error it is still there."""

    binding: AclBinding
    error: KafkaError | None


def describe_acls(client: Client, acl_filter: AclBindingFilter | None = None, *, timeout: float | None = None) -> Steps[list[AclBinding]]:
    """Return the ACLs that a filter matches, or all."""
    wanted = acl_filter or AclBindingFilter()
    if wanted.is_unknown:
        raise error_named("INVALID_REQUEST", "the filter has unknown elements")
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )
    handle = is_a(DescribeAclsResponse)
    response = yield from ask(client, "describe ACLs", Ask.BROKER_OR_CONTROLLER, always(request), handle, deadline_ms(client, timeout))
    raise_error(response.error_code, response.error_message)
    return [
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            one.principal,
            AclOperation(one.operation),
            AclPermissionType(one.permission_type),
            one.host,
            PatternType(resource.pattern_type),
        )
        for resource in response.resources
        for one in resource.acls
    ]


def create_acls(client: Client, acls: Iterable[AclBinding], *, timeout: float | None = None) -> Steps[Results[AclBinding, None]]:
    """Create ACLs."""
    wanted = list(dict.fromkeys(acls))
    found: dict[AclBinding, KafkaError | None] = {one: error for one in wanted if (error := _indefinite(one)) is not None}
    sent = [one for one in wanted if one not in found]
    creations = [
        AclCreation(
            resource_type=one.resource_type,
            resource_name=one.name,
            resource_pattern_type=one.pattern_type,
            principal=one.principal,
            host=one.host,
            operation=one.operation,
            permission_type=one.permission_type,
        )
        for one in sent
    ]
    if sent:
        handle = of_controller(client, CreateAclsResponse, lambda response: (one.error_code for one in response.results))
        request, deadline = CreateAclsRequest(creations=creations), deadline_ms(client, timeout)
        response = yield from ask(client, "create ACLs", Ask.BROKER_OR_CONTROLLER, always(request), handle, deadline)
        for index, one in enumerate(sent):
            if index < len(response.results):
                found[one] = error_of(response.results[index].error_code, response.results[index].error_message)
            else:
                found[one] = missing("create ACLs", one)
    return Results({one: found[one] for one in wanted})


def _indefinite(one: AclBinding) -> KafkaError | None:
    """Return the error of an ACL that is only a filter."""
    for name, value in zip(one._fields, one, strict=True):
        least = 3 if name == "pattern_type" else 2
        if isinstance(value, IntEnum) and value < least:
            return error_named("INVALID_REQUEST", f"{name} is {value.name}")
    return None


def delete_acls(
    client: Client, filters: Iterable[AclBindingFilter], *, timeout: float | None = None
) -> Steps[Results[AclBindingFilter, list[DeletedAcl]]]:
    """Delete the ACLs that filters match, and return them."""
    wanted = list(dict.fromkeys(filters))
    entries = [
        DeleteAclsFilter(
            resource_type_filter=one.resource_type,
            resource_name_filter=one.name,
            pattern_type_filter=one.pattern_type,
            principal_filter=one.principal,
            host_filter=one.host,
            operation=one.operation,
            permission_type=one.permission_type,
        )
        for one in wanted
    ]
    handle = of_controller(client, DeleteAclsResponse, lambda response: (one.error_code for one in response.filter_results))
    request, deadline = DeleteAclsRequest(filters=entries), deadline_ms(client, timeout)
    response = yield from ask(client, "delete ACLs", Ask.BROKER_OR_CONTROLLER, always(request), handle, deadline)
    found: dict[AclBindingFilter, list[DeletedAcl] | KafkaError] = {one: missing("delete ACLs", one) for one in wanted}
    for one, result in zip(wanted, response.filter_results, strict=False):
        found[one] = error_of(result.error_code, result.error_message) or [
            DeletedAcl(
                AclBinding(
                    ResourceType(acl.resource_type),
                    acl.resource_name,
                    acl.principal,
                    AclOperation(acl.operation),
                    AclPermissionType(acl.permission_type),
                    acl.host,
                    PatternType(acl.pattern_type),
                ),
                error_of(acl.error_code, acl.error_message),
            )
            for acl in result.matching_acls
        ]
    return Results(found)
