"""The fixtures of the pytest plugin, in a pytest run of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

seen = []

def test_one(kops_cluster):
    seen.append(kops_cluster.bootstrap_servers)
    assert kops_cluster.broker_ids == [1]

@pytest.mark.kops_cluster(2, topics=["orders:3"])
def test_two(kops_cluster):
    assert kops_cluster.broker_ids == [1, 2]
    assert kops_cluster.bootstrap_servers not in seen

def test_shared(kops_session_cluster):
    seen.append(kops_session_cluster.bootstrap_servers)
    assert kops_session_cluster.broker_ids == [1, 2, 3]

def test_shared_again(kops_session_cluster):
    assert kops_session_cluster.bootstrap_servers == seen[-1]

def test_many(make_kops_cluster):
    one, two = make_kops_cluster(), make_kops_cluster(brokers=2)
    assert one.bootstrap_servers != two.bootstrap_servers
"""


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_subprocess("--kops-brokers", "3", "-p", "no:cacheprovider", "--strict-markers")
    ran.assert_outcomes(passed=5)


@pytest.mark.slow
def test_a_mark_that_makes_no_sense_fails_in_a_line(pytester: pytest.Pytester) -> None:
    marks = ["broker=3", "config={'num.partitions': 0}", "topics='a:b'"]
    tests = "".join(f"@pytest.mark.kops_cluster({mark})\ndef test_{index}(kops_cluster): pass\n" for index, mark in enumerate(marks))
    pytester.makepyfile("import pytest\n" + tests)
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(errors=3)
    ran.stdout.fnmatch_lines(
        [
            "@pytest.mark.kops_cluster: *unexpected keyword argument 'broker'",
            "@pytest.mark.kops_cluster: config: num.partitions=0: not allowed; allowed: 1 or more",
            "@pytest.mark.kops_cluster: topics a:b: partitions and replication factor are whole numbers",
        ]
    )
    ran.stdout.no_fnmatch_line("*embedded.py*")


def test_they_are_listed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    ran = pytester.runpytest_subprocess("--fixtures", "-p", "no:cacheprovider")
    ran.stdout.fnmatch_lines(["kops_cluster*", "kops_session_cluster*", "make_kops_cluster*"])


def test_it_imports_nothing_of_kops() -> None:
    script = "import pytest, sys; import kops.pytest_plugin; print(*sorted(name for name in sys.modules if name.startswith('kops')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["kops", "kops._compiled", "kops.pytest_plugin"]
