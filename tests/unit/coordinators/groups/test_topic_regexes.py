"""Regular expressions of consumer groups."""

from __future__ import annotations

import pytest

from kops.coordinators.groups.regexes.topics import check_regex, resolve_regexes
from kops.errors import ApiError


def test_whole_names_match() -> None:
    topics = ("orders", "orders-2", "stock", "Stock")
    resolved = resolve_regexes(("orders", "orders.*", "(?i)stock", "[^o]+", "("), topics)
    assert {regex: list(found) for regex, found in resolved.items()} == {
        "orders": ["orders"],
        "orders.*": ["orders", "orders-2"],
        "(?i)stock": ["stock", "Stock"],
        "[^o]+": [],
        "(": [],
    }


def test_nested_repetitions_take_linear_time() -> None:
    assert resolve_regexes(("(a*)*b", "(a|aa)+$"), ("a" * 249,)) == {"(a*)*b": {}, "(a|aa)+$": {"a" * 249: None}}


@pytest.mark.parametrize(
    ("regex", "reason"),
    [("(a", "missing closing )"), ("a**", "invalid nested repetition operator"), ("(?=a)", "invalid or unsupported Perl syntax")],
)
def test_errors_are_re2js(regex: str, reason: str) -> None:
    with pytest.raises(ApiError) as raised:
        check_regex(regex)
    assert raised.value.name == "INVALID_REGULAR_EXPRESSION"
    assert raised.value.message == f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
