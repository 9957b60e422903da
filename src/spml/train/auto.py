"""`--method auto`: a race of methods that observed labels decide, and the winner's run.

Two candidates train to the end from the same initial weights. The others train on a short, complete
schedule, and the best of them trains to the end as well. The three are compared by
`spml.metrics.selection` on the validation rows, with the numbers of positives that they estimate
together; the files of the winner become those of the run. No unobserved label is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spml.data import Experiment
from spml.data.images.cache import Cache
from spml.errors import Interruption, UserError
from spml.keyed import key
from spml.metrics.selection import POSITIVES, estimated_positives, precisions
from spml.runs import names, record
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from spml.runs.settings import Settings
from spml.train import fitting
from spml.train.device import make_fabric
from spml.train.display import Display
from spml.train.loggers import RunLogger
from spml.train.portfolio import Candidate, Entry, portfolio, table
from spml.train.resolve import AUTO, method_options, resolve

FEWEST = 50  # observed positives among the validation rows that a race needs
CERTAIN = 2.0  # standard errors by which a winner that is certain leads

Logits = npt.NDArray[np.float32]


def fit_auto(
    experiment: Experiment,
    settings: Settings,
    out: Path,
    *,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    extra_config: Mapping[str, Any],
    cache: Cache | None,
    logger: RunLogger | None,
) -> dict[str, Any]:
    """Choose a method by a race and train it into `out`; the arguments are those of `fit`."""
    settings = replace(settings, selection=_observed(settings))
    decided = None if overwrite else _decided(out)
    if decided is None:
        run = RunFolder(out)
        with run.claim, Display(quiet) as display:
            race = Race(experiment, settings, run, display, dict(extra_config), cache)
            decided = race.run(resume=resume, overwrite=overwrite)
        resume = True
    winner, entry = decided
    return fitting.fit(
        experiment,
        replace(settings, method=winner.method),
        out,
        options=winner.options,
        resume=resume,
        quiet=quiet,
        extra_config={**extra_config, names.RACE_ENTRY: entry},
        cache=cache,
        logger=logger,
    )


def _observed(settings: Settings) -> Any:
    if settings.selection == "complete":
        raise UserError(
            "--method auto chooses by observed labels alone; leave --selection out, "
            "or name a method"
        )
    return "observed"


def _decided(out: Path) -> tuple[Candidate, dict[str, Any]] | None:
    """Return the winner of a race that ended in this folder, and its entry of config.json."""
    run = Run(out)
    if not run.exists or names.RACE_ENTRY not in run.config:
        return None
    entry = run.config[names.RACE_ENTRY]
    return Candidate(entry["winner"], run.config["method"], run.config["options"]), entry


class Race:
    """A race in a run folder; a candidate that has finished is not trained again.

    Args:
        experiment: the data.
        settings: of the run, with `method` auto.
        folder: the run folder.
        display: prints lines.
        extra_config: more entries of config.json.
        cache: of decoded pictures, if several runs share one.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: Settings,
        folder: RunFolder,
        display: Display,
        extra_config: dict[str, Any],
        cache: Cache | None,
    ) -> None:
        self.experiment, self.folder, self.display = experiment, folder, display
        self.extra_config, self.cache = extra_config, cache
        self.entries = {one.name: Entry(one) for one in portfolio(POSITIVES)}
        first = next(iter(self.entries.values())).candidate
        self.settings = replace(settings, method=first.method, devices=1, nodes=1)
        self.resolved = resolve(self.settings, experiment)
        self.observed = experiment.validation_labels("observed")
        self.budget = settings.race_budget
        self.positives: float | None = None

    def run(self, *, resume: bool, overwrite: bool) -> tuple[Candidate, dict[str, Any]]:
        """Run the race; return the winner and the race's entry of config.json."""
        first = next(iter(self.entries.values())).candidate
        config = {**self._config(first), "method": AUTO, "options": {}, "side_information": {}}
        if not self.folder.check(config, resume=resume, overwrite=overwrite):
            fitting.build(self.experiment, self.resolved, first.options)  # refuses before writing
            self.folder.begin(config)
        try:
            with self._pictures():
                winner, reason = self._winner()
        except KeyboardInterrupt:
            raise Interruption from None
        return self._settle(winner, reason)

    def _winner(self) -> tuple[str, str]:
        """Train and compare the candidates; return the name of the winner, and why it won."""
        names_in_order = list(self.entries)
        safest, evidence = names_in_order[0], int((self.observed == 1).sum())
        if not self.budget:
            return safest, "the first of the portfolio, without a race"
        if evidence < FEWEST:
            few = f"{evidence} observed labels in the validation rows"
            return safest, f"{few} decide nothing: the safest candidate"

        finalists = min(1 + int(self.budget), len(self.entries))
        chosen = names_in_order[: finalists - 1]
        for name in chosen:
            self._train(name)
        if len(chosen) < finalists:
            if chosen:
                self._set_positives(chosen)
            chosen += self._screen(names_in_order[len(chosen) :], finalists - len(chosen))
        if len(chosen) == 1:
            return chosen[0], "the best of the short schedules"
        return self._compare(chosen)

    def _screen(self, rivals: list[str], places: int) -> list[str]:
        """Train the rivals on a short schedule, and the best of them to the end; return these.

        The schedule has as many epochs, and as large a share of the training rows, as the budget
        leaves.
        """
        left = (self.budget - int(self.budget)) * self.resolved.epochs
        epochs = max(1, int(left / len(rivals)))
        share = min(1.0, left / (epochs * len(rivals)))
        rows = self.experiment.train_rows
        count = max(2, int(share * len(rows)))
        some = np.random.default_rng(key(self.settings.seed, 0, 2)).permutation(rows)[:count]
        part = replace(self.experiment, train_rows=np.sort(some))
        for name in rivals:
            self._train(name, part, epochs, count / len(rows))
        counts, _ = self._counts(rivals)
        for name in rivals:
            entry = self.entries[name]
            entry.score = 100 * precisions(self._scores(name), self.observed, counts).score
        order = sorted(rivals, key=lambda name: -self._score(name))
        for name in order[places:]:
            behind = self._score(order[places - 1]) - self._score(name)
            self.entries[name].outcome = f"{behind:.1f} behind on the short schedule"
        for name in order[:places]:
            if self.budget >= 1:
                self._train(name)
        return order[:places]

    def _compare(self, finalists: list[str]) -> tuple[str, str]:
        """Compare the candidates that were trained to the end."""
        counts, self.positives = self._counts(finalists)
        by_name = {
            name: precisions(self._scores(name), self.observed, counts) for name in finalists
        }
        for name, one in by_name.items():
            self.entries[name].score = 100 * one.score
        order = sorted(finalists, key=lambda name: -self._score(name))
        winner = order[0]
        for name in order[1:]:
            lead, error = by_name[name].lead(by_name[winner])
            entry = self.entries[name]
            entry.lead, entry.error = 100 * lead, 100 * error
            entry.outcome = f"{-entry.lead:.1f} ± {entry.error:.1f} behind at the end"
        second = self.entries[order[1]]
        assert second.lead is not None and second.error is not None
        certain = -second.lead > CERTAIN * second.error
        how = "certain" if certain else "not certain: these observed labels cannot separate them"
        lead_text = f"{-second.lead:.1f} ± {second.error:.1f} ahead of {order[1]}"
        return winner, f"{lead_text}, {how}"

    def _train(
        self, name: str, part: Experiment | None = None, epochs: int | None = None, share: float = 1
    ) -> None:
        """Train a candidate to the end, or on a part of the rows for some epochs."""
        entry = self.entries[name]
        length = epochs or self.resolved.epochs
        path = self._path(name, short=part is not None)
        what = f"{epochs} of {self.resolved.epochs} epochs" if epochs else "to the end"
        self.display.line(f"race: {name}, {what}")
        fitting.fit(
            part or self.experiment,
            replace(self.settings, method=entry.candidate.method, epochs=length),
            path,
            options=entry.candidate.options,
            resume=True,
            quiet=True,
            extra_config=self.extra_config,
            cache=self.cache,
            validated_from=epochs or 0,
            tested=False,
        )
        entry.epochs, entry.share = length, share
        entry.cost += length * share
        self._write()

    def _counts(self, candidates: list[str]) -> tuple[npt.NDArray[np.float64], float]:
        """Estimate the number of positives of each validation row, and their mean."""
        counts = estimated_positives([self._scores(name) for name in candidates], self.observed)
        return counts, float(counts.mean())

    def _set_positives(self, candidates: list[str]) -> None:
        """Give the portfolio the mean number of positives that the candidates estimate."""
        _, self.positives = self._counts(candidates)
        for one in portfolio(self.positives):
            self.entries[one.name].candidate = one

    def _scores(self, name: str) -> Logits:
        """Return a candidate's logits of the validation rows, from its chosen epoch."""
        short = self._path(name, short=True)
        full = self._path(name, short=False)
        run = Run(full if (full / names.RESULT).exists() else short)
        logits = run.scores("val", run.require_result()["best_epoch"])
        if logits is None:
            raise UserError(f"{run.folder} has lost its scores; give --overwrite to race anew")
        return np.asarray(logits, np.float32)

    def _score(self, name: str) -> float:
        score = self.entries[name].score
        assert score is not None
        return score

    def _path(self, name: str, *, short: bool) -> Path:
        folder = name.replace(" ", "-") + ("-short" if short else "")
        return self.folder.path / names.RACE_FOLDER / folder

    def _config(self, candidate: Candidate) -> dict[str, Any]:
        """Return config.json of a candidate's run."""
        name, data = candidate.method, self.experiment
        options = method_options(name, data.name, candidate.options)
        method = fitting.make_method(data, name, options)
        resolved = replace(self.resolved, method=name)
        return record.config(data, resolved, options, method, self.extra_config)

    def _settle(self, winner: str, reason: str) -> tuple[Candidate, dict[str, Any]]:
        """Give the run folder the files of the winner; return it and its entry of config.json."""
        entry = self.entries[winner]
        entry.outcome = "winner"
        self._write(winner, reason)
        spent = sum(one.cost for one in self.entries.values())
        own = {
            "winner": winner,
            "reason": reason,
            "budget": self.budget,
            "epochs": spent,
            "positives_per_item": self.positives,
        }
        config = {**self._config(entry.candidate), names.RACE_ENTRY: own}
        self.folder.adopt(self._path(winner, short=False), config)
        for line in table(self.entries.values()):
            self.display.line(line)
        self.display.line(f"{winner} wins: {reason}")
        return entry.candidate, own

    def _write(self, winner: str | None = None, reason: str = "") -> None:
        """Write race.json."""
        full = self.resolved.epochs
        spent = sum(entry.cost for entry in self.entries.values())
        own = sum(entry.epochs for entry in self.entries.values() if entry.outcome == "winner")
        content = {
            "winner": winner,
            "reason": reason,
            "budget": self.budget,
            "epochs": full,
            "spent": (spent - own) / full,  # beside the winner's own training
            "positives_per_item": self.positives,
            "observed_labels": int((self.observed == 1).sum()),
            "candidates": [entry.as_record() for entry in self.entries.values()],
        }
        self.folder.write_race(content)

    @contextmanager
    def _pictures(self) -> Iterator[None]:
        """Open the decoded pictures once for all candidates."""
        if self.cache is not None or self.experiment.observed.x is not None:
            yield
            return
        device = make_fabric(self.resolved, unused=False).device
        self.cache = fitting.open_pictures(self.experiment, self.resolved, device, self.display)
        try:
            yield
        finally:
            if self.cache is not None:
                self.cache.close()
