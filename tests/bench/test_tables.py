"""Rows from records: means, thirds, comparisons, quoted figures; and four formats."""

import csv
import io
import json
import shutil
import statistics

import numpy as np
import pytest

from spml.bench.formats import FORMATS, cells, latex, markdown, page
from spml.bench.plan import Case, Plan
from spml.bench.published import DOUBTS, TABLE_2, other_quotes, paper_quote
from spml.bench.record import as_text, condensed, read_collected, write_overview
from spml.bench.search import Grid
from spml.bench.store import RunStore
from spml.bench.tables import collected, table
from spml.errors import UserError
from spml.metrics.bootstrap import resampled_map
from tests.conftest import edit, stored

from .conftest import done


def test_the_figures_of_a_table_are_those_of_its_runs(job):
    plan, store = job.plans[0], job.store
    result = table(collected(plan, store.outcome), "gr")
    an, gr = result.rows
    runs = plan.finals(plan.cases[0], store.outcome)
    maps = [store.outcome(run.id)["result"]["test_map"] for run in runs]
    assert an.test.mean == pytest.approx(statistics.mean(maps))
    assert an.test.std == pytest.approx(statistics.stdev(maps))
    assert an.seeds == 2 and an.versus.seeds == 2 and gr.versus is None and result.against == "gr"
    assert an.versus.difference == pytest.approx(an.test.mean - gr.test.mean)
    assert an.versus.low < an.versus.difference < an.versus.high
    assert result.selection == "complete" and result.figure == "test mAP"


def test_the_table_is_the_same_from_its_file_alone(job, tmp_path):
    content = collected(job.plans[0], job.store.outcome)
    (tmp_path / "bench.json").write_text(as_text(content, "rows", "runs"), encoding="utf-8")
    again = read_collected(tmp_path / "bench.json")
    assert again == content
    for formatted in FORMATS.values():
        assert formatted(table(again, "gr")) == formatted(table(content, "gr"))
    assert (tmp_path / "bench.json").stat().st_size < 100_000


GIVE = r"give a bench\.json written by spml bench"


@pytest.mark.parametrize(
    ("name", "message"),
    [("other.json", r"not JSON \(.*"), ("gone.json", "no such file"), (".", "a folder")],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, message):
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(UserError, match=rf": {message}; {GIVE}"):
        read_collected(tmp_path / name)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content.clear(), r"is not a bench\.json"),
        (lambda content: content.update(rows="an"), r"is not a bench\.json"),
        (lambda content: content.update(runs=[]), r"is not a bench\.json"),
        (lambda content: content["rows"][1].pop("finals"), "row 2 lacks one of finals, "),
        (lambda content: content["runs"].update(one=3), "one: the result lacks val_map"),
    ],
)
def test_a_damaged_table_file_is_reported(job, tmp_path, spoil, message):
    content = json.loads(json.dumps(collected(job.plans[0], job.store.outcome)))
    spoil(content)
    (tmp_path / "bench.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"bench\.json.*{message}.*; {GIVE}"):
        read_collected(tmp_path / "bench.json")


def test_a_record_holds_the_figures_of_tables_without_scores_or_paths(job, scenes):
    run = job.runs()[0]
    record = condensed(job.store.run_folder(run), resamples=50)
    counts = (scenes.observed.labels[scenes.train_rows] == 1).sum(axis=0)
    assert record["observed_counts"] == counts.tolist()
    assert len(record["bootstrap"]["maps"]) == 50 and record["bootstrap"]["images"] == 64
    mean = np.mean(record["bootstrap"]["maps"])
    assert mean == pytest.approx(record["result"]["test_map"], abs=5)
    assert [line["epoch"] for line in record["history"]] == [0, 1] and record["versions"]["torch"]
    assert "root" not in record["config"] and "command" not in record["config"]
    written = stored(job.store.home / f"{run.id}.json")
    assert written["id"] == run.id and written["result"] == record["result"]


@pytest.mark.parametrize(
    ("weights", "name"),
    [("downloads/w.pth", "w.pth"), ("pretrained", "pretrained"), ("none", "none"), (None, None)],
)
def test_a_record_names_weights_without_their_folder(job, tmp_path, weights, name):
    folder = shutil.copytree(job.store.run_folder(job.runs()[0]), tmp_path / "run")
    edit(folder / "config.json", weights=weights)
    assert condensed(folder, resamples=0)["config"]["weights"] == name


@pytest.mark.parametrize(
    "lacking", ["scores/test.npz", "labels.npz", "observed.npz", "test labels", "resamples"]
)
def test_files_missing_from_a_run_are_missing_from_its_record(job, tmp_path, lacking):
    folder = shutil.copytree(job.store.run_folder(job.runs()[0]), tmp_path / "run")
    if lacking == "test labels":
        classes = np.load(folder / "labels.npz")["classes"]
        np.savez(folder / "labels.npz", classes=classes)
    elif lacking != "resamples":
        (folder / lacking).unlink()
    record = condensed(folder, resamples=0 if lacking == "resamples" else 3)
    missing = "observed_counts" if lacking == "observed.npz" else "bootstrap"
    assert {"bootstrap", "observed_counts"} - set(record) == {missing}


def small(labels, data="voc", known=None, **more):
    """A table with one run per label, from the given records."""
    cases = [Case(label, "gr", {"q3": number / 7}) for number, label in enumerate(labels)]
    plan = Plan("bench", data, tuple(cases), (0,))
    records = {}
    for number, run in enumerate(plan.runs(records.get)):
        records[run.id] = {"seed": 0, **(known[number] if known else done(test_map=40.0 + number))}
    return table(collected(plan, records.get), **more)


def notes_of(result, **options):
    return "\n".join(cells(result, **options).notes)


def quoted_heads(result, **options):
    return [head for head in cells(result, **options).header if "quoted" in head]


def test_thirds_go_by_observed_count():
    precisions = {f"c{number}": float(number) for number in range(7)}
    counts = [5, 70, 5, 40, 90, 20, 10]  # order: c4 c1 c3 | c5 c6 | c0 c2
    seven = done(result={"per_class_ap": precisions}, observed_counts=counts)
    two = done(result={"per_class_ap": {"a": 1.0, "b": 2.0}}, observed_counts=[1, 2])
    known = [seven, two, done(observed_counts=[1, 2, 3])]  # two classes, and no precisions
    rows = small(["a", "b", "c"], known=known).rows
    means = [{name: part.mean for name, part in row.thirds.items()} for row in rows]
    assert means[0] == {"head": pytest.approx(8 / 3), "middle": 5.5, "tail": 1.0}
    assert set(means[1].values()) == set(means[2].values()) == {None}


def test_runs_on_other_images_or_other_resamples_are_not_compared():
    def record(**bootstrap):
        return done(bootstrap={"seed": 1, "images": 9, "maps": [1.0, 2.0], **bootstrap})

    known = [record(), record(images=8), record(seed=2), record(maps=[0.0, 1.5]), done()]
    rows = small(["a", "b", "c", "d", "e"], known=known, against="a").rows
    assert [row.versus is None for row in rows] == [True, True, True, False, True]
    apart = small(["a", "e"], known=[record(), done()], against="a")
    assert "not compared with a: this needs runs of the same seeds" in notes_of(apart)
    alone = small(["a", "e"], known=[record(), {"error": "out of luck"}], against="a")
    assert "not compared" not in notes_of(alone)


def test_runs_are_compared_on_their_common_resamples():
    rng = np.random.default_rng(0)
    scores, truth = rng.normal(size=(30, 2)), np.where(rng.random((30, 2)) < 0.4, 1, -1)
    # the first resamples are the same
    assert (resampled_map(scores, truth, 5) == resampled_map(scores, truth, 9)[:5]).all()

    def record(*maps):
        return done(bootstrap={"seed": 1, "images": 9, "maps": [*maps]})

    rows = small(["a", "b"], known=[record(1.0, 2.0, 90.0), record(3.0, 5.0)], against="a").rows
    reach = 1.959964 * statistics.stdev([2.0, 3.0])
    assert (rows[1].versus.low, rows[1].versus.high) == (
        pytest.approx(-reach),
        pytest.approx(reach),
    )


def test_quoted_figures_stand_in_their_own_columns_and_doubtful_ones_are_marked():
    result = small(["an", "splc", "ll_ct", "ours"])
    elsewhere = [f"{name}, quoted, not run" for name in ("COCO", "NUS", "CUB")]
    assert quoted_heads(result) == ["VOC, quoted", *elsewhere, "quoted elsewhere"]
    shown, notes = cells(result), notes_of(result)
    by_label = {row[0]: dict(zip(shown.header, row, strict=True)) for row in shown.rows}
    assert by_label["an"]["VOC, quoted"] == "85.89 ± 0.38"
    assert by_label["splc"]["NUS, quoted, not run"].startswith("47.24 ± 0.17 [")
    assert by_label["ours"]["VOC, quoted"] == ""
    assert "SMILE" in notes and "not run here" in notes and "Table 2 unless" in notes
    assert "Table 3 unless" in notes_of(small(["AN", "k̂ ✓, v ✗, L ✓"]))
    # next to our own figures
    assert shown.header.index("VOC, quoted") == shown.header.index("seeds") + 1
    assert not quoted_heads(small(["an"], data="digits"))


def test_a_brief_table_explains_the_marks_that_it_shows():
    result = small(["an", "splc", "role"])
    assert quoted_heads(result, brief=True) == ["VOC, quoted"]
    marked = [row[-1].endswith("[1]") for row in cells(result, brief=True).rows]
    assert marked == [False, False, True]
    notes = notes_of(result, brief=True)
    assert "\n[1] ROLE with LinearInit" in notes and "SMILE" not in notes


def test_the_quoted_table_is_the_papers():
    assert paper_quote("gr", "voc").text == "89.83 ± 0.12"
    assert paper_quote("gr", "cub").mean == 21.64
    assert paper_quote("hill", "cub") is None and paper_quote("gr", "digits") is None
    assert TABLE_2["splc"][2:] == TABLE_2["smile"][2:]  # the slip that the mark explains
    assert paper_quote("splc", "cub").doubt and not paper_quote("splc", "voc").doubt
    assert set(DOUBTS) <= set(TABLE_2)
    assert paper_quote("k̂ ✓, v ✗, L ✓", "coco").mean == 72.86
    assert paper_quote("AN", "cub") is None
    assert [quote.mean for quote in other_quotes("ll_r", "voc")] == [89.2, 88.27]
    assert not other_quotes("ll_r", "digits")


def test_failures_and_open_runs_are_shown(outcomes):
    known, look = outcomes
    plan = Plan("bench", "digits", (Case("gr", "gr"), Case("em", "em")), (0, 1))
    known[plan.runs(look)[0].id] = {"error": "out of luck", "seed": 0}
    known[plan.runs(look)[1].id] = {"seed": 1, **done()}
    shown = cells(table(collected(plan, look)))
    assert shown.rows[0][:3] == ["gr", "40.00", "1 of 2"]
    assert "gr failed: out of luck" in shown.notes
    assert shown.rows[1][:3] == ["em", "–", "0 of 2"]
    assert len(cells(table(collected(plan, look)), brief=True).header) <= 5
    known[plan.runs(look)[1].id] = {"error": "out of luck", "seed": 1}
    shown = cells(table(collected(plan, look)))
    # counts runs, although they share one error
    assert dict(zip(shown.header, shown.rows[0], strict=True))["failed"] == "2"
    assert shown.notes.count("gr failed: out of luck") == 1


def test_without_a_test_split_validation_is_shown():
    known = [done(val_map=12.0, test_map=None), done(val_map=13.0, test_map=None)]
    result = small(["a", "b"], data="digits", known=known, against="b")
    assert result.figure == "validation mAP" and result.rows[0].test.mean == 12.0
    # no column needs a note on differences
    assert result.against == "b" and "− b" not in notes_of(result)
    assert "\nRows are not compared with b: this needs test images" in notes_of(result)
    assert cells(result).header.count("validation mAP") == 1
    first = next(csv.DictReader(io.StringIO(FORMATS["csv"](result))))
    assert (first["test"], first["val"]) == ("", "12.0")  # nothing was tested


def test_without_complete_labels_the_figure_is_called_an_estimate():
    estimated = done(val_map=12.0, test_map=None, result={"selection": "observed"})
    result = small(["a"], data="photos", known=[estimated])
    assert result.figure == "validation estimate" and "mAP is unknown" in notes_of(result)
    assert cells(result).header[:2] == ["method", "validation estimate"]


def test_the_settings_chosen_by_trials_are_shown(outcomes):
    known, look = outcomes
    plan = Plan("bench", "voc", (Case("gr", "gr"),), (1,), {}, Grid((1e-5, 2e-5)))
    for run in plan.runs(look):
        known[run.id] = {"seed": 0, **done(val_map=run.settings["lr"])}
    (row,) = table(collected(plan, look)).rows
    assert row.chosen == "lr=4e-05" and row.seeds == 0


def test_names_are_escaped_in_every_format(tmp_path):
    result = small(["k̂ ✓, a|b & <c>_1", "gr"], against="gr")
    assert "a\\|b" in markdown(result) and markdown(result).count("\n| ") == 4
    assert r"$\hat{k}$ \checkmark{}, a|b \& <c>\_1" in latex(result)
    assert r"\begin{tabular}{l" in latex(result)
    assert "a|b &amp; &lt;c&gt;_1" in page(result) and "http" not in page(result)
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](result))))
    assert [row["row"] for row in rows] == ["k̂ ✓, a|b & <c>_1", "gr"]
    assert float(rows[0]["test"]) == 40.0 and rows[1]["quoted_voc"] == "89.83"


def test_the_overview_shows_the_state_of_each_run(job, tmp_path):
    counts = write_overview(tmp_path / "plan.json", job.runs(), job.store, pixels="original")
    assert counts == {"pending": 0, "running": 0, "done": 4, "failed": 0}
    plan = stored(tmp_path / "plan.json")
    assert plan["pixels"] == "original" and plan["counts"] == counts
    assert [run["state"] for run in plan["runs"]] == ["done"] * 4
    assert plan["runs"][0]["test_map"] > 0
    counts = write_overview(tmp_path / "plan.json", job.runs(), RunStore(tmp_path / "empty"))
    assert counts["pending"] == 4 and "test_map" not in stored(tmp_path / "plan.json")["runs"][0]
