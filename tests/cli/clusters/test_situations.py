"""The pages of docs/situations, carried out: the test makes the damage, runs the page's commands as written, and starts a broker, which
serves the promised records.

All pages work on one log directory, so one start of a broker proves all of them. The fast ring starts kops, the slow ring Kafka.
"""

from __future__ import annotations

import glob
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kops.cluster.embedded import Cluster
from kops.cluster.layout.directory import ClusterDirectory
from tests.cli.conftest import PROJECT, Ran
from tests.support.kafka.real_broker import RealNode
from tests.support.logs import situations
from tests.support.logs.situations import LOGS, RECORDS, TOPICS, value_of

Kops = Callable[..., Ran]
PAGES = PROJECT / "docs" / "situations"
RUNNING = re.compile(r"Start the broker\.|The broker keeps running\.")
# The order matters, because a page may describe the whole directory.
DAMAGE = {
    "broker-will-not-start": situations.broker_will_not_start,
    "consumer-stuck": situations.consumer_stuck,
    "index-corrupt": situations.index_corrupt,
    "segment-missing": situations.segment_missing,
    "topic-deleted": situations.topic_deleted,
    "replica-diverged": situations.replica_diverged,
    "consumer-offsets-damaged": situations.consumer_offsets_damaged,
    "disk-full": situations.disk_full,
    "hanging-transaction": situations.hanging_transaction,
    "one-disk-image": situations.one_disk_image,
}
# The records of each topic that its page promises. A topic that is not listed keeps all records.
PROMISED = {
    "payments": [number for number in range(RECORDS) if number != 17],
    "events": list(range(RECORDS - 1)),
    "ledger": list(range(30)),
}


class Command(NamedTuple):
    """A line of a page, and the exit code that the page gives for it."""

    line: str
    code: int


def commands(page: str) -> tuple[list[Command], list[Command]]:
    """Return the commands of a page before and after the start of the broker."""
    text = (PAGES / f"{page}.md").read_text()
    start = RUNNING.search(text)
    assert start is not None, f"{page} does not say when the broker runs"
    found: tuple[list[Command], list[Command]] = ([], [])
    for block in re.finditer(r"^```shell\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block[1].splitlines():
            command, _, comment = line.partition("   # ")
            found[block.start() > start.start()].append(Command(command, int(comment or 0)))
    return found


def run(kops: Kops, work: Path, page: str, command: Command) -> Ran | None:
    """Run a command as a shell does."""
    program, *words = shlex.split(command.line)
    if program == "mv":
        shutil.move(work / words[0], work / words[1])
        return None
    assert program == "kops", command.line
    ran = kops(*(path for word in words for path in (sorted(glob.glob(word)) if "*" in word else [word])))
    assert ran.code == command.code, f"{page}: {command.line}\n{ran.text}{ran.err}"
    return ran


@contextmanager
def serving(server: str, directory: ClusterDirectory, request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a broker on the directory: kops or Apache Kafka."""
    if server == "kops":
        with Cluster(data_dir=directory.path):
            yield
        return
    node = RealNode(request.getfixturevalue("oracle"), Path(directory.path) / "run", Path(directory.properties_path(1)))
    with node:
        yield


@pytest.mark.parametrize("server", ["kops", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])])
def test_every_page_does_what_it_promises(
    server: str, kops: Kops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    situations.write_directory(tmp_path)
    online: list[tuple[str, Command]] = []
    for page, damage in DAMAGE.items():
        damage(tmp_path)
        before, after = commands(page)
        for command in before:
            run(kops, tmp_path, page, command)
        online += [(page, command) for command in after]
    directory = ClusterDirectory(str(tmp_path / "cluster"))
    (tmp_path / LOGS).rename(directory.log_dir(1))
    (tmp_path / LOGS).symlink_to(directory.log_dir(1))
    monkeypatch.setenv("BOOTSTRAP_SERVERS", directory.bootstrap_servers())
    said: dict[str, list[str]] = {}
    with serving(server, directory, request):
        for page, command in online:
            ran = run(kops, tmp_path, page, command)
            said.setdefault(page, []).append(ran.text if ran is not None else "")
    for page, topic in zip((page for page in DAMAGE if page != "consumer-offsets-damaged"), proved_topics(), strict=True):
        got = [json.loads(line) for line in said[page][-1].splitlines()]
        values = [value_of(topic, number) for number in PROMISED.get(topic, range(RECORDS))]
        assert [situations.decoded(row["value"]) for row in got] == values, page
    hanging = said["hanging-transaction"]
    assert all("kops txn abort --topic transfers --partition 0 --start-offset 40" in text for text in hanging[:2])
    assert "transfers" not in hanging[3]
    groups = {tuple(line.split()[:4]) for line in said["consumer-offsets-damaged"][-1].splitlines()}
    assert any("payments" in row and "20" in row for row in groups), groups
    assert any("orders" in row and "7" in row for row in groups), groups


def proved_topics() -> list[str]:
    """Return the topic that each page reads at its end, in the order of `DAMAGE`."""
    found = []
    for page in DAMAGE:
        for command in commands(page)[1]:
            if command.line.startswith("kops topic consume "):
                found.append(command.line.split()[3])
    assert sorted(found) == sorted(TOPICS)
    return found


def test_every_page_is_acted_out_and_linked() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert pages == set(DAMAGE)
    index = (PAGES / "README.md").read_text()
    for page in pages:
        assert f"({page}.md)" in index
        headings = re.findall(r"^## (.*)", (PAGES / f"{page}.md").read_text(), re.MULTILINE)
        assert headings == ["Symptom", "Look", "Decide", "Repair", "Prove"], page
    assert "docs/situations" in (PROJECT / "README.md").read_text()
