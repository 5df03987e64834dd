"""Record the README's session: `python tools/make_recording.py` (or `make recording`); `--check` runs it again and only compares.

The commands of `SESSION` really run, one after the other, in a temporary directory on a pseudo-terminal. Each must end with the exit code
beside it. What they print, and when, becomes `docs/recording.svg`, an animation that any browser shows. Nothing is written by hand. Waits
are cut to `LONGEST_WAIT_S`.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from html import escape, unescape
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from kops.cli.running.exit_codes import LOST, PROBLEMS  # noqa: E402 - the project's folder has to be on the path first

RECORDING: Final = PROJECT / "docs" / "recording.svg"
LOG: Final = "kops-data/broker-2/orders-0/00000000000000000000.log"
# Batches are full, whatever the machine does meanwhile, so the damage is always at the same place of the same batch.
SESSION: Final = (
    ("kops cluster up --seed-topic orders:1:3", 0),
    ('eval "$(kops cluster env)"', 0),
    ("seq 1 2000 | kops topic produce orders --command-property batch.size=1000 --command-property linger.ms=5000", 0),
    ("kops cluster broker kill 1; sleep 12", 0),
    ("kops topic consume orders --from-beginning --until-end --format kafka | tail -n 2", 0),
    ("kops cluster down", 0),
    (f"printf X | dd of={LOG} bs=1 seek=5000 conv=notrunc status=none   # damage a byte", 0),
    ("kops log verify kops-data/broker-2", PROBLEMS),
    ("kops log forecast --assume crash --recovery-point 0 kops-data/broker-2/orders-0", PROBLEMS),
    ("kops log recover kops-data/broker-2/orders-0 --out saved", LOST),
)
COLUMNS: Final = 130
ROWS: Final = 30
LONGEST_WAIT_S: Final = 1.5
AFTER_PROMPT_S: Final = 1.2
AFTER_OUTPUT_S: Final = 1.6
AT_END_S: Final = 6.0
TIMEOUT_S: Final = 120
SEQUENCE: Final = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
COLORS: Final = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
STYLE: Final = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}.p{fill:#8fbcbb}.b{font-weight:bold}.d{fill:#8a93a5}"
    ".r{fill:#e06c75}.g{fill:#98c379}.y{fill:#e5c07b}.c{fill:#56b6c2}"
)
LINE_HEIGHT: Final = 17
CHARACTER_WIDTH: Final = 7.83
MARGIN: Final = 12


class Piece(NamedTuple):
    """Text of one style on one line."""

    text: str
    style: str


class Line(NamedTuple):
    """A line in its final state, and the second at which it was first complete."""

    at_s: float
    pieces: list[Piece]

    @property
    def text(self) -> str:
        """Without styles."""
        return "".join(piece.text for piece in self.pieces).rstrip()


def run(command: str, folder: Path, code: int) -> list[tuple[float, bytes]]:
    """The output of one command line on a terminal, each piece with the seconds since its start. Raises SystemExit if the exit code is not
    `code`."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm",
        "COLUMNS": str(COLUMNS),
        "LINES": str(ROWS),
    }
    environment.pop("NO_COLOR", None)
    environment.pop("BOOTSTRAP_SERVERS", None)
    # Each line runs in a shell of its own. Exported variables are passed to the next one.
    state = folder.parent / "exported"
    script = f"[ ! -e {state} ] || . {state}\n{command}\nended=$?\nexport -p >{state}\nexit $ended"
    main, side = pty.openpty()
    started = time.monotonic()
    process = subprocess.Popen(["/bin/sh", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=side, stderr=side)
    os.close(side)
    chunks: list[tuple[float, bytes]] = []
    try:
        while True:
            now = time.monotonic() - started
            ready, _, _ = select.select([main], [], [], 0.05)
            if ready:
                try:
                    data = os.read(main, 65536)
                except OSError:  # Linux: nobody has the other end open any more
                    break
                if not data:
                    break
                chunks.append((now, data))
            elif process.poll() is not None:
                break  # a cluster's supervisor keeps the terminal open
            if now > TIMEOUT_S:
                raise SystemExit(f"{command}: still running after {TIMEOUT_S} s")
    finally:
        os.close(main)
        ended = process.wait(TIMEOUT_S)
    if ended != code:
        raise SystemExit(f"{command}: exit code {ended}, not {code}\n{b''.join(data for _, data in chunks).decode(errors='replace')}")
    return chunks


def screen(chunks: list[tuple[float, bytes]]) -> list[Line]:
    """The final contents of the terminal: carriage returns and erasures are applied, so a progress bar leaves nothing."""
    lines: list[Line] = []
    cells: list[tuple[str, str]] = []
    column, style = 0, ""
    for at, data in chunks:
        text = data.decode(errors="replace")
        place = 0
        while place < len(text):
            found = SEQUENCE.match(text, place)
            if found is not None:
                if found[2] == "m":
                    style = " ".join(COLORS[number] for number in found[1].split(";") if number in COLORS)
                elif found[2] == "K":
                    del cells[column:]
                place = found.end()
                continue
            character = text[place]
            place += 1
            if character == "\r":
                column = 0
            elif character == "\n":
                lines.append(Line(at, pieces(cells)))
                cells, column = [], 0
            elif character >= " ":
                cells += [(" ", "")] * (column + 1 - len(cells))
                cells[column] = (character, style)
                column += 1
    if any(character != " " for character, _ in cells):
        lines.append(Line(chunks[-1][0], pieces(cells)))
    return lines


def pieces(cells: list[tuple[str, str]]) -> list[Piece]:
    """Join neighbouring characters of one style."""
    made: list[Piece] = []
    for character, style in cells:
        if made and made[-1].style == style:
            made[-1] = Piece(made[-1].text + character, style)
        else:
            made.append(Piece(character, style))
    return made


def record() -> list[Line]:
    """The whole session, prompts included, on one clock."""
    clock = 0.5
    shown: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="kops-") as name:
        folder = Path(name, "demo")
        folder.mkdir()
        try:
            for command, code in SESSION:
                shown.append(Line(clock, [Piece("$ ", "p"), Piece(command, "b")]))
                clock += AFTER_PROMPT_S
                last = 0.0
                for line in screen(run(command, folder, code)):
                    clock += min(line.at_s - last, LONGEST_WAIT_S)
                    last = line.at_s
                    shown += [Line(clock, part) for part in wrapped(line.pieces)]
                clock += AFTER_OUTPUT_S
        finally:
            run("kops cluster kill; kops cluster purge --yes; true", folder, 0)
    return shown


def wrapped(line: list[Piece]) -> list[list[Piece]]:
    """A line as a terminal of `COLUMNS` columns breaks it."""
    rows: list[list[Piece]] = [[]]
    room = COLUMNS
    for text, style in line:
        rest = text
        while rest:
            if not room:
                rows.append([])
                room = COLUMNS
            rows[-1].append(Piece(rest[:room], style))
            rest, room = rest[room:], room - min(room, len(rest))
    return rows


def svg(lines: list[Line]) -> str:
    """The session as an animated picture: each line appears at its second, the whole moves up when the window is full."""
    total = lines[-1].at_s + AT_END_S
    width, height = round(COLUMNS * CHARACTER_WIDTH + 2 * MARGIN), ROWS * LINE_HEIGHT + 2 * MARGIN

    def share(at: float) -> str:
        return f"{100 * at / total:.2f}%"

    rules, texts = [], []
    for number, line in enumerate(lines):
        rules.append(f"@keyframes l{number}{{0%{{opacity:0}}{share(line.at_s)}{{opacity:1}}}}")
        rules.append(f"#l{number}{{animation:l{number} {total:.1f}s step-end infinite}}")
        spans = "".join(f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text) for text, style in line.pieces)
        texts.append(f'<text id="l{number}" x="{MARGIN}" y="{MARGIN + LINE_HEIGHT * number + 13}" xml:space="preserve">{spans}</text>')
    steps = [f"{share(line.at_s)}{{transform:translateY({-LINE_HEIGHT * (n + 1 - ROWS)}px)}}" for n, line in enumerate(lines) if n >= ROWS]
    scroll = f"@keyframes up{{0%{{transform:none}}{''.join(steps)}}}#up{{animation:up {total:.1f}s step-end infinite}}" if steps else ""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
            "<title>kops: a cluster is started, written to, loses a broker and is stopped; a damaged log is verified and recovered</title>",
            f"<style>{STYLE}{''.join(rules)}{scroll}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1e222a"/>',
            f'<svg x="0" y="{MARGIN // 2}" width="{width}" height="{height - MARGIN}"><g id="up">',
            *texts,
            "</g></svg>",
            "</svg>",
            "",
        )
    )


def shown_in(picture: str) -> list[str]:
    """The lines of text in a recording."""
    texts = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    return [unescape(re.sub(r"<[^>]+>", "", text)).rstrip() for text in texts]


def masked(text: str) -> str:
    """Mask what differs between runs: numbers, the temporary directory, and the widths of columns."""
    return re.sub(r" +", " ", re.sub(r"\d+([.,]\d+)*", "1", re.sub(r"\S*/demo/", "", text))).strip()


def differences() -> list[str]:
    """The lines in which a new session differs from the recording, after masking."""
    old = [masked(line) for line in shown_in(RECORDING.read_text())]
    new = [masked(line.text) for line in record()]
    if old == new:
        return []
    return [f"- {line}" for line in old if line not in new] + [f"+ {line}" for line in new if line not in old] or ["the order differs"]


def main() -> int:
    """Write or check the recording."""
    parser = argparse.ArgumentParser(description="Record the session of the README.")
    parser.add_argument("--check", action="store_true", help="run the session again and compare it with the recording")
    if parser.parse_args().check:
        found = differences()
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    RECORDING.write_text(svg(record()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
