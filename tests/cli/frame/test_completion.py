"""Completion: bash really completes. The scripts for zsh and fish contain every word."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable

import pytest

from kops.cli.running import completion, tree
from kops.cli.running.pages import pages
from tests.cli.conftest import Ran

Kops = Callable[..., Ran]


def completed(line: str) -> list[str]:
    """Return what bash offers at the end of this line."""
    typed = line.split(" ")
    words = " ".join(shlex.quote(word) for word in typed)
    ask = f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _kops; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = f"{completion.script('bash')}\n{ask}\n"
    done = subprocess.run(["bash", "--norc", "-u", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_first_word() -> None:
    assert completed("kops ") == [name for name, _ in tree.children(())]
    assert completed("kops doc") == ["doctor"]
    assert "--version" in completed("kops -")


def test_options_and_their_choices() -> None:
    assert completed("kops doctor --fo") == ["--format"]
    assert completed("kops doctor --format ") == ["table", "json", "jsonl", "yaml", "csv"]
    assert completed("kops doctor --format j") == ["json", "jsonl"]
    assert completed("kops doctor --format = j") == ["json", "jsonl"]
    assert completed("kops -q doctor --format ya") == ["yaml"]
    assert completed("kops doctor -o some") == []
    assert completed("kops completion ") == list(completion.SHELLS)


@pytest.mark.usefixtures("probes")
def test_groups() -> None:
    assert completed("kops probe ") == ["rows", "names", "many", "slow", "fail", "words"]
    assert completed("kops probe rows --to") == ["--total"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_script_holds_every_command_and_option(shell: str, kops: Kops) -> None:
    ran = kops("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    for page in pages():
        assert page.entry.path[-1] in ran.text
        for option in page.options:
            for flag in option.flags:
                shown = flag if shell != "fish" else f"-s {flag[1:]}" if len(flag) == 2 else f"-l {flag[2:]}"
                assert shown in ran.text
            for choice in option.choices:
                assert choice in ran.text


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_quotes_are_balanced(shell: str) -> None:
    shlex.split(completion.script(shell).replace("\\\n", " "), comments=True)


def test_another_shell_is_refused(kops: Kops) -> None:
    ran = kops("completion", "tcsh")
    assert (ran.code, ran.err) == (2, "kops: error: no completion for tcsh; supported: bash, zsh, fish\n")
