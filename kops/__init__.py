"""kops reads, verifies, rebuilds and recovers the files of Apache Kafka, byte-compatible with Apache Kafka 4.3."""

from kops import _compiled

__version__ = "0.1.0"

_compiled.install()
