"""Write the manual pages below `man/` from the command line itself: `python tools/make_man.py` (or `make man`); `--check` only compares.

There is a page for each command (`kops-log-dump.1`) and each group (`kops-log.1`), `kops.1`, `kops-exit-codes.7`, and `kops-findings.7`
from the registry of findings. A page without a command is removed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import kops
from kops.cli.running import exit_codes, tree
from kops.cli.running.pages import Page, Parameter, pages
from kops.forensics.findings.codes import CODES
from kops.forensics.findings.explanations import EXPLANATIONS

MAN = Path(__file__).resolve().parent.parent / "man"


def escape(text: str) -> str:
    """Text as roff: backslashes, hyphens and lines that would read as requests."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def head(name: str, section: int, short: str) -> list[str]:
    """The title line and the NAME section."""
    return [
        f'.TH "{name.upper()}" "{section}" "" "kops {kops.__version__}" "kops"',
        ".SH NAME",
        f"{escape(name)} \\- {escape(short)}",
    ]


def paragraphs(text: str) -> list[str]:
    """Docstring text: paragraphs, and blocks that are indented or lists kept as they are."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if not block.strip():
            continue
        if any(line.startswith((" ", "- ")) for line in block.split("\n")):
            lines += [".PP", ".nf", *escape(block).split("\n"), ".fi"]
        else:
            lines += [".PP", escape(" ".join(line.strip() for line in block.split("\n")))]
    return lines


def parameter(one: Parameter) -> list[str]:
    """One option or argument with its text."""
    value = f" \\fI{escape(one.value)}\\fR" if one.value else ""
    title = ", ".join(f"\\fB{escape(flag)}\\fR" for flag in one.flags) + value if one.flags else f"\\fI{escape(one.value or '')}\\fR"
    text = escape(" ".join(one.help.split()))
    if one.choices and not all(choice in one.help for choice in one.choices):
        text += f" One of {escape(', '.join(one.choices))}."
    if one.default:
        text += f" Default: {escape(one.default)}."
    if one.many and one.value:
        text += " May be given many times."
    return [".TP", title, text.strip() or "\\&"]


def codes(rows: Iterable[tuple[int, str]]) -> list[str]:
    """A table of exit codes."""
    return [line for code, meaning in rows for line in (".TP", f".B {code}", escape(meaning[:1].upper() + meaning[1:] + "."))]


def command_page(page: Page, names: list[str]) -> str:
    """The page of one command."""
    short, _, rest = page.text.partition("\n\n")
    lines = head("-".join(("kops", *page.entry.path)), 1, page.entry.help)
    lines += [".SH SYNOPSIS", f"\\fB{escape(page.entry.name)}\\fR {escape(page.usage)}", ".SH DESCRIPTION", escape(" ".join(short.split()))]
    lines += paragraphs(rest)
    if page.arguments:
        lines += [".SH ARGUMENTS", *(line for one in page.arguments for line in parameter(one))]
    own = [one for one in page.options if not one.common]
    common = [one for one in page.options if one.common]
    for title, options in (("OPTIONS", own), ("COMMON OPTIONS", common)):
        if options:
            lines += [f".SH {title}", *(line for one in options for line in parameter(one))]
    lines.append(".SH EXAMPLES")
    for what, line in page.examples:
        lines += [".TP", f"\\fB{escape(line)}\\fR", escape(what)]
    lines.append(".SH EXIT STATUS")
    if exit_codes.sums(page.entry.path):
        lines += ["A sum of these numbers.", *codes(exit_codes.meanings(page.entry.path))]
    else:
        lines += codes(exit_codes.meanings(page.entry.path))
    return finish(lines, names)


def root_page(every: list[Page], names: list[str]) -> str:
    """`kops.1`."""
    lines = head("kops", 1, "Kafka clusters on this machine, and the files of Apache Kafka")
    lines += [".SH SYNOPSIS", "\\fBkops\\fR [\\fIGROUP\\fR] \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]", ".SH DESCRIPTION"]
    lines.append(
        escape(
            "kops makes and runs Kafka clusters on this machine, is a client of running ones, and reads, verifies, rebuilds and recovers "
            "log directories of Apache Kafka brokers without a broker. It is byte-compatible with Apache Kafka 4.3, on the wire and on "
            "disk. Data is printed on standard output, messages on standard error. Every command has --help with examples, every "
            "command and every group a manual page of its own."
        )
    )
    lines.append(".SH COMMANDS")
    for page in every:
        lines += [".TP", f"\\fB{escape(page.entry.name)}\\fR", escape(page.entry.help + ".")]
    lines.append(".SH ENVIRONMENT")
    for name, text in (
        ("BOOTSTRAP_SERVERS", "The cluster's address, unless -b is given; kops cluster env prints it."),
        ("NO_COLOR", "When set and not empty, nothing is coloured."),
        ("KOPS_DEBUG", "When set and not empty, an error shows where in the program it happened."),
        ("KOPS_JAVA_HOME, JAVA_HOME", "The Java that Spark runs on."),
    ):
        lines += [".TP", f".B {escape(name)}", escape(text)]
    lines += [".SH EXIT STATUS", "See \\fBkops\\-exit\\-codes\\fR(7)."]
    return finish(lines, names)


def group_page(path: tuple[str, ...], every: list[Page], names: list[str]) -> str:
    """The page of a group: the commands in it and below it."""
    name = " ".join(("kops", *path))
    lines = head(name.replace(" ", "-"), 1, tree.GROUPS[path])
    lines += [".SH SYNOPSIS", f"\\fB{escape(name)}\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]", ".SH COMMANDS"]
    for page in every:
        if page.entry.path[: len(path)] == path:
            lines += [".TP", f"\\fB{escape(page.entry.name)}\\fR", escape(page.entry.help + ".")]
    lines.append(".SH EXIT STATUS")
    lines += ["A sum of these numbers."] if exit_codes.sums(path) else []
    return finish([*lines, *codes(exit_codes.meanings(path))], names)


def exit_codes_page(names: list[str]) -> str:
    """`kops-exit-codes.7`."""
    lines = head("kops-exit-codes", 7, "what the exit codes of kops mean")
    lines += [
        ".SH DESCRIPTION",
        escape(f"The commands below {', '.join(f'kops {g}' for g in exit_codes.SUM_GROUPS)} return a sum, as fsck does:"),
    ]
    lines += codes(exit_codes.SUM_MEANINGS)
    lines += [".PP", "So 12 says that problems were found and that something could not be done. All other commands return one of these:"]
    lines += codes(exit_codes.PLAIN_MEANINGS)
    lines += [
        ".PP",
        escape(
            "If the reader of standard output exits early (kops log dump ... | head), this is not an error: the exit code is that of the "
            "output up to that point."
        ),
    ]
    return finish(lines, names)


def findings_page(names: list[str]) -> str:
    """`kops-findings.7`."""
    lines = head("kops-findings", 7, "the codes of what kops log verify finds")
    lines += [".SH DESCRIPTION"]
    lines.append(
        escape(
            "A finding is severity, code, file, position, length, base_offset, last_offset, records, detail and fix. The codes are "
            "stable. Errors and warnings are problems (exit code 4), infos are not. Under each code: what it means, what Apache Kafka "
            "does, an example, the usual cause, what to do. kops log explain CODE prints the same."
        )
    )
    lines.append(".SH CODES")
    for code, text in sorted(CODES.items()):
        lines += [".TP", f"\\fB{escape(code)}\\fR ({text.severity})", escape(" ".join((text.meaning, text.consequence)).strip())]
        more = EXPLANATIONS[code]
        lines += [".br", "Example: " + escape(f"{more.place}: {more.detail}"), ".br", "Cause: " + escape(more.cause)]
        if text.fix:
            lines += [".br", "Remedy: " + escape(text.fix.rstrip(".")) + "."]
    return finish(lines, names)


def finish(lines: list[str], names: list[str]) -> str:
    """The SEE ALSO section and the last line break."""
    also = ", ".join(f"\\fB{escape(name[:-3])}\\fR{name[-3:]}" for name in names)
    return "\n".join(['.\\" Made by tools/make_man.py from the command line; do not edit.', *lines, ".SH SEE ALSO", also]) + "\n"


def manual() -> dict[str, str]:
    """All pages: file name → text."""
    every = pages()
    names = ["kops(1)", "kops-exit-codes(7)", "kops-findings(7)"]
    made = {
        "kops.1": root_page(every, names[1:]),
        "kops-exit-codes.7": exit_codes_page(["kops(1)"]),
        "kops-findings.7": findings_page(names[:2]),
    }
    for page in every:
        made["-".join(("kops", *page.entry.path)) + ".1"] = command_page(page, names)
    for path in tree.GROUPS:
        made["-".join(("kops", *path)) + ".1"] = group_page(path, every, names)
    return made


def differences() -> list[str]:
    """A sentence for each page below `man/` that is not current."""
    wanted = manual()
    there = {path.name: path.read_text() for path in MAN.glob("*.[1-8]")}
    stale = [f"{name} is missing" for name in wanted if name not in there]
    stale += [f"{name} is not current" for name, text in wanted.items() if name in there and there[name] != text]
    return stale + [f"{name} has no command" for name in there if name not in wanted]


def main() -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 when something is not current")
    if parser.parse_args().check:
        stale = differences()
        print("\n".join(stale) or "man/ is current")
        return 1 if stale else 0
    wanted = manual()
    MAN.mkdir(exist_ok=True)
    for path in MAN.glob("*.[1-8]"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (MAN / name).write_text(text)
    print(f"{len(wanted)} pages in {MAN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
