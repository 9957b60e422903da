"""The race of `--method auto`: train candidates, compare them, keep the winner's files.

Two candidates train to the end from the same initial weights. The others train on a short, complete
schedule, and the best of them trains to the end as well. The three are compared by
`spml.metrics.selection` on the validation rows, with the numbers of positives that they estimate
together; the files of the winner become those of the run. With a large enough budget, all
candidates are cross-fitted instead. No unobserved label is read.
"""

from collections.abc import Iterator, Sequence
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
from spml.metrics.selection import POSITIVES, Precisions, estimated_positives, precisions
from spml.runs import names, record
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from spml.runs.settings import AUTO, Settings
from spml.train import fitting
from spml.train.device import make_fabric
from spml.train.display import Display
from spml.train.portfolio import Candidate, Entry, portfolio, table
from spml.train.repair import compare_data
from spml.train.resolve import method_options, resolve
from spml.train.side_by_side import Job, Rows, trainer

FEWEST = 50  # observed positives among the rows that decide a race
CERTAIN = 2.0  # a winner is certain if it leads by this many standard errors
FOLDS = 5  # of cross-fitting
TO_THE_END, SHORT = "", "-short"  # endings of a candidate's folders

Logits = npt.NDArray[np.float32]


def folder_of(out: Path, candidate: str, ending: str = TO_THE_END) -> Path:
    """Return the folder of a candidate's run in the run folder of a race."""
    return out / names.RACE_FOLDER / f"{candidate.replace(' ', '-')}{ending}"


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
        self.first = next(iter(self.entries.values())).candidate
        self.devices = settings.devices
        self.settings = replace(settings, method=self.first.method, devices=1, nodes=1)
        self.resolved = resolve(self.settings, experiment)
        self.observed = experiment.validation_labels("observed")
        self.evidence = int((self.observed == 1).sum())  # observed positives that decide
        self.budget = settings.race_budget
        self.positives: float | None = None

    def run(
        self, *, resume: bool, overwrite: bool, accepted: bool
    ) -> tuple[Candidate, dict[str, Any]]:
        """Run the race; return the winner and the race's entry of config.json."""
        config = {**self._config(self.first), "method": AUTO, "options": {}, "side_information": {}}
        if self.folder.check(config, resume=resume, overwrite=overwrite, accepted=accepted):
            for note in compare_data(self.folder, config, self.experiment, accepted=accepted):
                self.display.line(note)
        else:
            # refuses before anything is written
            fitting.build(self.experiment, self.resolved, self.first.options)
            self.folder.begin(config)
        try:
            with (
                self._pictures(),
                trainer(self.experiment, self.devices, self.cache, self.extra_config) as self.train,
            ):
                self.folder.write_contents(self.experiment, self.cache)
                winner, reason = self._winner()
        except KeyboardInterrupt:
            raise Interruption from None
        return self._settle(winner, reason)

    def _winner(self) -> tuple[str, str]:
        """Train and compare the candidates; return the name of the winner, and why it won."""
        names_in_order = list(self.entries)
        safest, cross_fitted = names_in_order[0], self.budget >= FOLDS * len(names_in_order)
        if not self.budget:
            return safest, "the first of the portfolio, without a race"
        if cross_fitted:
            labels = self.experiment.observed.rows(self.experiment.train_rows)
            self.evidence += int((labels == 1).sum())
        if self.evidence < FEWEST:
            return safest, f"{self.evidence} observed labels decide nothing: the safest candidate"
        if cross_fitted:
            return self._cross_fit()

        finalists = min(1 + int(self.budget), len(self.entries))
        chosen = names_in_order[: finalists - 1]
        self._train(chosen)
        if len(chosen) < finalists:
            if chosen:
                _, self.positives = self._ranked(chosen, TO_THE_END)
                for one in portfolio(self.positives):
                    self.entries[one.name].candidate = one
            chosen += self._screen(names_in_order[len(chosen) :], finalists - len(chosen))
        if len(chosen) == 1:
            return chosen[0], "the best of the short schedules"
        ranked, self.positives = self._ranked(chosen, TO_THE_END)
        return self._best({name: [one] for name, one in ranked.items()}, "at the end")

    def _screen(self, rivals: list[str], num_best: int) -> list[str]:
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
        self._train(rivals, np.sort(some), epochs=epochs, ending=SHORT)
        ranked, _ = self._ranked(rivals, SHORT)
        for name in rivals:
            self.entries[name].score = 100 * ranked[name].score
        order = sorted(rivals, key=lambda name: -self._score(name))
        for name in order[num_best:]:
            behind = self._score(order[num_best - 1]) - self._score(name)
            self.entries[name].outcome = f"{behind:.1f} behind on the short schedule"
        if self.budget >= 1:
            self._train(order[:num_best])
        return order[:num_best]

    def _cross_fit(self) -> tuple[str, str]:
        """Compare candidates on all rows, each scored by models that were not trained on it."""
        every, val = self.experiment.train_rows, self.experiment.val_rows
        rows = np.sort(np.concatenate([every, val]))
        order = np.random.default_rng(key(self.settings.seed, 0, 3)).permutation(rows)
        parts: dict[str, list[Precisions]] = {name: [] for name in self.entries}
        means = []
        for number, fold in enumerate(np.array_split(order, FOLDS)):
            held, ending = np.sort(fold), f"-fold{number}"
            rest = order[~np.isin(order, fold)][: len(every)]  # costs no more than a usual run
            self._train(list(self.entries), np.sort(rest), held, ending=ending)
            ranked, mean = self._ranked(list(self.entries), ending, held)
            means.append(mean)
            for name, one in ranked.items():
                parts[name].append(one)
        self.positives = float(np.mean(means))
        return self._best(parts, f"in {FOLDS} folds")

    def _best(self, parts: dict[str, list[Precisions]], where: str) -> tuple[str, str]:
        """Return the best candidate over the parts of the rows that were scored, and its lead."""
        for name, ranked in parts.items():
            self.entries[name].score = 100 * float(np.mean([one.score for one in ranked]))
        order = sorted(parts, key=lambda name: -self._score(name))
        winner = order[0]
        for name in order[1:]:
            pairs = zip(parts[name], parts[winner], strict=True)
            leads, errors = np.array([one.lead(best) for one, best in pairs]).T
            entry = self.entries[name]
            entry.lead = 100 * float(leads.mean())
            entry.error = 100 * float(np.sqrt((errors**2).sum())) / len(errors)
            entry.outcome = f"{-entry.lead:.1f} ± {entry.error:.1f} behind {where}"
        second = self.entries[order[1]]
        assert second.lead is not None and second.error is not None
        certain = -second.lead > CERTAIN * second.error
        how = "certain" if certain else "not certain: these observed labels cannot separate them"
        lead_text = f"{-second.lead:.1f} ± {second.error:.1f} ahead of {order[1]}"
        return winner, f"{lead_text}, {how}"

    def _train(
        self,
        chosen: Sequence[str],
        rows: Rows | None = None,
        held: Rows | None = None,
        epochs: int | None = None,
        ending: str = TO_THE_END,
    ) -> None:
        """Train candidates, to the end unless epochs are given, on all training rows or others."""
        length = epochs or self.resolved.epochs
        every = self.experiment.train_rows
        some = every if rows is None else rows
        val = self.experiment.val_rows if held is None else held
        jobs = []
        for name in chosen:
            candidate = self.entries[name].candidate
            settings = replace(self.settings, method=candidate.method, epochs=length)
            path = folder_of(self.folder.path, name, ending)
            jobs.append(Job(settings, candidate.options, path, some, val, epochs or 0))
        what = f"{epochs} of {self.resolved.epochs} epochs" if epochs else "to the end"
        on = "" if held is None else f" without fold {ending[-1]}"
        how = "" if self.devices == 1 else f", on {self.devices} devices"
        self.display.line(f"race: {', '.join(chosen)}: {what}{on}{how}")
        for name, _ in zip(chosen, self.train(jobs), strict=True):
            entry = self.entries[name]
            entry.epochs, entry.share = length, len(some) / len(every)
            entry.cost += length * entry.share
            self._write()

    def _ranked(
        self, chosen: Sequence[str], ending: str, held: Rows | None = None
    ) -> tuple[dict[str, Precisions], float]:
        """Rank the rows held out by each candidate; return also the mean number of positives."""
        observed = self.observed if held is None else self.experiment.observed.rows(held)
        logits = {name: self._scores(name, ending) for name in chosen}
        counts = estimated_positives(list(logits.values()), observed)
        ranked = {name: precisions(one, observed, counts) for name, one in logits.items()}
        return ranked, float(counts.mean())

    def _scores(self, name: str, ending: str) -> Logits:
        """Return a candidate's logits of the rows held out, from its chosen epoch."""
        run = Run(folder_of(self.folder.path, name, ending))
        logits = run.scores("val", run.require_result()["best_epoch"])
        if logits is None:
            raise UserError(f"{run.folder} has lost its scores; give --overwrite to race anew")
        return np.asarray(logits, np.float32)

    def _score(self, name: str) -> float:
        score = self.entries[name].score
        assert score is not None
        return score

    def _config(self, candidate: Candidate) -> dict[str, Any]:
        """Return config.json of a candidate's run."""
        name, data = candidate.method, self.experiment
        options = method_options(name, data, candidate.options)
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
        self.folder.adopt(folder_of(self.folder.path, winner), config)
        for line in table(self.entries.values()):
            self.display.line(line)
        self.display.line(f"{winner} wins: {reason}")
        return entry.candidate, own

    def _write(self, winner: str | None = None, reason: str = "") -> None:
        """Write race.json."""
        full = self.resolved.epochs
        spent = sum(entry.cost for entry in self.entries.values())
        trained = winner is not None and Run(folder_of(self.folder.path, winner)).finished
        own = full if trained else 0
        content = {
            "winner": winner,
            "reason": reason,
            "budget": self.budget,
            "epochs": full,
            "spent": (spent - own) / full,  # beside the winner's own training
            "positives_per_item": self.positives,
            "observed_labels": self.evidence,
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
