"""Makes the spark-submit command that does the work of a `kops scan` in a session of its own. Needs no Spark.

Source of the arguments of spark-submit: `org.apache.spark.deploy.SparkSubmitArguments`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from kops.environment import find_java
from kops.errors import MissingDependencyError
from kops.spark.session import DRIVER_MEMORY, checked_master, settings_for
from kops.spark.shipping import shipped_settings


def submit_line(name: str, master: str | None, settings: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return the command for `kops scan NAME` with these arguments, quoted for a shell. `settings` are the user's.

    Raises UsageError for a master that Spark does not know, MissingDependencyError without Spark or Java.
    """
    chosen = checked_master(master)
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    own = {"spark.pyspark.driver.python": sys.executable, "spark.pyspark.python": python, **settings_for(chosen)}
    words = [_program(), "--master", chosen, "--name", f"kops scan {name}"]
    if "spark.driver.memory" not in settings:
        words += ["--driver-memory", DRIVER_MEMORY]
    for key, value in {**own, **settings, **shipped_settings(chosen, settings)}.items():
        words += ["--conf", f"{key}={value}"]
    return " ".join([*_java(), shlex.join([*words, _job(), *name.split(), *arguments])])


def _program() -> str:
    """spark-submit: by its name if it is on the PATH, else that of the package pyspark."""
    if shutil.which("spark-submit") and os.environ.get("SPARK_HOME"):
        return "spark-submit"
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise MissingDependencyError("Spark is not installed (pyspark): pip install 'kops[spark]'")
    return os.path.join(found.submodule_search_locations[0], "bin", "spark-submit")


def _java() -> list[str]:
    """Return the variable with the Java that kops would use, unless the environment already names it."""
    home = str(find_java().path)
    return [] if os.environ.get("JAVA_HOME") == home else [f"JAVA_HOME={shlex.quote(home)}"]


def _job() -> str:
    found = find_spec("kops.cli.scan_job")
    assert found is not None and found.origin is not None
    return found.origin
