"""All settings of a node in Kafka 4.3, in the order of KafkaConfig.configDef(). The first invalid setting in this order is reported.

Source: Kafka's AbstractKafkaConfig.CONFIG_DEF. The tables are in the modules `node`, `coordinators` and `security`.
"""

from __future__ import annotations

from typing import Final

from kops.config.broker_keys import coordinators, node, security
from kops.config.values.definition import ConfigDef

SETTINGS: Final = (
    *node.REMOTE_STORAGE,
    *node.SERVER,
    *node.KRAFT,
    *node.METADATA_LOG,
    *node.SOCKET_SERVER,
    *node.REPLICATION,
    *coordinators.GROUP_COORDINATOR,
    *node.LOG_CLEANER,
    *node.LOG,
    *coordinators.SHARE_GROUP,
    *coordinators.SHARE_COORDINATOR,
    *coordinators.TRANSACTIONS,
    *node.QUORUM,
    *node.METRICS,
    *node.QUOTAS,
    *security.SECURITY,
    *security.DELEGATION_TOKENS,
    *coordinators.ADD_PARTITIONS_TO_TXN,
)
MARKS: Final = {setting.key.name: setting.mark for setting in SETTINGS}
KAFKA_CONFIG_DEF: Final = ConfigDef(setting.key for setting in SETTINGS)
