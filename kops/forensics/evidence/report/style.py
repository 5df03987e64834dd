"""The style of the report: light and dark as the reader's system asks, for narrow and wide windows, and for paper."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root {
  color-scheme: light dark;
  --page: #f6f6f4; --card: #ffffff; --sunk: #efeeeb; --line: #d6d3cd; --text: #1d1c1a; --muted: #57534d; --link: #1a56b0;
  --intact: #7fb893; --recoverable: #2f6fd0; --damaged: #c2291c; --other: #b9b5ae; --on-damaged: #ffffff;
  --bad-text: #a31d12; --bad-back: #fdecea; --warn-text: #7a4a00; --warn-back: #fdf3dc; --good-text: #1d6138; --good-back: #e6f4ea;
  --info-text: #2c4d7d; --info-back: #e8eff9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #131416; --card: #1c1e21; --sunk: #26282c; --line: #3b3e44; --text: #ececea; --muted: #b0b3b8; --link: #8db9ff;
    --intact: #3f7d56; --recoverable: #6aa5ff; --damaged: #ff6a5c; --other: #5d6168; --on-damaged: #2a0805;
    --bad-text: #ffaaa1; --bad-back: #3b1815; --warn-text: #ffd280; --warn-back: #372a10; --good-text: #93dcac; --good-back: #14311f;
    --info-text: #b0cdfb; --info-back: #1a2a42;
  }
}
* { box-sizing: border-box; }
html { font: 100%/1.55 system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif;
  -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text); }
main, header.top, footer { max-width: 78rem; margin: 0 auto; padding: 0 clamp(.9rem, 3vw, 2.5rem); }
header.top { padding-top: 2rem; }
footer { padding-top: 1rem; padding-bottom: 3rem; color: var(--muted); font-size: .9rem; }
h1 { font-size: clamp(1.6rem, 1.2rem + 1.6vw, 2.3rem); line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.015em; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .8rem; letter-spacing: -.01em; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
p { margin: .5rem 0; max-width: 75ch; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: clamp(1rem, 2.5vw, 1.8rem);
  margin: 1.2rem 0; }
code, pre, .path { font-family: ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", "DejaVu Sans Mono", monospace; font-size: .88em; }
code, .path { overflow-wrap: anywhere; }
pre { background: var(--sunk); border: 1px solid var(--line); border-radius: 6px; padding: .7rem .9rem; margin: .5rem 0;
  white-space: pre-wrap;
  overflow-wrap: anywhere; }
.muted { color: var(--muted); }
.skip { position: absolute; left: -999px; top: 0; background: var(--card); padding: .5rem 1rem; }
.skip:focus { left: .5rem; top: .5rem; z-index: 1; }
nav ul { list-style: none; margin: 1rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
dl.facts { display: grid; grid-template-columns: 11rem 1fr; gap: .3rem 1.2rem; margin: .6rem 0; }
dl.facts dt { color: var(--muted); }
dl.facts dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.verdict { border-left: 6px solid; border-radius: 6px; padding: .8rem 1.1rem; margin: 1rem 0; font-size: 1.1rem; font-weight: 600; }
.verdict p { margin: .3rem 0 0; font-size: 1rem; font-weight: 400; }
.bad { color: var(--bad-text); background: var(--bad-back); }
.warn { color: var(--warn-text); background: var(--warn-back); }
.good { color: var(--good-text); background: var(--good-back); }
.info { color: var(--info-text); background: var(--info-back); }
.badge { display: inline-block; border-radius: 4px; padding: .05rem .5rem; font-size: .82rem; font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .8rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--sunk); border-radius: 8px; padding: .7rem .9rem; min-width: 0; }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.2; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tiles span { color: var(--muted); font-size: .9rem; }
ol.steps { padding-left: 1.4rem; }
ol.steps li { margin: .9rem 0; }
.scroll { overflow-x: auto; max-width: 100%; margin: .6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding: .2rem 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .7rem .4rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.n + td:not(.n), th.n + th:not(.n) { padding-left: .9rem; }
.segment td:first-child { min-width: 9rem; }
.segment td:nth-child(n+5) { white-space: nowrap; }
td.wide { min-width: 16rem; overflow-wrap: anywhere; }
td.hash { font-family: ui-monospace, "Liberation Mono", "DejaVu Sans Mono", monospace; font-size: .8rem; overflow-wrap: anywhere;
  min-width: 18rem; }
details { border-top: 1px solid var(--line); }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .55rem .2rem; overflow-wrap: anywhere; }
summary:hover { background: var(--sunk); }
details > :not(summary) { margin-left: 1.1rem; }
.segment details { border: 0; }
figure { margin: 1rem 0; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .1rem 1rem; font-size: .9rem; }
.bar { display: block; width: 100%; height: 30px; background: var(--sunk); border-radius: 4px; }
.scale { display: flex; justify-content: space-between; color: var(--muted); font-size: .8rem; font-variant-numeric: tabular-nums; }
.gap { border: 2px dashed var(--damaged); border-radius: 4px; padding: .3rem .8rem; margin: .8rem 0; font-size: .92rem; }
.fill-intact { fill: var(--intact); } .fill-recoverable { fill: url(#dots); } .fill-damaged { fill: url(#hatch); }
.fill-preallocated, .fill-other { fill: var(--other); } .fill-missing { fill: none; stroke: var(--damaged); stroke-width: 2;
  stroke-dasharray: 4 3; }
.ink-damaged { fill: var(--damaged); } .ink-recoverable { fill: var(--recoverable); } .line-card { stroke: var(--card); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: 0; margin: .6rem 0; font-size: .92rem; }
.legend svg { width: 22px; height: 14px; vertical-align: -2px; margin-right: .4rem; border-radius: 3px; }
.rows { margin: .8rem 0; font-size: .9rem; }
.row { display: grid; grid-template: "name bar value" / minmax(6rem, 17rem) 1fr 6.5rem; gap: .1rem .9rem; margin: .35rem 0; }
.row { align-items: center; }
.row > * { min-width: 0; }
.row > .bar, .row > .scale { grid-area: bar; }
.row .name { grid-area: name; overflow-wrap: anywhere; }
.row .bar { height: 18px; border-radius: 3px; }
.row .value { grid-area: value; text-align: right; font-variant-numeric: tabular-nums; color: var(--muted); white-space: nowrap; }
pre .line { display: block; padding-left: 1.6rem; text-indent: -1.6rem; margin: .15rem 0; }
pre .word { text-indent: 0; display: inline-block; max-width: 100%; vertical-align: top; }
@media (max-width: 48rem) { .tiles { grid-template-columns: repeat(2, 1fr); } }
@media (max-width: 36rem) {
  .row { grid-template: "name value" "bar bar" / 1fr max-content; margin-bottom: .7rem; }
  dl.facts { grid-template-columns: 1fr; } dl.facts dd { margin-bottom: .5rem; }
}
@media print {
  :root { --page: #fff; --card: #fff; --sunk: #f2f2f2; --line: #bbb; --text: #000; --muted: #444; --link: #000;
    --intact: #9cc7ab; --recoverable: #2f6fd0; --damaged: #b3261e; --other: #bbb; --bad-text: #7c140c; --warn-text: #5f3a00;
  --good-text: #14502b;
    --info-text: #203c66; --bad-back: #fff; --warn-back: #fff; --good-back: #fff; --info-back: #fff; }
  html { font-size: 10pt; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  nav, .skip { display: none; }
  section { border: 0; border-top: 1px solid #999; border-radius: 0; padding: .8rem 0; break-inside: auto; }
  main, header.top, footer { max-width: none; padding: 0; }
  figure, tr, .gap, pre { break-inside: avoid; }
  h2, h3, summary { break-after: avoid; }
  thead { display: table-header-group; }
  .scroll { overflow: visible; }
  td.wide, td.hash { min-width: 0; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
}
@media (forced-colors: active) { .fill-intact { fill: Canvas; stroke: CanvasText; } .fill-damaged, .ink-damaged { fill: CanvasText; } }
"""
