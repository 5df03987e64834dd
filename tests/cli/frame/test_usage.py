"""Wrong usage: one line on stderr, nothing on stdout, the right exit code, the nearest correct word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kops.cli.running.exit_codes as codes
from tests.cli.conftest import Ran

pytestmark = pytest.mark.usefixtures("probes")
Kops = Callable[..., Ran]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["docter"], 2, "no such command: kops docter, did you mean kops doctor? (see kops --help)"),
        (["xyzzy"], 2, "no such command: kops xyzzy (see kops --help)"),
        (["log", "row"], 16, "no such command: kops log row, did you mean kops log rows? (see kops log --help)"),
        (["completio"], 2, "no such command: kops completio, did you mean kops completion? (see kops --help)"),
        (["log"], 16, "kops log needs a command:"),
        (["probe"], 2, "kops probe needs a command: rows, names, many, slow, fail, words (see kops probe --help)"),
        (["--formt", "json", "log", "rows"], 2, "no such option before a command: --formt, did you mean --format? (see kops --help)"),
        (["log", "--formt=json", "rows"], 16, "no such option before a command: --formt, did you mean --format? (see kops log --help)"),
        (["log", "-o"], 16, "option -o needs a value (see kops log --help)"),
        (["log", "rows", "--formt", "json"], 16, "no such option: --formt, did you mean --format? (see kops log rows --help)"),
        (["probe", "rows", "--totl", "1"], 2, "no such option: --totl, did you mean --total? (see kops probe rows --help)"),
        (["log", "-o", "--format", "json", "rows"], 16, "option -o needs a value, and --format is an option (see kops log --help)"),
        (
            ["log", "rows", "--tag", "--total", "3"],
            16,
            "option '--tag' requires an argument, and --total is an option; if --total is meant: --tag=--total (see kops log rows --help)",
        ),
        (["log", "rows", "--tag", "--total=3"], 16, "option '--tag' requires an argument, and --total=3 is an option; if"),
        (["log", "rows", "--tag", "--help"], 16, "option '--tag' requires an argument, and --help is an option; if"),
        (
            ["probe", "rows", "-qo", "--tag", "a"],
            2,
            "option '-o' requires an argument, and --tag is an option (see kops probe rows --help)",
        ),
        (["log", "rows", "-x"], 16, "no such option: -x (see kops log rows --help)"),
        (["log", "rows", "extra"], 16, "got unexpected extra argument(s) (extra) (see kops log rows --help)"),
        (["log", "rows", "--total"], 16, "option '--total' requires an argument (see kops log rows --help)"),
        (["log", "rows", "--total", "many"], 16, "invalid value for '--total': 'many' is not a whole number (see"),
        (["log", "rows", "--total", "-1"], 16, "invalid value for '--total': -1 is out of range, allowed is from 0 to 99 (see"),
        (["log", "rows", "--share", "x"], 16, "invalid value for '--share': 'x' is not a number (see"),
        (["log", "rows", "--share", "2"], 16, "invalid value for '--share': 2.0 is out of range, allowed is at most 1 (see"),
        (["log", "words"], 16, "missing argument 'PATH...' (see kops log words --help)"),
        (["log", "words", "a", ""], 16, "argument 'PATH...': the path is empty (see kops log words --help)"),
        (["log", "rows", "-o", ""], 16, "option '--output': the path is empty (see kops log rows --help)"),
        (["log", "carve", "image", "--out="], 16, "option '--out': the path is empty (see kops log carve --help)"),
        (["evidence", "verify", ""], 16, "argument 'CASE': the path is empty (see kops evidence verify --help)"),
        (["group", "describe", "a\udcff"], 2, r"argument '[GROUP...]': a\xff is not UTF-8 (see kops group describe --help)"),
        (["topic", "produce", "t", "--header", "k=\udcff"], 2, r"option '--header': k=\xff is not UTF-8 (see kops topic produce --help)"),
        (["topic", "list", "--command-config", "no\udcff"], 3, r"--command-config no\xff: no such file"),
        (["log", "rows", "--format", "xml"], 16, "--format xml is not one of table, wide, json, jsonl, yaml, csv"),
        (["probe", "rows", "--format", "xml"], 2, "--format xml is not one of table, wide, json, jsonl, yaml, csv"),
        (["log", "words", "x", "--format", "json"], 16, "no such option: --format"),
        (["log", "rows", "-q", "-v"], 16, "-q and -v exclude each other"),
    ],
)
def test_wrong_usage(kops: Kops, arguments: list[str], code: int, words: str) -> None:
    ran = kops(*arguments)
    assert ran.code == code
    assert ran.out == b""
    assert ran.err.startswith(f"kops: error: {words}")
    assert ran.err.count("\n") == 1


def test_a_command_typed_without_its_group_is_found(kops: Kops) -> None:
    assert "did you mean kops log rows or kops probe rows?" in kops("rows").err


def test_no_arguments_show_the_help_and_are_wrong_usage(kops: Kops) -> None:
    ran = kops()
    assert ran.code == codes.PLAIN_USAGE
    assert ran.text.startswith("Usage: kops")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "json", "log", "rows"],
        ["--format=json", "log", "rows"],
        ["log", "--format", "json", "rows"],
        ["log", "rows", "--format", "json"],
        ["log", "rows", "--format=json"],
        ["-q", "log", "--no-color", "rows", "--format=json"],
    ],
)
def test_common_options_may_stand_anywhere(kops: Kops, arguments: list[str]) -> None:
    ran = kops(*arguments)
    assert ran.code == 0
    assert ran.text.startswith('{\n  "schema": "kops.probe/v1"')


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(kops: Kops, flag: str) -> None:
    import kops as package

    ran = kops(flag)
    assert (ran.code, ran.text, ran.err) == (0, f"kops {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "tags"),
    [
        (["--tag=--total"], ["--total"]),
        (["--tag", "--nothing-of-ours"], ["--nothing-of-ours"]),
        (["--tag", "-q"], ["-q"]),
        (["--tag", "a", "--tag", "-1"], ["a", "-1"]),
        (["--tag", "--", "--total", "3"], ["--"]),
    ],
)
def test_a_value_may_look_like_an_option(kops: Kops, arguments: list[str], tags: list[str]) -> None:
    import json

    ran = kops("log", "rows", "--format", "json", "--share", "0.5", *arguments)
    assert ran.code == 0
    assert json.loads(ran.text)["tags"] == tags


def test_every_option_with_a_value_refuses_an_option_as_its_value(kops: Kops) -> None:
    from kops.cli.running import tree
    from kops.cli.running.options import build

    count = 0
    for entry in tree.COMMANDS:
        for option in build(entry).params:
            if option.param_type_name == "option" and not option.is_flag and not option.count:  # type: ignore[attr-defined]
                for name in option.opts:
                    ran = kops(*entry.path, name, "--quiet")
                    assert ran.code == codes.usage(entry.path)
                    assert ran.err.startswith(f"kops: error: option '{name}' requires an argument, and --quiet is an option")
                    count += 1
    assert count > 300


def test_values_reach_the_command_as_their_types(kops: Kops) -> None:
    import json

    ran = kops("log", "rows", "--format", "json", "--total", "7", "--share", "0.5", "--tag", "a", "--tag=b")
    assert {key: json.loads(ran.text)[key] for key in ("total", "share", "tags")} == {"total": 7, "share": 0.5, "tags": ["a", "b"]}
