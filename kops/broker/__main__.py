"""`python -m kops.broker FILE.properties [--status FILE]`: a node with the settings of a server.properties (Kafka's kafka-server-start)."""

from __future__ import annotations

import sys

USAGE = "usage: python -m kops.broker FILE.properties [--status FILE]"


def main(arguments: list[str]) -> int:
    """Run the node. Returns the exit code, see `kops.broker.life.process`."""
    from kops.broker.life.process import run_node
    from kops.config.values.properties import read_properties

    match arguments:
        case [path]:
            status_path = None
        case [path, "--status", status_path]:
            pass
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 2
    return run_node(read_properties(data, file=path), status_path=status_path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
