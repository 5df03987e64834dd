"""The effect of each of Kafka's node settings in kops: used, accepted without effect, or rejected with a reason.

The file may contain a rejected setting with its default value. Any other value would require a feature that kops does not have.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from kops.config.values.definition import ConfigKey, Importance, Kind, Validator, Value

Effect = Literal["used", "none", "refused"]


class Mark(NamedTuple):
    """The effect of a setting. `why` explains a difference from Kafka."""

    effect: Effect
    why: str = ""


USED: Final = Mark("used")
SYSTEM_SIZED: Final = Mark("used", "-1 and the default leave the size to the system, which adapts it to each connection")

ONE_LOOP: Final = Mark("none", "one event loop and its side threads do the work of Kafka's thread pools")
NO_EARLY_START: Final = Mark("none", "there is no authorizer that listeners would have to wait for")
NO_EVENT_LOG: Final = Mark("none", "the controller does not measure its events")
NOT_PURGED: Final = Mark("none", "a request leaves its purgatory as soon as it is answered")
REMOTE: Final = Mark("none", "there is no remote storage")
NO_TLS: Final = Mark("none", "there is no TLS; a listener that needs it is refused")
NO_SASL: Final = Mark("none", "there is no SASL; a listener that needs it is refused")
NO_TOKENS: Final = Mark("none", "there are no delegation tokens")
NO_BATCH_BUFFER: Final = Mark("none", "no buffer is kept between the batches of a coordinator")
NO_QUOTAS: Final = Mark("none", "there are no controller mutation quotas")
NO_TELEMETRY: Final = Mark("none", "clients are not asked for their metrics")
NO_JMX: Final = Mark("none", "metrics are plain counters; reporters are Java classes")

NO_REMOTE: Final = Mark("refused", "there is no remote storage")
NO_PROVIDERS: Final = Mark("refused", "config providers are Java classes")
NO_ACLS: Final = Mark("refused", "there is no authorizer; without one everybody may do everything")
NO_PRINCIPALS: Final = Mark("refused", "a principal builder is a Java class")
NO_CALLBACK: Final = Mark("refused", "a quota callback is a Java class")
NO_POLICY: Final = Mark("refused", "a policy is a Java class")
NO_SELECTOR: Final = Mark("refused", "replica selectors are Java classes; only Kafka's own are known")


class Required(NamedTuple):
    """The default of a setting that has no default and must be set."""


REQUIRED: Final = Required()


class Setting:
    """A setting's definition and mark."""

    __slots__ = ("key", "mark")

    def __init__(
        self,
        name: str,
        kind: Kind,
        default: Value | Required,
        validator: Validator | None,
        importance: Importance,
        mark: Mark,
        *,
        internal: bool = False,
    ) -> None:
        required = isinstance(default, Required)
        self.key = ConfigKey(name, kind, None if isinstance(default, Required) else default, validator, importance, internal, required)
        self.mark = mark
