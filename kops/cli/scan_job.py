"""The job file of `kops scan …` for spark-submit: it takes the arguments that follow `kops scan`, and has the same output and the same exit
code.

spark-submit --master spark://127.0.0.1:7077 "$(python -m kops.cli.scan_job --path)" verify --level deep /data/broker-1 /data/broker-2
"""

from __future__ import annotations

import sys

from kops.cli.main import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--path"]:
        print(__file__)
    else:
        sys.exit(main(["scan", *sys.argv[1:]]))
