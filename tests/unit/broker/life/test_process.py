"""A node's log lines, its status file, and errors before there is a node."""

from __future__ import annotations

import gc
import json
import logging
import re
from pathlib import Path

import pytest

from kops.broker.__main__ import main
from kops.broker.controller_link.status import BrokerState, DirRecovery, NodeStatus
from kops.broker.life.process import KafkaFormatter, StatusFile, keep_collector_out


@pytest.fixture(autouse=True)
def _keep_logging() -> object:
    """Restore the process's logging, because a node replaces it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield None
    root.handlers[:] = handlers
    root.setLevel(level)


def line(level: int, text: str, *arguments: object) -> str:
    """Return one line of the log."""
    return KafkaFormatter().format(logging.LogRecord("kops.broker.life.node", level, "node.py", 1, text, arguments, None))


def test_lines_look_as_kafkas() -> None:
    moment = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] "
    assert re.fullmatch(moment + r"INFO node 3 is up \(kops\.broker\.life\.node\)", line(logging.INFO, "node %d is %s", 3, "up"))
    assert "] WARN careful (" in line(logging.WARNING, "careful")
    assert "] ERROR broken (" in line(logging.ERROR, "broken")
    assert "] FATAL over (" in line(logging.CRITICAL, "over")


def test_a_traceback_stands_below_its_line() -> None:
    try:
        raise OSError("gone")
    except OSError as error:
        record = logging.LogRecord("k", logging.ERROR, "", 1, "failed", (), (type(error), error, error.__traceback__))
    first, *more = KafkaFormatter().format(record).splitlines()
    assert first.endswith("] ERROR failed (k)")
    assert more[0] == "Traceback (most recent call last):"
    assert more[-1] == "OSError: gone"


def test_the_status_file_is_whole_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = NodeStatus(
        BrokerState.RECOVERY, 3, "cluster", {"PLAINTEXT": ("h", 9092)}, (DirRecovery("/d", remaining_logs=2, remaining_segments=7),)
    )
    StatusFile(str(path)).write(status.document(77))
    assert json.loads(path.read_text()) == {
        "state": "RECOVERY",
        "pid": 77,
        "node_id": 3,
        "cluster_id": "cluster",
        "listeners": {"PLAINTEXT": ["h", 9092]},
        "recovery": {"/d": {"remaining_logs": 2, "remaining_segments": 7}},
        "error": None,
    }
    assert [found.name for found in tmp_path.iterdir()] == ["status.json"]


def test_a_status_that_cannot_be_written_is_told_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    StatusFile(str(tmp_path / "nowhere" / "status.json")).write({})
    assert caplog.records[0].getMessage().startswith("The status can't be written: ")


def test_the_collector_is_to_look_seldom_but_it_does() -> None:
    before = gc.get_threshold()
    try:
        keep_collector_out()
        first, *later = gc.get_threshold()
        assert gc.isenabled()
        assert first >= 10 * 700
        assert later == list(before[1:])
    finally:
        gc.set_threshold(*before)


def test_a_command_line_that_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["a", "b"], ["a", "--status"], ["a", "--state", "b"]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("usage: python -m kops.broker FILE.properties")
    assert main([str(tmp_path / "none.properties")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_settings_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, status = tmp_path / "server.properties", tmp_path / "status.json"
    file.write_text("process.roles=broker,controller\nnode.id=many\n")
    assert main([str(file), "--status", str(status)]) == 2
    assert "FATAL " in capsys.readouterr().err
    told = json.loads(status.read_text())
    assert told["state"] == "NOT_RUNNING"
    assert told["error"].startswith("Invalid value many for configuration ")
