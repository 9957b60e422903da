"""HTML of the web page: the area to drop pictures on, bars and tables."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from html import escape
from typing import Any

BELOW = 10  # classes below their thresholds that are shown
BATCH = 200  # pictures that the batch tab takes at a time

DROP = """<label class="spml-drop" tabindex="0"><input type="file" accept="image/*" {many} hidden>
<b>{title}</b><span class="spml-note">{hint}</span></label>"""

# `trigger` sends its second argument to the server
DRAG = """
const note = element.querySelector('.spml-note'), hint = note.textContent;
element.addEventListener('dragover', e => {
  e.preventDefault(); element.classList.add('spml-over');
});
element.addEventListener('dragleave', () => element.classList.remove('spml-over'));
element.addEventListener('drop', e => {
  e.preventDefault(); element.classList.remove('spml-over'); take([...e.dataTransfer.files]);
});
element.addEventListener('keydown', e => {
  if (e.key === 'Enter' || e.key === ' ') {
    e.preventDefault(); element.querySelector('input').click();
  }
});
element.addEventListener('change', e => {
  const files = [...e.target.files]; e.target.value = ''; take(files);
});
"""
ONE = (
    DRAG
    + """
function take(files) {
  if (!files.length) return;
  const file = files[0], reader = new FileReader();
  if (file.size > LIMIT) { trigger('submit', {name: file.name, data: null}); return; }
  reader.onload = () =>
    trigger('submit', {name: file.name, data: reader.result.split(',')[1] || ''});
  reader.readAsDataURL(file);
}
"""
)
MANY = (
    DRAG
    + """
async function take(files) {
  const rows = [];
  for (const file of files.slice(0, MOST)) {
    note.textContent = `${rows.length + 1} of ${Math.min(files.length, MOST)}: ${file.name}`;
    let answer;
    try {
      const form = new FormData();
      form.append('file', file);
      answer = file.size > LIMIT ? {error: file.name + ': above the limit of file size'}
        : await (await fetch('api/predict', {method: 'POST', body: form})).json();
    } catch (error) { answer = {error: file.name + ': ' + error}; }
    rows.push({name: file.name, probabilities: answer.probabilities || null,
      tags: answer.tags || [], error: answer.error || null});
  }
  const over = files.length - rows.length;
  note.textContent = over ? `${over} left out: at most ${MOST} at a time` : hint;
  if (rows.length) trigger('submit', {rows: JSON.stringify(rows)});
}
"""
)
PICK = """
element.addEventListener('click', e => {
  const row = e.target.closest('[data-class]');
  if (row) trigger('select', {column: Number(row.dataset.class)});
});
"""
CSS = """
.spml-drop { display: flex; flex-direction: column; align-items: center; gap: 4px;
  padding: 22px 12px; cursor: pointer; border-radius: 10px; text-align: center;
  border: 2px dashed var(--border-color-primary); }
.spml-drop:hover, .spml-drop:focus, .spml-over .spml-drop { border-color: var(--color-accent); }
.spml-note { color: var(--body-text-color); opacity: 0.7; font-size: 0.9em; }
.spml-rows { display: grid; gap: 5px 12px;
  grid-template-columns: minmax(90px, max-content) 1fr 48px; }
.spml-row { display: contents; cursor: pointer; }
.spml-row b { font-weight: 600; overflow-wrap: anywhere; }
.spml-track { position: relative; background: var(--border-color-primary); border-radius: 4px;
  height: 18px; align-self: center; }
.spml-fill { position: absolute; inset: 0 auto 0 0; border-radius: 4px; background: #1a7f5a; }
.spml-cut { position: absolute; top: -3px; bottom: -3px; width: 2px;
  background: var(--body-text-color); }
.spml-off b, .spml-off span { opacity: 0.65; font-weight: 400; }
.spml-off .spml-fill { background: #8c959f; }
.spml-row span { font-variant-numeric: tabular-nums; text-align: right; }
.spml-head { margin: 0 0 8px; }
.spml-head small { display: block; opacity: 0.7; }
.spml-pictures { display: flex; gap: 12px; flex-wrap: wrap; align-items: flex-start; }
.spml-pictures img { min-width: 0; width: 0; flex: 1 1 200px; border-radius: 8px; }
.spml-pictures img + img { flex-grow: 1.6; }
.spml-error { padding: 10px 14px; border-radius: 8px; background: #ffebe9; color: #82071e;
  overflow-wrap: anywhere; }
.spml-table { width: 100%; border-collapse: collapse; }
.spml-table, .spml-table tr { border: 0 !important; }
.spml-table td:first-child { min-width: 10.5em; }
.spml-table td, .spml-table th { text-align: left; padding: 6px 10px; overflow-wrap: anywhere;
  border: 0 !important; border-bottom: 1px solid var(--border-color-primary) !important; }
.spml-tag { display: inline-block; padding: 1px 9px; margin: 2px 4px 2px 0; border-radius: 10px;
  background: #1a7f5a; color: white; }
.spml-save { display: inline-block; margin: 12px 0; padding: 7px 14px; border-radius: 8px;
  background: #1a7f5a; color: white !important; text-decoration: none !important; }
"""


def bars(
    classes: Sequence[str],
    probabilities: Sequence[float],
    thresholds: Sequence[float],
    tagged: Sequence[bool],
) -> str:
    """Tagged classes, then the most probable others; each with its threshold as a line."""
    order = sorted(range(len(classes)), key=lambda i: -probabilities[i])
    present = [i for i in order if tagged[i]]
    below = [i for i in order if not tagged[i]][:BELOW]
    known = f"{len(present)} of {len(classes)} classes reach their thresholds"
    head = (
        f'<p class="spml-head"><b id="spml-count">{known}</b>'
        "<small>click a class for its map</small></p>"
    )

    def row(i: int, kind: str) -> str:
        fill, cut = 100 * probabilities[i], min(100 * thresholds[i], 99.6)
        return (
            f'<div class="spml-row {kind}" data-class="{i}"><b>{escape(classes[i])}</b>'
            f'<div class="spml-track"><div class="spml-fill" style="width:{fill:.1f}%"></div>'
            f'<i class="spml-cut" style="left:{cut:.1f}%"></i>'
            f"</div><span>{probabilities[i]:.2f}</span></div>"
        )

    rows = "".join([*(row(i, "spml-on") for i in present), *(row(i, "spml-off") for i in below)])
    return f'{head}<div class="spml-rows">{rows}</div>'


def pictures(view: str, heat: str, name: str, meaning: str) -> str:
    """The picture and a class's map, side by side."""
    shown = (
        f'<img src="{view}" alt="the picture">'
        f'<img id="spml-heat" src="{heat}" alt="map of {escape(name)}">'
    )
    return (
        f'<div class="spml-pictures">{shown}</div><p class="spml-note">Map: {escape(meaning)}.</p>'
    )


def problem(text: str) -> str:
    """An error message."""
    return f'<div class="spml-error">{escape(text)}</div>'


def table(rows: Sequence[tuple[str, list[str], str | None]], link: str) -> str:
    """Table of pictures with their tags or errors, and the link to the CSV."""
    cells = []
    for name, tags, error in rows:
        chips = "".join(f'<span class="spml-tag">{escape(tag)}</span>' for tag in tags)
        none = '<span class="spml-note">no class reaches its threshold</span>'
        outcome = problem(error) if error else chips or none
        cells.append(f"<tr><td>{escape(name)}</td><td>{outcome}</td></tr>")
    head = "<tr><th>picture</th><th>tags</th></tr>"
    return f'{link}<table class="spml-table">{head}{"".join(cells)}</table>'


def csv_link(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A link that holds the CSV itself."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    data = base64.b64encode(text.getvalue().encode()).decode()
    address = f"data:text/csv;base64,{data}"
    return f'<a class="spml-save" download="tags.csv" href="{address}">Save as CSV</a>'
