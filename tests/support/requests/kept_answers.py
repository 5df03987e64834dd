"""The answers of a real Kafka 4.3.0 node to `tests/support/requests/api_steps.py`, kept in tests/golden/node-apis.json.zst.

`python -m tests.support.requests.kept_answers` runs the steps on such a node again and writes the file.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.corpus import PROJECT
from tests.support.kafka.two_brokers import Side
from tests.support.requests.api_steps import CASES, KEPT, SETTINGS

FILE = PROJECT / "tests" / "golden" / "node-apis.json.zst"


@cache
def kept_answers() -> dict[str, list[list[Any]]]:
    """Return case → its steps with their names and answers."""
    import zstandard

    return dict(json.loads(zstandard.decompress(FILE.read_bytes())))


def main() -> None:
    """Write the file."""
    import zstandard

    from tests.support.kafka.oracle import Oracle
    from tests.support.kafka.real_broker import RealBroker

    with (
        tempfile.TemporaryDirectory() as work,
        Oracle() as oracle,
        RealBroker(oracle, Path(work) / "run", log_dirs=[Path(work) / "logs"], settings=SETTINGS) as broker,
    ):
        side = Side("kafka", broker.bootstrap)
        answers = {case: list(CASES[case][0](side, CASES[case][1])) for case in KEPT}
        side.client.close()
    FILE.write_bytes(zstandard.compress(json.dumps(answers, separators=(",", ":")).encode(), 19))


if __name__ == "__main__":
    main()
