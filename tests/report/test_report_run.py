"""The page of one run: its contents, and how it handles missing or broken files."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spml.cli import main
from spml.errors import UserError
from spml.report import write_report
from tests.conftest import edit, stored

from .conftest import assert_self_contained, page, text

HOSTILE = (
    "<script>alert(1)</script>",
    "cost $5 & $6_x",
    'a "b" d="1.23456" name',
    "naïve — 猫",
    "tab\tname",
)


def test_headline_and_details(make_run):
    run = make_run(items=(3000, 750, 2000), epochs=8)
    seen, result = text(page(run)), stored(run / "result.json")
    for words in (
        f"Test mAP {result['test_map']:.2f}",
        f"Validation mAP {result['val_map']:.2f} epoch chosen on complete validation labels",
        f"Best epoch {result['best_epoch']} of 8",
        "Training items 3,000 750 validation · 2,000 test",
        "Classes 10",
        "1 min 35 s 5,321 images per second",
        f"epoch {result['best_epoch']}: {result['val_map']:.2f}",
        *(f"{name} {value:.1f}" for name, value in result["per_class_ap"].items()),
    ):
        assert words in seen


@pytest.mark.parametrize("chosen", [2, 1])
def test_the_page_notes_that_the_last_epoch_is_the_best(make_run, chosen):
    run = make_run(epochs=2)
    edit(run / "result.json", best_epoch=chosen)
    assert ("It is the last epoch: with more epochs" in text(page(run))) == (chosen == 2)


def test_settings_are_all_shown(make_run):
    run = make_run("run", "role", extra={"deep": {"er": [1, 2]}}, flag=True, empty="")
    seen = text(page(run))
    for pair in ("lr 0.001", "empty none", "extra deep.er [1, 2]", "flag yes", "torch 2.14.1"):
        assert pair in seen
    assert "expected_positives 1.46" in seen
    assert "taken from complete labels mean_positives 1.46" in seen and "torch 2.14.1" in seen
    assert "Repeat this run spml train digits --method role --seed 0 --out runs/role-0" in seen


def test_observed_labels(make_run):
    run = make_run()
    document, observed = page(run), np.load(run / "observed.npz")
    seen = text(document)
    folded = re.findall(r"<details><summary>Hashes</summary>(.*?)</details>", document, re.DOTALL)
    assert str(observed["sha256"]) in text(folded[0])
    assert "Positives per item one: 60 items (100.0 %)" in seen
    counts = (observed["observed"][observed["train_rows"]] == 1).sum(axis=0)
    assert f"{counts.min()} to {counts.max():,}" in seen


def test_names_are_escaped(make_run):
    run = make_run(classes=HOSTILE, data="<img src=x onerror=alert(1)>", method="a$b$c_d")
    document = page(run)
    seen = text(document)
    for name in HOSTILE:
        assert " ".join(name.split()) in seen
        quoted = html.escape(name).replace("&quot;", "&#34;")
        assert html.escape(name, quote=False) in document or quoted in document
    assert "<script" not in document
    assert "<img" not in document
    figures = "".join(re.findall(r"<svg.*?</svg>", document, flags=re.DOTALL))
    assert "cost $5 &amp; $6_x</text>" in figures
    assert 'd="1.23456" name</text>' in figures


@pytest.mark.parametrize("count", [24, 80, 312])
def test_many_classes(make_run, count):
    names = tuple(f"class number {i:03d}" for i in range(count))
    document = page(make_run(classes=names, items=(400, 60, 80), epochs=2))
    assert all(name in document for name in names)
    assert ("Best 20" in document) == (count > 40)
    assert f"<summary>All {count} classes" in document
    assert len(document) < 1_000_000


def test_the_page_is_self_contained_reproducible_and_titled(make_run):
    run = make_run()
    document = page(run)
    assert_self_contained(document)
    assert "<title>gr on digits</title>" in document
    assert write_report([run], run / "two.html").read_text(encoding="utf-8") == document
    assert "<h1>Tags &amp; co</h1>" in page(run, title="Tags & co")


def test_observed_selection_without_test_labels(make_run):
    from spml.metrics import observed_average_precision

    run = make_run(selection="observed", items=(600, 300, 300))
    labels = dict(np.load(run / "labels.npz"))
    del labels["test_truth"]
    np.savez(run / "labels.npz", **labels)
    edit(run / "result.json", test_map=None, per_class_ap=None)
    seen = text(page(run))
    assert "Test mAP – not measured" in seen
    assert "Validation estimate" in seen and "epoch chosen on observed validation labels" in seen
    assert "validation estimate, %" in seen
    assert "is not a mAP" in seen
    assert "alidation mAP" not in seen
    assert "observed positive unknown" in seen
    assert "do not determine precision" in seen
    best = stored(run / "result.json")["best_epoch"]
    logits = np.load(run / "scores" / f"val-{best:02d}.npz")["logits"]
    expected = 100 * observed_average_precision(logits, labels["val_truth"])
    assert all(
        f"{name} {value:.1f}" in seen
        for name, value in zip(labels["classes"], expected, strict=True)
    )


def test_unfinished_run(make_run):
    run = make_run(epochs=8)
    (run / "result.json").unlink()
    lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()[:4]
    (run / "history.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (run / "scores" / "test.npz").unlink()
    seen = text(page(run))
    assert "has not finished" in seen
    assert "after epoch 3 of 8" in seen
    assert f"Validation mAP {json.loads(lines[-1])['val_map']:.2f}" in seen
    assert "so far" in seen
    assert "on the validation set" in seen


@pytest.mark.parametrize("file", ["history.jsonl", "labels.npz", "observed.npz"])
def test_missing_files_are_named(make_run, file):
    run = make_run()
    (run / file).unlink()
    assert f"Not in the run folder: {file}" in text(page(run))


def test_no_scores_and_diverged_scores(make_run):
    run = make_run()
    scores = run / "scores" / "test.npz"
    np.savez(scores, logits=np.full_like(np.load(scores)["logits"], np.nan))
    assert "the model has diverged" in text(page(run))
    for path in (run / "scores").iterdir():
        path.unlink()
    assert "no stored scores" in text(page(run))


def test_odd_numbers(make_run):
    run = make_run()
    edit(run / "result.json", seconds=7305.0, images_per_second=3.25, device="NVIDIA H200")
    (run / "history.jsonl").write_text(
        '{"epoch": 1, "loss": NaN, "val_map": null}\n', encoding="utf-8"
    )
    seen = text(page(run))
    assert "2 h 01 min 3.2 images per second on NVIDIA H200" in seen


def test_folders_that_are_no_runs_are_refused(tmp_path):
    for folder, complaint in ((tmp_path / "none", "is not a folder"), (tmp_path, "no config.json")):
        with pytest.raises(UserError, match=complaint) as caught:
            write_report([folder], tmp_path / "x.html")
        assert str(folder) in str(caught.value)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"neither history\.jsonl nor result\.json"):
        write_report([tmp_path], tmp_path / "x.html")
    with pytest.raises(UserError, match="at least one"):
        write_report([], tmp_path / "x.html")


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config.json", "{", "not JSON"),
        ("result.json", "[]", "not a JSON object"),
        ("history.jsonl", '{"epoch": 1}\n{"epo', "line 2: not JSON"),
        ("history.jsonl", '{"loss": 1}', "'epoch' must be a whole number"),
        ("history.jsonl", '{"epoch": 1, "loss": "low"}', "'loss' must be a number"),
        ("observed.npz", "not a zip", "is not a readable"),
        ("scores/test.npz", "not a zip", "is not a readable"),
    ],
)
def test_broken_files_are_named(make_run, file, content, complaint):
    run = make_run()
    (run / file).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=complaint) as caught:
        page(run)
    assert str(run / file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arrays_that_do_not_fit(make_run):
    run = make_run()
    np.savez(run / "scores" / "test.npz", logits=np.zeros((3, 10), np.float16))
    with pytest.raises(UserError, match="do not fit"):
        page(run)
    np.savez(run / "labels.npz", wrong=np.zeros(1))
    with pytest.raises(UserError, match="no array classes"):
        page(run)


def test_a_page_is_written_completely_or_not_at_all(make_run, tmp_path, monkeypatch):
    run, out = make_run(), tmp_path / "new" / "page.html"
    write_report([run], out)
    before = out.read_bytes()

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UserError, match="the disk is full"):
        write_report([run], out, title="another")
    assert out.read_bytes() == before
    assert list(out.parent.iterdir()) == [out]
    with pytest.raises(UserError, match="is a folder"):
        write_report([run], tmp_path)


def test_import_is_light():
    code = (
        "import sys, spml.report; "
        "print([m for m in ('matplotlib', 'jinja2', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_are_replaced_only_on_request(make_run, tmp_path, capsys):
    run, other, mine = make_run(), make_run("other", seed=1), tmp_path / "mine.html"
    assert main(["report", str(run)]) == 0 and main(["report", str(run)]) == 0  # its own page
    assert main(["report", str(run), "--out", str(run / "." / "report.html")]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "page.HTM")]) == 0
    mine.write_text("mine")
    capsys.readouterr()
    for words in (
        [str(run), "--out", str(mine)],
        [str(run), str(other), "--out", str(run / "report.html")],
    ):
        before = Path(words[-1]).read_bytes()
        assert main(["report", *words]) == 2
        assert (
            capsys.readouterr().err
            == f"spml: {words[-1]} is already there; give --overwrite or another --out\n"
        )
        assert Path(words[-1]).read_bytes() == before
    assert main(["report", str(run), "--out", str(mine), "--overwrite"]) == 0
    assert "<html" in mine.read_text()


def test_unobserved_labels_do_not_change_the_page(tmp_path, monkeypatch):
    """Pages of two runs that differ in unobserved labels differ only in their timings."""
    from spml.data import observe

    rng = np.random.default_rng(0)
    labels = np.where(rng.random((60, 3)) < 0.4, 1, -1).astype(np.int8)
    labels[np.arange(60), rng.integers(0, 3, 60)] = 1
    seen = observe(labels)
    arrays = {"x": rng.normal(size=(60, 4)), "classes": np.array(["a", "b", "c"])}
    np.savez(tmp_path / "seen.npz", labels=seen, **arrays)
    pages = []
    for name, unseen in (("one", labels), ("two", np.where(seen == 0, -labels, labels))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        np.savez("data.npz", labels=unseen, **arrays)
        words = "--labels complete --observe file:../seen.npz --selection observed --out run"
        small = "--backbone linear --epochs 1 --lr 0.01 --accelerator cpu --quiet"
        assert main(["train", "data.npz", "--method", "an", *words.split(), *small.split()]) == 0
        result = stored(Path("run/result.json"))
        Path("run/result.json").write_text(
            json.dumps(result | {"seconds": 1.0, "images_per_second": 1.0})
        )
        pages.append(page(Path("run")))
    assert pages[0] == pages[1]


def test_the_axis_of_a_single_epoch_has_whole_ticks():
    import matplotlib.pyplot as plt

    from spml.report.figures import epoch_axis

    figure, ax = plt.subplots()
    ax.plot([1], [0.5], marker="o")
    epoch_axis(ax, "training loss")
    assert all(place == round(place) for place in ax.get_xticks())
    plt.close(figure)
