"""The topics that regular expressions match (Kafka's TopicRegexResolver, without an authorizer)."""

from __future__ import annotations

from collections.abc import Iterable

from kops.coordinators.groups.modern.subscriptions import Names
from kops.coordinators.groups.regexes.automaton import Automaton
from kops.coordinators.groups.regexes.parser import Parser, RegexError
from kops.errors import ApiError


def check_regex(regex: str) -> None:
    """Raise ApiError INVALID_REGULAR_EXPRESSION if the text is not a regular expression."""
    try:
        Parser(regex).parse()
    except RegexError as error:
        reason = f"is not a valid regular expression: {error.description}."
        raise ApiError("INVALID_REGULAR_EXPRESSION", f"SubscribedTopicRegex `{regex}` {reason}") from error


def resolve_regexes(regexes: Iterable[str], topics: Iterable[str]) -> dict[str, Names]:
    """Return, for each expression, the topics whose whole name matches. An invalid expression matches nothing."""
    resolved: dict[str, dict[str, None]] = {}
    automata: dict[str, Automaton] = {}
    for regex in regexes:
        resolved[regex] = {}
        try:
            automata[regex] = Automaton(Parser(regex).parse())
        except RegexError:
            continue
    for topic in topics:
        for regex, automaton in automata.items():
            if automaton.matches(topic):
                resolved[regex][topic] = None
    return dict(resolved)
