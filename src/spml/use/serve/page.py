"""The web page of `spml serve`: a tab for one picture, a tab for many."""

from __future__ import annotations

import base64
import binascii
import json
from html import escape
from typing import Any

import gradio as gr
import numpy as np

from spml.data.names import OF_PREDICTIONS
from spml.errors import UserError
from spml.use.predict.writers import columns
from spml.use.serve import html as html
from spml.use.serve.html import CSS
from spml.use.serve.tagger import Seen, Tagger

__all__ = ["CSS", "page", "theme"]

DIGITS = 3  # of a slider's threshold; until moved, the model's own applies in full precision
SLIDERS = 30  # up to this many classes have a slider each; above it, a list selects the class
SYSTEM = ["system-ui", "sans-serif"]  # no font is downloaded


def theme() -> Any:
    """Gradio's default theme with system fonts."""
    return gr.themes.Default(
        primary_hue="emerald", font=SYSTEM, font_mono=["ui-monospace", "monospace"]
    )


def page(tagger: Tagger) -> Any:
    """Build the page, with its events bound to the model."""
    with gr.Blocks(title=f"spml: {tagger.name}", analytics_enabled=False) as blocks:
        gr.HTML(f"<h1>{escape(tagger.name)}</h1><p class='spml-note'>{_about(tagger)}</p>")
        with gr.Tab("One picture"):
            _OnePicture(tagger)
        with gr.Tab("Many pictures"):
            _many(tagger)
    blocks.queue(api_open=False, max_size=64)
    return blocks


def _about(tagger: Tagger) -> str:
    info = tagger.info
    state = "calibrated" if info.calibration is not None else "not calibrated"
    return escape(f"{len(info.classes)} classes, {info.backbone}; probabilities are {state}")


def _drop(tagger: Tagger, script: str, title: str, many: bool) -> Any:
    limits = tagger.limits
    most = f"{limits.bytes / 1e6:g} MB and {limits.pixels / 1e6:g} megapixels"
    hint = f"JPEG, PNG, WebP, GIF, BMP, TIFF; up to {most}"
    area = html.DROP.format(many="multiple" if many else "", title=title, hint=hint)
    constants = f"const LIMIT = {limits.bytes}, MOST = {html.BATCH};"
    return gr.HTML(html_template=area, js_on_load=constants + script)


class _OnePicture:
    """The first tab: its components and their events."""

    def __init__(self, tagger: Tagger) -> None:
        self.tagger, self.classes = tagger, tagger.info.classes
        own = tagger.info.thresholds
        seen, cuts = gr.State(None), gr.State(list(own))
        with gr.Row():
            with gr.Column(scale=5):
                drop = _drop(
                    tagger, html.ONE, "Drop a picture here, or click to choose one", many=False
                )
                chosen = gr.Dropdown(
                    list(self.classes), label="Map of class", value=self.classes[0]
                )
                shown = gr.HTML()
            with gr.Column(scale=4):
                scores = gr.HTML("<p class='spml-note'>No picture yet.</p>", js_on_load=html.PICK)
                shift = gr.Slider(
                    -1, 1, 0, step=0.01, label="Move all thresholds by", elem_id="spml-shift"
                )
                few = len(self.classes) <= SLIDERS
                with gr.Accordion("Threshold of each class", open=False):
                    sliders = self._sliders(own, few)
                reset = gr.Button("Back to the thresholds of the model", size="sm")
        drop.submit(
            self.see, [cuts, shift], [seen, scores, shown, chosen], api_visibility="private"
        )
        chosen.input(
            self.heat, [seen, chosen], [shown], api_visibility="private", show_progress="hidden"
        )
        scores.select(
            self.pick, [seen], [chosen, shown], api_visibility="private", show_progress="hidden"
        )
        how: dict[str, Any] = {
            "api_visibility": "private",
            "show_progress": "hidden",
            "trigger_mode": "always_last",
        }
        shift.input(self.bars, [seen, cuts, shift], [scores], **how)
        if few:
            for column, slider in enumerate(sliders):
                slider.input(self.mover(column), [seen, cuts, shift, slider], [cuts, scores], **how)
        else:
            which, slider = sliders
            which.input(self.cut_of, [cuts, which], [slider], **how)
            slider.input(self.move, [seen, cuts, shift, which, slider], [cuts, scores], **how)
        back = [cuts, shift, *(sliders if few else sliders[1:]), scores]
        first = [round(cut, DIGITS) for cut in (own if few else own[:1])]
        reset.click(
            lambda s: (list(own), 0, *first, self.bars(s, list(own), 0)),
            [seen],
            back,
            api_visibility="private",
        )

    def _sliders(self, own: list[float], few: bool) -> list[Any]:
        if few:
            return [_slider(name, cut) for name, cut in zip(self.classes, own, strict=True)]
        which = gr.Dropdown(list(self.classes), label="Class", value=self.classes[0])
        return [which, _slider("Its threshold", own[0])]

    def see(self, cuts: list[float], shift: float, event: gr.EventData) -> tuple[Any, ...]:
        """Score the picture that the browser sent."""
        sent = _sent(event)
        name, data = str(sent.get("name") or "picture"), sent.get("data")
        try:
            if not isinstance(data, str):
                raise UserError(
                    f"{name}: above {self.tagger.limits.bytes / 1e6:g} MB; send a smaller file"
                )
            seen = self.tagger.see(base64.b64decode(data, validate=True), name)
        except (UserError, binascii.Error) as error:
            return None, html.problem(str(error)), "", gr.skip()
        first = self.classes[int(np.argmax(seen.probabilities))]
        return seen, self.bars(seen, cuts, shift), self.heat(seen, first), first

    def bars(self, seen: Seen | None, cuts: list[float], shift: float) -> str:
        """Draw the classes against their thresholds."""
        if seen is None:
            return "<p class='spml-note'>No picture yet.</p>"
        moved = [min(max(cut + shift, 0.0), 1.0) for cut in cuts]
        tagged = self.tagger.tagged(seen, moved)
        return html.bars(self.classes, seen.probabilities.tolist(), moved, tagged)

    def heat(self, seen: Seen | None, name: str) -> str:
        """Draw the map of a class."""
        if seen is None or name not in self.classes:
            return ""
        heat = self.tagger.heat(seen, self.classes.index(name))
        return html.pictures(self.tagger.view(seen), heat, name, self.tagger.meaning())

    def pick(self, seen: Seen | None, event: gr.EventData) -> tuple[Any, Any]:
        """Show the map of the class that was clicked."""
        column = _sent(event).get("column")
        if seen is None or not isinstance(column, int) or not 0 <= column < len(self.classes):
            return gr.skip(), gr.skip()
        return self.classes[column], self.heat(seen, self.classes[column])

    def mover(self, column: int) -> Any:
        """Return the event handler of one class's slider."""
        return lambda seen, cuts, shift, value: self.move(
            seen, cuts, shift, self.classes[column], value
        )

    def move(
        self, seen: Seen | None, cuts: list[float], shift: float, name: str, value: float
    ) -> tuple[Any, str]:
        """Set the threshold of a class."""
        cuts = [
            float(value) if other == name else cut
            for other, cut in zip(self.classes, cuts, strict=True)
        ]
        return cuts, self.bars(seen, cuts, shift)

    def cut_of(self, cuts: list[float], name: str) -> float:
        """The threshold of a class, as its slider shows it."""
        return round(cuts[self.classes.index(name)], DIGITS)


def _slider(label: str, cut: float) -> Any:
    return gr.Slider(0, 1, round(cut, DIGITS), step=10**-DIGITS, label=label)


def _many(tagger: Tagger) -> None:
    drop = _drop(tagger, html.MANY, "Drop pictures here, or click to choose them", many=True)
    results = gr.HTML()

    def show(event: gr.EventData) -> str:
        try:
            rows = json.loads(_sent(event)["rows"])
            return _table(
                tagger, [(str(r["name"]), r["probabilities"], r["tags"], r["error"]) for r in rows]
            )
        except (KeyError, TypeError, ValueError):
            return html.problem("the answer of the server could not be read; try again")

    drop.submit(show, None, [results], api_visibility="private")


def _table(
    tagger: Tagger, rows: list[tuple[str, list[float] | None, list[str], str | None]]
) -> str:
    """Table of the endpoint's answers.

    The tags are its own: its probabilities are rounded, possibly across a threshold.
    """
    shown: list[tuple[str, list[str], str | None]] = []
    lines: list[list[str]] = []
    for name, probabilities, tags, error in rows:
        if probabilities is None:
            shown.append((name, [], error or "it could not be read"))
            continue
        shown.append((name, tags, None))
        # in the order in which spml predict writes them
        in_order = [tag for tag in tagger.info.classes if tag in tags]
        lines.append([name, "|".join(in_order), *(f"{float(p):.6f}" for p in probabilities)])
    link = html.csv_link([*OF_PREDICTIONS, *columns(tagger.info.classes)], lines) if lines else ""
    return html.table(shown, link)


def _sent(event: gr.EventData) -> dict[str, Any]:
    """The data that the browser sent with an event."""
    data = event._data
    return data if isinstance(data, dict) else {}
