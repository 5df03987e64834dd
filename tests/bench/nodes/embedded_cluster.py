"""`kops.Cluster` in a process of its own, for benchmarks beside three nodes that are processes. All its nodes run on one loop.

`python -m tests.bench.nodes.embedded_cluster FOLDER SETTINGS` is that process. SETTINGS are a JSON object. It prints the ports of the
brokers as JSON, by id, and stops the cluster when its input ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import kops
from tests.support.nodes.kops_nodes import KopsNodes

BROKERS: Final = 3


class EmbeddedCluster(KopsNodes):
    """The nodes of such a process. `processes` has the same process for each of them."""

    def start(self, node_id: int) -> None:
        """Start the process with all nodes, and wait until they serve. A further node needs no start. Raises RuntimeError if it ends."""
        if node_id in self.processes:
            return
        self.work.mkdir(exist_ok=True)
        given = json.dumps({name: str(value) for name, value in self.settings.items()})
        command = [sys.executable, "-m", "tests.bench.nodes.embedded_cluster", str(self.work / "cluster"), given]
        with open(self.work / "cluster.out", "ab") as output:
            process = subprocess.Popen(command, cwd=self.tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output)
        self.processes = dict.fromkeys(self.ids, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the embedded cluster has ended: {(self.work / 'cluster.out').read_text()[-3000:]}")
        self.ports = {int(number): port for number, port in json.loads(line).items()}

    def wait(self, node_id: int) -> None:
        """Nothing is left to wait for: `start` has returned."""

    def __exit__(self, *_: object) -> None:
        pipes = [pipe for process in self.processes.values() for pipe in (process.stdin, process.stdout)]
        super().__exit__()
        for pipe in pipes:
            if pipe is not None:
                pipe.close()


def main(arguments: Sequence[str]) -> None:
    """Run the cluster until the input ends."""
    folder, given = arguments
    with kops.Cluster(BROKERS, config=json.loads(given), data_dir=folder) as cluster:
        ports = {number: int(cluster.address(number).rpartition(":")[2]) for number in cluster.broker_ids}
        print(json.dumps(ports), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
