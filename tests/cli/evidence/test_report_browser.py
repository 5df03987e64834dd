"""The report in a real browser: console messages, keyboard, narrow and wide windows, light and dark mode, print, contrast.

Screenshots are kept in build/report. The browser is Debian's Chromium (`make browser`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.forensics.evidence.collect import CollectOptions, collect
from kops.forensics.evidence.report.model import read_case
from kops.forensics.evidence.report.page import page as pieces
from tests.support import corpus
from tests.support.browser import MISSING, Browser, Page
from tools import demo

PROJECT = Path(__file__).resolve().parent.parent.parent.parent
SHOTS = PROJECT / "build" / "report"
HOSTILE = "<script>document.title='owned'<"

# The texts whose contrast with their background is too low (WCAG 2.2, 1.4.3).
CONTRAST = """(() => {
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = text => text.match(/[0-9.]+/g).map(Number);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color.slice(0, 3);
    }
    return null;
  };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
    if (node.closest('svg') || !node.checkVisibility()) continue;
    const back = behind(node);
    if (!back) { bad.push('no background: ' + node.tagName); continue; }
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`);
  }
  return bad;
})()"""

# The elements that stick out of the window on the right, except within a region that scrolls by itself.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(node => !node.closest('.scroll') && !node.classList.contains('skip')
  && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(node => node.tagName + '.' + (node.className.baseVal ?? node.className)).slice(0, 5)"""

FOCUSABLE = "document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def report(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Write the report of three brokers with a flipped bit, a broken index, a torn tail, and names that look like markup."""
    folder = tmp_path_factory.mktemp("evidence")
    case = corpus.load(demo.CASE)
    for name in demo.BROKERS:
        case.copy(folder / name, f"nodes/{name}")
    demo.damage(folder)
    shutil.copytree(folder / "n1" / "orders-epochs-0", folder / "n1" / f"{HOSTILE}-0")
    (folder / "n1" / "orders-epochs-0" / "link").symlink_to("/etc/passwd")
    options = CollectOptions(examiner=HOSTILE, note="after the power loss of rack 3", case_number="2026-17", arguments=["kops", HOSTILE])
    collect([str(folder / name) for name in demo.BROKERS], str(folder / "case"), options)
    (folder / "report.html").write_text("".join(pieces(read_case(str(folder / "case")))))
    return browser.open(folder / "report.html")


@pytest.mark.slow
def test_the_report_in_a_browser(report: Page) -> None:
    assert report.complaints == []
    assert [address.rsplit("/", 1)[-1] for address in report.requests] == ["report.html"]
    assert report.value("document.title") == "Evidence report: 2026-17"
    assert report.value("document.scripts.length") == 0
    assert report.value("document.querySelectorAll('h1').length") == 1
    assert report.value("[...document.querySelectorAll('svg[role=img]')].every(each => each.getAttribute('aria-label'))")
    drawn = "[...document.querySelectorAll('.segment .fill-damaged')].map(each => each.getBoundingClientRect().width)"
    assert all(width >= 0.5 for width in report.value(drawn)) and len(report.value(drawn)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_narrow_and_wide_light_and_dark(report: Page, width: int, scheme: str) -> None:
    report.size(width, 900)
    report.media(scheme=scheme)
    report.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert report.value("document.documentElement.scrollWidth") == width
    assert report.value(OUTSIDE) == []
    assert report.value(CONTRAST) == []
    size = "Math.min(...[...document.querySelectorAll('p, td, li, dd, summary')].map(each => parseFloat(getComputedStyle(each).fontSize)))"
    assert report.value(size) >= 12
    report.screenshot(SHOTS / f"report-{width}-{scheme}.png", height=6000)
    back = report.value("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(19, 20, 22)") == (scheme == "dark")


@pytest.mark.slow
def test_the_keyboard_reaches_everything(report: Page) -> None:
    report.size(1600, 900)
    report.media()
    report.value("document.querySelectorAll('details').forEach(each => each.open = false)")
    report.value("document.activeElement.blur()")
    reachable = report.value(f"[...{FOCUSABLE}].filter(each => each.checkVisibility()).length")
    report.value(f"[...{FOCUSABLE}].forEach((each, number) => each.dataset.number = number)")
    seen: list[str] = []
    for _ in range(reachable):
        report.press("Tab")
        seen.append(report.value("document.activeElement.dataset.number"))
    assert len(set(seen)) == reachable and None not in seen
    assert seen == sorted(seen, key=int)
    report.value("document.querySelector('details summary').focus()")
    assert report.value("document.querySelector('details').open") is False
    report.press("Enter")
    assert report.value("document.querySelector('details').open") is True
    report.press("Tab")
    assert report.value("document.activeElement.className") == "scroll"
    outline = "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    assert report.value(outline) == "solid3px"


@pytest.mark.slow
def test_on_paper(report: Page) -> None:
    report.size(800, 900)
    report.media(scheme="dark", kind="print")
    try:
        assert report.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert report.value("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert report.value(CONTRAST) == []
        report.screenshot(SHOTS / "report-print.png", height=6000)
    finally:
        report.media()


def test_a_missing_browser_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssertionError, match="install Debian's package `chromium`"):
        Browser()
    assert "make browser" in MISSING
