"""Scans of objects behind URLs. The answers are the same as for files on a disk, whatever the network does."""

from __future__ import annotations

import errno
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kops.errors import UsageError
from kops.files import OsFiles, urls
from kops.files.any_files import AnyFiles
from kops.files.objects import ObjectFiles
from kops.files.uploads import UploadFiles
from kops.files.urls import plain_path
from kops.forensics.carve.run import carve
from kops.forensics.recover.jobs import find_jobs
from kops.forensics.recover.run import recover
from kops.forensics.recover.task import Order, begin_results, recover_partition, results_so_far
from kops.forensics.verify.run import verify
from kops.spark import remembered
from kops.spark.jobs.lost.carve import scan_carve
from kops.spark.remembered import State, Unit
from kops.spark.stores.reading import at_once
from kops.spark.tail.look import HIGH_WATERMARK, Lookout
from tests.spark.jobs.test_scan_kept import Twice
from tests.spark.jobs.test_scan_recover import cluster
from tests.spark.scan_commands import Commands
from tests.spark.stream.tailing import LiveLog
from tests.spark.stream.test_stream import Sink, run, stream
from tests.support import corpus
from tests.support.corpus import PROJECT
from tests.support.images import DiskImage, some_log
from tests.support.object_store import BUCKET, Store, object_store
from tests.support.patience import until

pytestmark = pytest.mark.timeout(1200)  # Spark, and a server and a proxy in this process
SECOND_NS = 1_000_000_000
CASE = "damage-4.3.0-index-garbage-old"


@pytest.fixture(scope="session")
def server() -> Iterator[Store]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Provide a store, with no credentials in the environment and none of this machine."""
    for names in urls.ENVIRONMENT.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    before = urls.connections()
    server.proxy.reset()
    yield server
    urls.connect(before)
    server.proxy.reset()


def in_store(value: Any, store: Store, root: Path, path: str) -> Any:
    """Return a report about local files as a report about the same files in the store."""
    if isinstance(value, str):
        return value.replace(str(root), store.plain(path))
    if isinstance(value, dict):
        return {name: in_store(each, store, root, path) for name, each in value.items()}
    return [in_store(each, store, root, path) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("some", [pytest.param(True, id="some"), pytest.param(False, id="more", marks=pytest.mark.slow)])
def test_the_same_verdict(spark: Any, store: Store, some: bool, tmp_path: Path) -> None:
    """Connections break meanwhile."""
    from kops.spark.jobs.verify import scan_verify

    case_ids = [CASE] if some else [each for each in corpus.cases("damage") if "4.3.0" in each][::4]
    for case_id in case_ids:
        shutil.copytree(corpus.load(case_id).root / "before", tmp_path / case_id)
    url = store.put_tree(tmp_path, f"verdict-{some}")
    store.proxy.breaks = 5
    report = scan_verify(spark, [url], "full", task_bytes=500)
    expected = verify([tmp_path], "full").to_json()
    assert len(expected["findings"]) >= len(case_ids)  # type: ignore[arg-type] # a list
    assert report.to_json() == in_store(expected, store, tmp_path, f"verdict-{some}")
    assert store.proxy.breaks == 0


class TestReading:
    """`ObjectFiles` alone."""

    def files(self) -> ObjectFiles:
        return ObjectFiles(sleep=lambda _: None)

    def test_a_tree(self, store: Store) -> None:
        store.put("tree/a/x.log", b"123")
        store.put("tree/b", b"")
        files, root = AnyFiles(ahead=True), plain_path(store.url("tree/"))
        assert root == store.plain("tree") == files.absolute(f"{root}/./a/..".removesuffix("/./a/..") + "/")
        assert files.list(root) == ["a", "b"]
        assert [(each.size, each.is_dir, each.is_file) for each in (files.stat(f"{root}/a"), files.stat(f"{root}/b"))] == [
            (0, True, False),
            (0, False, True),
        ]
        assert list(files.walk(root)) == [f"{root}/a/x.log", f"{root}/b"]
        assert files.read_all(f"{root}/a/x.log") == b"123"
        assert not files.exists(f"{root}/c") and not files.exists(f"{root}/a/y/z")
        for missing in (f"{root}/c", f"{root}/a/y.log"):
            with pytest.raises(FileNotFoundError):
                files.open(missing)

    def test_a_directory_is_listed_once(self, store: Store) -> None:
        for number in range(5):
            store.put(f"listed/t-{number}/0.log", b"x")
        files, root = ObjectFiles(ahead=True), plain_path(store.url("listed"))
        for _ in range(2):
            for name in files.list(root):
                assert files.list(f"{root}/{name}") == ["0.log"]
                assert files.stat(f"{root}/{name}/0.log").size == 1
                assert files.exists(f"{root}/{name}/0.log") and not files.exists(f"{root}/{name}/0.index")
        assert len([each for each in store.proxy.seen if "list-type" in each]) == 6

    def test_reads_are_the_bytes(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kops.files.objects.BLOCK", 4096)
        monkeypatch.setattr("kops.files.objects._FIRST_BLOCK", 512)
        data = bytes(number * 7 % 251 for number in range(50_000))
        store.put("bytes", data)
        files, path = self.files(), plain_path(store.url("bytes"))
        with files.open(path) as file:
            for position, size in (
                (0, 100),
                (100, 1000),
                (1100, 9000),
                (10_100, 9000),
                (49_990, 100),
                (3, 0),
                (60_000, 5),
                (20_000, 30_000),
            ):
                assert file.read(position, size) == data[position : position + size]
            assert b"".join(file.read(at, 1000) for at in range(0, 50_000, 1000)) == data
        gets = [each for each in store.proxy.seen if each.startswith("GET")]
        assert len(gets) < 50

    def test_a_look_at_the_start_reads_no_block(self, store: Store) -> None:
        store.put("large", bytes(3 << 20))
        sent: list[str] = []
        store.proxy.on_get = sent.append
        with self.files().open(plain_path(store.url("large"))) as file:
            assert file.read(1 << 20, 61) == bytes(61)
        assert len(sent) == 1

    @pytest.mark.parametrize("what", ["breaks", "drops"])
    def test_a_broken_connection_is_tried_again(self, store: Store, what: str) -> None:
        data = bytes(range(256)) * 4000
        store.put("broken", data)
        files, path = self.files(), plain_path(store.url("broken"))
        with files.open(path) as file:
            setattr(store.proxy, what, 4)  # This is more than Amazon's SDK retries by itself.
            assert file.read(0, len(data)) == data
            assert getattr(store.proxy, what) == 0

    def test_a_connection_that_stays_broken(self, store: Store) -> None:
        store.put("gone", b"x" * 1000)
        files, path = self.files(), plain_path(store.url("gone"))
        with files.open(path) as file:
            store.proxy.breaks = 1_000_000
            with pytest.raises(ConnectionAbortedError) as failed:
                file.read(0, 1000)
        assert failed.value.filename == path
        assert failed.value.errno != errno.EIO  # `recover` takes EIO for a bad sector, and continues without the bytes.

    def test_another_object_in_its_place(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kops.files.objects._FIRST_BLOCK", 100)
        store.put("changing", b"a" * 1000)
        files, path = self.files(), plain_path(store.url("changing"))
        file = files.open(path)
        assert file.read(0, 100) == b"a" * 100
        store.put("changing", b"b" * 1000)
        with pytest.raises(OSError, match="changed during the scan: another object has taken its place") as failed:
            file.read(100, 900)
            file.close()
        assert (failed.value.errno, failed.value.filename) == (errno.ESTALE, path)
        file.close()

    def test_one_that_was_changed_since_it_was_listed(self, store: Store) -> None:
        store.put("later/x", b"a")
        files, root = self.files(), plain_path(store.url("later"))
        assert files.list(root) == ["x"]
        store.put("later/x", b"ab")
        with pytest.raises(OSError, match="it had 1 bytes when it was listed, and has 2 now") as failed:
            files.open(f"{root}/x")
        assert failed.value.errno == errno.ESTALE
        other = self.files()
        other.expect({f"{root}/x": (3, 0)})
        with pytest.raises(OSError, match="it had 3 bytes"):
            other.open(f"{root}/x")

    def test_errors_name_the_url(self, store: Store) -> None:
        store.put("secret", b"x")
        store.proxy.closed = True
        path = plain_path(store.url("secret", keys=""))
        urls.connect({f"s3://{BUCKET}": {**urls.connection(f"s3://{BUCKET}"), "anonymous": "true"}})
        with pytest.raises(PermissionError, match="access denied; no credentials were given: set AWS_ACCESS_KEY_ID") as failed:
            self.files().exists(path)
        assert failed.value.filename == path
        store.proxy.forbidden = "/secret"
        path = plain_path(store.url("secret"))
        with pytest.raises(PermissionError, match="access denied: "):
            self.files().open(path)
        with pytest.raises(FileNotFoundError, match="there is no such bucket"):
            self.files().exists(plain_path(store.url("x").replace(BUCKET, "no-such-bucket")))


class TestWriting:
    """`UploadFiles`: an object appears as a whole when it is renamed."""

    def test_written_beside_and_renamed(self, store: Store) -> None:
        root = plain_path(store.url("out"))
        files = UploadFiles(sleep=lambda _: None)
        files.mkdir(root)
        files.mkdir(f"{root}/a.partial")
        with files.open(f"{root}/a.partial/1.log", "new") as file:
            file.write(0, b"abc")
            file.write(3, b"def")
            file.sync()
        files.write_atomic(f"{root}/note", b"note")
        assert store.tree("out") == {"note": b"note"}
        assert files.list(root) == ["a.partial", "note"] and files.stat(f"{root}/a.partial").is_dir
        assert files.read_all(f"{root}/a.partial/1.log") == b"abcdef"
        store.proxy.drops = 1
        files.rename(f"{root}/a.partial", f"{root}/a")
        assert store.tree("out") == {"a/1.log": b"abcdef", "note": b"note"}
        assert files.exists(f"{root}/a") and not files.exists(f"{root}/a.partial")
        files.unlink(f"{root}/note")
        with pytest.raises(IsADirectoryError):
            files.unlink(f"{root}/a")
        with files.open(f"{root}/left", "new") as file:
            file.write(0, bytes(10))
        staged = Path(files._folder)
        assert len(list(staged.iterdir())) == 1
        files.close()
        assert not staged.exists() and list(store.tree("out")) == ["a/1.log"]

    def test_an_upload_that_fails_in_the_middle(self, store: Store, tmp_path: Path) -> None:
        """The partition fails, and the next attempt completes it. A third attempt finds it complete."""
        out, disk = plain_path(store.url("half")), OsFiles(read_only=True)
        (job,), *_ = find_jobs(cluster(tmp_path, ["damage-4.3.0-two-flips"]), out, disk)
        order = Order(out, "segment")
        files = UploadFiles(sleep=lambda _: None)
        begin_results(files, order, [job.name], [])
        store.proxy.forbidden = ".timeindex"
        failed = recover_partition(disk, files, order, job, "a")
        assert str(failed.failure).startswith("[Errno 13] access denied: ") and not failed.complete
        assert [path for path in store.tree("half") if path.endswith(".log")] and results_so_far(files, order) == {}
        store.proxy.reset()
        written = recover_partition(disk, files, order, job, "b")
        assert written.failure is None and [path for path in store.tree("half") if path.endswith(".timeindex")]
        store.proxy.reset()
        assert recover_partition(disk, UploadFiles(), order, job, "c") == written == results_so_far(files, order)[job.name]
        assert not [each for each in store.proxy.seen if each.startswith("PUT")]
        files.close()


class TestUrls:
    """Options of a URL, and variables of the environment."""

    def test_options_are_taken_off_and_remembered(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        assert plain_path("s3a://k:s%2F1@b/x//y/?region=eu-west-1") == "s3://b/x/y"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        expected = {"access_key": "k", "secret_key": "s/1", "region": "eu-west-1", "endpoint_override": "http://127.0.0.1:9"}
        assert urls.connection("s3://b") == expected
        assert urls.connection("s3://c")["session_token"] == "token"
        given = urls.connections()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name)
        urls.connect({})
        assert urls.connection("s3://b") == {}
        urls.connect(given)
        assert urls.connection("s3://b") == expected

    def test_other_paths(self) -> None:
        assert plain_path("file:///data/kafka%201/") == "/data/kafka 1"
        assert [plain_path(path) for path in ("/data", "s3:/x", "a:b", ".")] == ["/data", "s3:/x", "a:b", "."]
        assert not urls.is_url("/data/s3:") and urls.is_url("hdfs://host:8020/x")
        assert plain_path("hdfs://user@host:8020/x") == "hdfs://user@host:8020/x"
        assert plain_path("gs://bucket/a?scheme=http") == "gs://bucket/a"

    @pytest.mark.parametrize(
        ("url", "told"),
        [
            ("s3:///x", "no bucket"),
            ("file://host/x", "another machine"),
            ("nope://x/y", "kops can't read nope: URLs"),
            ("s3://bucket/x?colour=red", "unknown option colour"),
        ],
    )
    def test_urls_that_can_not_be_read(self, url: str, told: str, store: Store) -> None:
        with pytest.raises(UsageError, match=told):
            AnyFiles().exists(plain_path(url))


class TestScans:
    """Jobs, the data source and commands."""

    @pytest.mark.slow
    def test_a_broken_connection_costs_a_retry_and_a_changed_object_is_a_finding(self, spark: Any, store: Store) -> None:
        from kops.spark.jobs.verify import scan_verify

        root = corpus.load(CASE).root / "before"
        url = store.put_tree(root, "changes")
        log = next(path.relative_to(root).as_posix() for path in sorted(root.glob("*/*.log")) if path.stat().st_size)
        data = (root / log).read_bytes()
        store.proxy.breaks = 4
        assert scan_verify(spark, [url], "crc").to_json() == in_store(verify([root], "crc").to_json(), store, root, "changes")
        assert store.proxy.breaks == 0

        def grow(path: str) -> None:
            if not path.endswith(log):
                store.put(f"changes/{log}", data + bytes(7))

        store.proxy.on_get = grow  # meta.properties is read after the listing and before any log.
        report = scan_verify(spark, [url], "full")
        (found,) = (each for each in report.findings if each.code == "file-changed")
        assert found.file == store.plain(f"changes/{log}")
        assert found.detail == f"changed during the scan: it had {len(data)} bytes when it was listed, and has {len(data) + 7} now"

    @pytest.mark.slow
    def test_recovered_into_the_store(self, spark: Any, store: Store, tmp_path: Path) -> None:
        from kops.spark.jobs.recover import scan_recover

        paths = cluster(tmp_path / "cluster", ["damage-4.3.0-two-flips"])
        expected = recover(paths, tmp_path / "log")
        sources = [store.put_tree(Path(path), f"three/{number}") for number, path in enumerate(paths)]
        out = store.url("rescued")
        report = scan_recover(spark, [sources[0], sources[1].replace("three/1", "three/[1-9]")], out)
        assert not report.failed
        files = {path: data for path, data in store.tree("rescued").items() if "/" in path}
        assert files == {str(file.relative_to(tmp_path / "log")): file.read_bytes() for file in (tmp_path / "log").glob("*/*")}
        assert sorted(path for path in store.tree("rescued") if "/" not in path) == ["_SUCCESS", "kops-recover.json"]
        (row,), (ours,) = expected.to_json()["partitions"], report.to_json()["partitions"]
        assert {**ours, "output": "", "sources": ours["sources"]} == {
            **row,
            "output": "",
            "sources": [each.replace(f"{tmp_path}/cluster/broker-", store.plain("three/")) for each in row["sources"]],
            "damaged": in_three(row["damaged"], store, tmp_path),
            "conflicts": in_three(row["conflicts"], store, tmp_path),
            "notes": in_three(row["notes"], store, tmp_path),
        }
        with pytest.raises(UsageError, match="is not empty"):
            scan_recover(spark, sources, out)
        again = scan_recover(spark, sources, out, resume=True)
        assert again.to_json() == report.to_json()

    @pytest.mark.slow
    def test_recovered_into_the_store_in_parts(self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every task runs twice, as after a failure or by speculation. First the store refuses what completes a partition."""
        from kops.spark.jobs.recover import scan_recover

        here = Twice(monkeypatch)
        paths = cluster(tmp_path / "cluster", ["damage-4.3.0-two-flips", "damage-4.3.0-torn-tail"])
        expected = recover(paths, tmp_path / "log")
        out = store.url("parts")
        store.proxy.forbidden = "leader-epoch-checkpoint"
        failed = scan_recover(here, paths, out, task_bytes=1)
        assert [entry.name for entry in failed.partitions if entry.failure] == [entry.name for entry in expected.partitions]
        assert "_SUCCESS" not in store.tree("parts")
        store.proxy.reset()
        report = scan_recover(here, paths, out, task_bytes=1, resume=True)
        assert not report.failed
        assert in_store(expected.to_json()["partitions"], store, tmp_path / "log", "parts") == report.to_json()["partitions"]
        files = {path: data for path, data in store.tree("parts").items() if "/" in path}
        assert files == {str(file.relative_to(tmp_path / "log")): file.read_bytes() for file in (tmp_path / "log").glob("*/*")}
        assert sorted(path for path in store.tree("parts") if "/" not in path) == ["_SUCCESS", "kops-recover.json"]
        assert here.answers > 2 * len(expected.partitions), "several tasks for each partition"

    @pytest.mark.slow
    def test_carve(self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Images and the output are in the store, and every task runs twice. First the store refuses what completes a log."""
        monkeypatch.setattr("kops.forensics.carve.fragments.WINDOW", 1 << 12)
        disk = DiskImage(4)
        for log in (some_log(0, 30, producer=1), some_log(0, 20, producer=2), some_log(90, 10, producer=1, sequence=90)):
            disk.piece(log)
            disk.foreign(3000)
        image = disk.write(tmp_path / "disk-1.img")
        store.put("disks/disk-1.img", image.read_bytes())
        ours, out, here = carve([image], tmp_path / "log"), store.url("carved"), Twice(monkeypatch)
        images = [store.url("disks/*.img")]
        store.proxy.forbidden = "leader-epoch-checkpoint"
        failed = scan_carve(here, images, out, task_bytes=8000)
        assert failed.failed and all(each.failure for each in failed.logs)
        assert "_SUCCESS" not in store.tree("carved")
        store.proxy.reset()
        report = scan_carve(here, images, out, task_bytes=8000, resume=True)
        assert in_store(ours.to_json(), store, tmp_path / "log", "carved") == report.to_json()
        found, name = store.tree("carved"), "kops-carve.fragments.jsonl"
        assert found.pop(name).replace(store.plain("disks").encode(), str(tmp_path).encode()) == (tmp_path / "log" / name).read_bytes()
        files = {path: data for path, data in found.items() if "/" in path}
        assert files == {str(file.relative_to(tmp_path / "log")): file.read_bytes() for file in (tmp_path / "log").glob("*/*")}
        assert sorted(set(found) - set(files)) == ["_SUCCESS", "kops-carve.found.jsonl", "kops-carve.json"]

    @pytest.mark.slow
    def test_the_data_source(self, spark: Any, store: Store) -> None:
        from kops.spark.source.writer import read_write_options

        root = corpus.load("v2-4.3.0-codec-lz4").root / "data"
        url = store.put_tree(root, "source")
        local = spark.read.format("kafkalog").load(str(root))
        there = spark.read.format("kafkalog").load(url)
        columns = ("topic", "partition", "offset", "value")
        assert there.select(*columns).collect() == local.select(*columns).collect() != []
        assert there.filter("damage is null").first().path.startswith(store.plain("source/"))
        with pytest.raises(UsageError, match="name a local path"):
            read_write_options({"path": url})

    @pytest.mark.slow
    def test_a_stream(self, spark: Any, store: Store, tmp_path: Path) -> None:
        """Objects are listed again for each micro-batch. A query goes on where it was, with objects that have grown and new ones."""
        log, sink = LiveLog(tmp_path / "broker"), Sink()
        log.append(*[b"%d" % number for number in range(10)])
        for rows in (20, 26):
            url = store.put_tree(tmp_path / "broker", "stream")
            run(stream(spark, url, maxOffsetsPerTrigger="8"), sink, tmp_path / "checkpoint")
            assert sink.rows == [("orders", 0, offset, b"%d" % (offset // 2), None) for offset in range(rows)]
            log.append(b"10")
            log.log.roll()
            log.append(b"11", b"12")
        local = f"file://{tmp_path}/broker"
        run(stream(spark, local), sink, tmp_path / "checkpoint")
        assert len(sink.rows) == 32

    @pytest.mark.slow
    def test_an_object_that_is_replaced_while_the_log_is_looked_at(self, store: Store, tmp_path: Path) -> None:
        """The next look sees the new one."""
        log = LiveLog(tmp_path / "broker")
        log.append(b"a")
        files, url = AnyFiles(growing=True), plain_path(store.put_tree(tmp_path / "broker", "look"))
        lookout = Lookout(files, [url], lambda _: True, HIGH_WATERMARK, is_committed=False)
        assert [each[0].view.end for each in lookout.first_look().values()] == [2]
        log.append(b"b")
        store.put_tree(tmp_path / "broker", "look")
        assert [each[0].view.end for each in lookout.look().values()] == [2]
        files.forget()
        assert [each[0].view.end for each in lookout.look().values()] == [4]

    def test_errors_of_the_command(self, store: Store, commands: Commands) -> None:
        store.put_tree(corpus.load(CASE).root / "before", "errors")
        store.proxy.closed = True
        where = store.url("errors", keys="")
        denied = commands("scan", "verify", where + "&anonymous=true")
        assert (denied.code, denied.text) == (8, "")
        assert denied.err.startswith("kops: error: access denied; no credentials were given: set AWS_ACCESS_KEY_ID")
        assert denied.err.endswith(f": {store.plain('errors')}\n")
        missing = commands("scan", "stats", store.url("nothing/here"))
        assert (missing.code, missing.err) == (8, f"kops: error: {store.plain('nothing/here')}: no such file or directory\n")
        bucket = commands("scan", "verify", store.url("x").replace(BUCKET, "no-such-bucket"))
        assert (bucket.code, bucket.err) == (8, "kops: error: there is no such bucket: s3://no-such-bucket/x\n")

    @pytest.mark.slow
    def test_the_questions(self, store: Store, commands: Commands, tmp_path: Path) -> None:
        """The rows are those of `kops log` about the same files."""
        nodes, root = corpus.load("cluster-4.3.0").root / "nodes", tmp_path / "n1"
        for name in ("__consumer_offsets-2", "sensor.readings-multi-1"):
            shutil.copytree(nodes / "n1" / name, root / name)
        shutil.copy(nodes / "n1" / "meta.properties", root)
        url = store.put_tree(root, "questions")
        for words in (("offsets",), ("stats",), ("grep", "--count")):
            ours = commands("log", *words, "--format", "jsonl", root)
            there = commands("scan", *words, "--format", "jsonl", url)
            assert there.lines == in_store(ours.lines, store, root, "questions") != [], (words, there.err)
            assert there.code == ours.code, there.err
        for words in (("keys",), ("producers",)):
            on_disk, there = (commands("scan", *words, "--format", "jsonl", where) for where in (root, url))
            assert there.lines == on_disk.lines != [], (words, there.err)

    @pytest.mark.slow
    def test_the_commands_of_the_page(
        self, spark: Any, store: Store, commands: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The commands are those of docs/spark.md, "Object storage", with this store.

        Its rows equal those that Spark's own writer writes to a disk.
        """
        text = (PROJECT / "docs" / "spark.md").read_text().partition("## Object storage")[2]
        lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
        for number, path in enumerate(cluster(tmp_path, ["damage-4.3.0-two-flips"])):
            store.put_tree(Path(path), f"page/broker-{number}")
        for line in lines:
            if line.startswith("export "):
                for name, value in re.findall(r"(\w+)=(\S+)", line):
                    monkeypatch.setenv(name, store.endpoint if name == "AWS_ENDPOINT_URL" else value)
                continue
            words = shlex.split(line.replace("s3://copies", store.plain("page")))
            assert words[0] == "kops"
            assert commands(*words[1:]).code in (0, 1, 4), line  # 1: everything was recovered
        assert {"rescued/_SUCCESS", "stats/_SUCCESS"} <= set(store.tree("page"))
        brokers = [tmp_path / f"broker-{number}" for number in range(3)]
        assert commands("scan", "stats", *brokers, "--out", tmp_path / "parquet").code in (0, 4)
        assert commands("scan", "stats", brokers[0], "--out", tmp_path / "csv", "--as", "csv").code in (0, 4)
        broker = store.plain("page/broker-0")
        assert commands("scan", "stats", broker, "--out", store.plain("rows/csv"), "--as", "csv").code in (0, 4)
        for shape, path in (("parquet", "page/stats"), ("csv", "rows/csv")):
            there = tmp_path / "there" / shape
            there.mkdir(parents=True)
            for name, data in store.tree(path).items():
                assert name == "_SUCCESS" or name.endswith(f".{shape}")
                (there / name).write_bytes(data)
            on_disk, in_the_store = (
                sorted(str(row) for row in spark.read.format(shape).option("header", "true").load(str(each)).collect())
                for each in (tmp_path / shape, there)
            )
            assert in_the_store == [each.replace(f"{tmp_path}/", f"{store.plain('page')}/") for each in on_disk] != []
        again = commands("scan", "stats", broker, "--out", store.plain("rows/csv"))
        assert (again.code, again.err) == (16, f"kops: error: --out {store.plain('rows/csv')}: exists; name a new directory\n")


def in_three(value: Any, store: Store, root: Path) -> Any:
    if isinstance(value, str):
        return value.replace(f"{root}/cluster/broker-", store.plain("three/"))
    if isinstance(value, dict):
        return {name: in_three(each, store, root) for name, each in value.items()}
    return [in_three(each, store, root) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("threads", [False, True])
def test_several_at_once_come_in_order(threads: bool) -> None:
    assert list(at_once(lambda number: number * number, range(300), threads=threads)) == [number * number for number in range(300)]
    with pytest.raises(ValueError, match="invalid literal"):
        list(at_once(int, ["1", "x", "3"], threads=threads))
    assert next(at_once(int, ["1"] * 100, threads=threads)) == 1


def test_answers_about_objects_are_kept_in_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: what a task asks and keeps. The clock of the store is that of this machine."""
    monkeypatch.setattr(remembered, "SETTLED_NS", -10 * SECOND_NS)
    url = plain_path(store.url("kept/data/t-0/00000000000000000000.log"))
    store.put("kept/data/t-0/00000000000000000000.log", b"abc")
    asked: list[int] = []

    def read() -> list[int]:
        asked.append(1)
        return [len(asked)]

    def ask() -> tuple[list[bool], list[int]]:
        state = State(store.url("kept/state"), paths=[store.url("kept/data")])
        answers, unit = state.answers("stats", []), Unit((url, 0, 3), (url,), 3)
        return state.known(answers, [unit]), answers.of(unit, read)

    assert [ask(), ask()] == [([False], [1]), ([True], [1])]
    store.put("kept/data/t-0/00000000000000000000.log", b"abcd")
    assert [ask(), ask()] == [([False], [2]), ([True], [2])]
    (name,) = store.tree("kept/state")
    store.put(f"kept/state/{name}", b"something else")
    assert ask() == ([False], [3])
    with pytest.raises(UsageError, match="is inside"):
        State(store.url("kept/data/state"), paths=[store.url("kept/data")])
    with pytest.raises(UsageError, match="is inside"):
        State(store.url("kept/data/state"), paths=[store.url("")])
    store.proxy.forbidden = "/kept/state"
    state = State(store.url("kept/state"))
    assert state.known(state.answers("stats", []), [Unit((url,), (url,), 3)]) == [False]


@pytest.mark.slow
def test_a_scan_of_objects_reads_what_changed(commands: Commands, store: Store) -> None:
    case = corpus.load(CASE).root / "before"
    url = store.put_tree(case, "again/data")
    for words in (("verify", "--format", "json"), ("stats", "--format", "jsonl")):
        plain = commands("scan", *words, url)
        kept = ("scan", *words, "--state", store.url("again/state"), url)
        first = commands(*kept)
        # Objects that were just uploaded are read again.
        second = until(partial(commands, *kept), lambda ran: " read (0 bytes)" in ran.err)
        assert (first.text, first.code) == (second.text, second.code) == (plain.text, plain.code)
        assert " read (0 bytes)" not in first.err
