"""What the fast ring samples, and which markers are set automatically."""

from __future__ import annotations

from pathlib import Path

from tests.support import corpus, rings, scheduling

PROJECT = Path(__file__).resolve().parent.parent.parent


def test_a_sample_has_a_case_of_every_family_and_is_always_the_same() -> None:
    everything = corpus.cases()
    some = rings.sample("a test", everything)
    assert {rings.family(case_id) for case_id in some} == {rings.family(case_id) for case_id in everything}
    assert len(some) < len(everything) / 3
    assert some == rings.sample("a test", reversed(everything))
    assert rings.sample("a test", everything[:20]) == set(everything[:20]), "all where there are few"


def test_samples_of_many_functions_meet_all_cases() -> None:
    everything = set(corpus.cases())
    assert set.union(*(rings.sample(str(number), everything) for number in range(200))) == everything


def test_families() -> None:
    assert rings.family("v2-2.8.2-format-0.10.2-snappy") == "v2-format-0.10.2-snappy"
    assert rings.family("damage-4.3.0-snapshots-missing") == rings.family("damage-4.3.0-snapshot-empty-last") == "damage-snapshot"
    assert rings.family("broker-damage-4.3.0-torn-tail-recovery-point-at-end") == "broker-damage-torn"


class RealBroker:
    """A class with the name of the real one."""


def starts() -> RealBroker:
    return RealBroker()


def starts_by_another() -> RealBroker:
    return starts()


def test_who_starts_brokers_is_found() -> None:
    assert rings.starts_brokers(starts)
    assert rings.starts_brokers(starts_by_another)
    assert not rings.starts_brokers(test_families)


def test_the_files_that_are_scheduled_are_there() -> None:
    named = {*scheduling.ALONE, *scheduling.TOGETHER, *scheduling.SECONDS} - {*scheduling.TOGETHER.values(), *scheduling.JVMS.values()}
    assert [name for name in sorted(named) if not (PROJECT / name).is_file()] == []
    assert [name for name in scheduling.JVMS if not (PROJECT / name).is_dir()] == []


def test_units() -> None:
    alone, together = min(scheduling.ALONE), min(scheduling.TOGETHER)
    assert scheduling.unit_of(f"{alone}::test[x]") == f"{alone}::test[x]"
    assert scheduling.unit_of(f"{together}::test[x]") == scheduling.TOGETHER[together]
    assert scheduling.unit_of("tests/unit/test_rings.py::test[x]") == "tests/unit/test_rings.py"
    with_java = "tests/differential/storage/test_loader.py"
    assert scheduling.unit_of(f"{with_java}::test[x]") == with_java
    assert scheduling.unit_of(f"{with_java}::test[x]", fast=True) == "JVM 2"
    assert scheduling.unit_of("tests/differential/clients/admin/test_admin_tables.py::test[x]", fast=True) == "JVM 2"
    assert scheduling.seconds_of(f"{alone}::test[x]") == scheduling.SECONDS[alone]
    assert not scheduling.ALONE & set(scheduling.TOGETHER)
