"""The style sheet of the page."""

from manyview.report.plots import DIFFERENT, RANDOM, TRAINED

STYLE = (
    f":root {{ --trained: {TRAINED}; --random: {RANDOM}; --different: {DIFFERENT}; }}"
    + """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --ink: #1b2027; --soft: #5b6572; --line: #dde1e7;
  --code: #eef0f4; --good: #1a8a4a; --look: #9a6700; --bad: #c93c37; --warn: #fdf3dc; --accent: #1d5fc4; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --card: #1c2027; --ink: #e4e8ee; --soft: #9aa4b2;
  --line: #343b46; --code: #262c35; --good: #4cc27d; --look: #e0b050; --bad: #f0766f; --warn: #3a3018;
  --accent: #7fb0f5; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, sans-serif; }
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 36px; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 12px; letter-spacing: -0.01em; }
h3 { font-size: 1rem; margin: 20px 0 6px; }
p { margin: 0 0 12px; max-width: 78ch; }
a { color: var(--accent); }
.soft, figcaption, caption, .note { color: var(--soft); }
.note { font-size: 0.9rem; }
.verdict { font-size: 1.1rem; margin: 14px 0 0; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 18px 0 0; font-size: 0.9rem; }
nav a { text-decoration: none; }
nav a:hover, nav a:focus { text-decoration: underline; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px;
  margin: 18px 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; margin: 22px 0 0; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; }
.figure b { display: block; font-size: 1.5rem; font-weight: 650; line-height: 1.35; white-space: nowrap;
  letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.figure span { display: block; font-size: 0.85rem; color: var(--soft); }
p.warning { background: var(--warn); border-radius: 8px; padding: 10px 14px; margin: 16px 0 0; max-width: none; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 18px 28px; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
figure.wide { max-width: 600px; margin-bottom: 16px; }
.scroll { overflow-x: auto; margin: 0 0 12px; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 0.85rem; padding: 0 0 6px; }
th, td { text-align: left; vertical-align: top; padding: 6px 18px 6px 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; white-space: nowrap; }
tbody th { font-weight: 550; }
table.results { width: 100%; max-width: 780px; }
table.results td, table.results tbody th { white-space: nowrap; }
.bar { display: block; height: 6px; border-radius: 3px; margin-top: 4px; min-width: 120px; background: var(--code); }
.bar i { display: block; height: 100%; border-radius: 3px; background: var(--random); }
.bar.trained i { background: var(--trained); }
.groups { columns: 3 290px; column-gap: 32px; }
.groups .scroll { break-inside: avoid; margin-bottom: 16px; }
.groups table { width: 100%; }
.groups caption { font-size: 0.95rem; font-weight: 600; color: var(--ink); }
.groups tbody th { width: 42%; font-weight: 400; color: var(--soft); overflow-wrap: anywhere; }
.groups td { overflow-wrap: anywhere; }
.strip { display: grid; gap: 6px; margin: 0 0 14px; }
.strip figure { min-width: 0; font-size: 0.78rem; line-height: 1.35; }
.strip img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain;
  border-radius: 6px; background: var(--code); }
.strip img.pixels { image-rendering: pixelated; }
.strip .first + * { grid-column: 3; }  /* column 2 is a gap that sets the first apart */
.strip figcaption { padding-top: 3px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.findings { list-style: none; margin: 0; padding: 0; }
.findings li { display: grid; grid-template-columns: 84px 190px 1fr; gap: 16px; align-items: start; padding: 8px 0;
  border-top: 1px solid var(--line); }
.findings li > b { border: 1px solid currentColor; border-radius: 999px; padding: 1px 0; text-align: center;
  font-size: 0.82rem; font-weight: 600; color: var(--soft); }
.findings .good > b { color: var(--good); }
.findings .warning > b { color: var(--look); }
.findings .problem > b { color: var(--bad); }
.findings strong { font-weight: 550; }
.findings span { display: block; }
.findings .advice { color: var(--soft); }
.versus { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 5fr) minmax(0, 5fr); gap: 0 22px; }
.versus h3 { margin: 8px 0 6px; overflow-wrap: anywhere; }
.neighbours img { border: 3px solid transparent; }
.neighbours .same img { border-color: var(--good); }
.neighbours .other img { border-color: var(--bad); }
pre, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: 0.88em; }
code { background: var(--code); border-radius: 4px; padding: 1px 5px; overflow-wrap: anywhere; }
pre { background: var(--code); border-radius: 8px; padding: 12px 14px; overflow-x: auto; margin: 0 0 14px; }
footer { padding-bottom: 40px; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 600px) {
  main, header, footer { padding-left: 12px; padding-right: 12px; }
  section { padding: 16px 14px; }
  h1 { font-size: 1.55rem; }
  .figures { grid-template-columns: 1fr 1fr; gap: 10px; }
  .figure { padding: 10px 12px; }
  .figure b { font-size: 1.25rem; }
  .strip { gap: 3px; }
  .findings li { grid-template-columns: 80px 1fr; gap: 2px 10px; }
  .findings div { grid-column: 1 / 3; }
  .versus { grid-template-columns: minmax(0, 1fr); }
  .versus > .strip:first-child { max-width: 25%; }
  .strip figcaption { font-size: 0.66rem; }
  .neighbours img { border-width: 2px; }
  .interval { display: block; font-size: 0.8rem; }
  .bar { min-width: 60px; }
  th, td { padding-right: 12px; }
}
@media print { body { background: #fff; } section, .figure { break-inside: avoid; } nav { display: none; } }
"""
)
