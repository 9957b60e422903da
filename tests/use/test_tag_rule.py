"""Every command tags the same classes, even at a threshold or if float32 rounds to 1."""

import csv
import io
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

from spml import SinglePositiveClassifier
from spml.metrics.scores import threshold_logits
from spml.model import Classifier, ModelInfo, load_model, save_model
from spml.report.probabilities import read_model
from spml.runs.run import Run
from spml.use.calibrate.calibrate import CalibrationResult, calibration_report
from spml.use.calibrate.estimates import Evidence, Measure, intervals
from spml.use.calibrate.fit import Target
from spml.use.calibrate.validation import Validation
from spml.use.evaluate import split_metrics
from spml.use.explain.explain import explain
from spml.use.export.export import OUTPUTS, export
from spml.use.predict.predict import Options, predict
from spml.use.serve.tagger import Limits, Tagger
from tests.report.conftest import with_values
from tests.use.conftest import PICTURES

LINE = [[0.0, 1.0], [1.0, 3.0]]  # calibrated logits are 2 * logit + 1
SATURATED = [  # logit of a calibrated probability, threshold, whether it is a tag
    (0.0, 0.5, True),
    (-1e-30, 0.5, False),
    (17.5, 0.99999999, True),  # both are 1 in float32; report and calibrate did not tag it before
    (17.0, 0.99999999, False),
    (40.0, 1.0, True),
    (17.0, 1.0, False),
    (-40.0, 0.0, True),
    (-40.0, 1e-12, False),
]


@dataclass(frozen=True)
class Case:
    logits: np.ndarray
    info: ModelInfo
    tags: np.ndarray

    @property
    def names(self):
        return {name for name, tag in zip(self.info.classes, self.tags, strict=True) if tag}


def neighbours(threshold, calibrated):
    """The lowest float32 logit that reaches the threshold when calibrated, and the next below."""
    cut = threshold_logits(threshold)
    at = np.float32((cut - 1) / 2 if calibrated else cut)
    reached = (lambda z: 1 + 2 * np.float64(z)) if calibrated else np.float64
    while reached(at) >= cut:
        at = np.nextafter(at, np.float32(-np.inf))
    return np.nextafter(at, np.float32(np.inf)), at


@pytest.fixture(params=[False, True], ids=["raw", "calibrated"])
def case(request):
    logits, thresholds, tags = map(list, zip(*SATURATED, strict=True))
    if request.param:
        logits = [(z - 1) / 2 for z in logits]
        tags[1] = True  # 1e-30 below the threshold is lost beside 1
    for threshold in (0.05, 0.1, 0.3, 0.4, 0.7, 0.9, 0.995):
        for logit, tag in zip(neighbours(threshold, request.param), (True, False), strict=True):
            logits.append(logit)
            thresholds.append(threshold)
            tags.append(tag)
    classes = [f"c{i:02d}" for i in range(len(tags))]
    knots = [LINE] * len(classes) if request.param else None
    info = ModelInfo(classes, "tiny", PICTURES, thresholds, calibration=knots)
    return Case(np.array([logits], np.float32), info, np.array(tags))


@pytest.fixture
def run(case, tmp_path):
    """A model whose logits are those of the case for every picture."""
    model = Classifier.build("tiny", len(case.info.classes))
    model.head.weight.data.zero_()
    model.head.bias.data = torch.from_numpy(case.logits[0].copy())
    save_model(tmp_path / "model", model, case.info)
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    return tmp_path / "model"


def test_predict_serve_explain_and_the_estimator_agree(case, run, tmp_path):
    predict(run, [tmp_path / "a.png"], tmp_path / "p.csv")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text()))
    assert set(row["tags"].split("|")) == case.names
    answer = Tagger(run, Limits()).answer((tmp_path / "a.png").read_bytes())
    assert set(answer["tags"]) == case.names
    explain(run, [tmp_path / "a.png"], tmp_path / "maps")
    (line,) = re.findall(r"tags: ([^<]*)<", (tmp_path / "maps" / "index.html").read_text())
    assert set(re.findall(r"c\d\d", line)) == case.names
    estimator = SinglePositiveClassifier()
    estimator.model_, estimator.info_ = load_model(run)
    estimator.classes_ = np.array(case.info.classes)
    estimator.thresholds_ = np.array(case.info.thresholds)
    (predicted,) = estimator.predict(np.zeros((1, 3, 16, 16), np.uint8))
    assert (predicted == case.tags).all()


def test_eval_calibrate_and_report_agree_with_predict(case, run):
    truth = np.where(case.tags, 1, -1).astype(np.int8)[None]
    assert split_metrics(case.logits, truth, "complete", case.info)["OF1"] == 100
    evidence = Evidence.of_complete(case.logits, truth)
    rule = case.info.tag_rule
    figures = Measure(evidence.logits, rule.tagged(evidence.logits))(evidence.chances, np.ones(1))
    ends = intervals({**figures, "threshold": rule.thresholds}, [{**figures, "threshold": 0.5}])
    result = CalibrationResult(evidence, case.info.calibration, rule.thresholds, figures, ends)
    items = Validation(case.info, evidence.logits, truth, "complete", "the test")
    record = calibration_report(items, result, case.info, Target(), None)
    assert set(case.info.classes) - set(record["untagged"]) == case.names
    assert record["overall"]["micro_f1"]["value"] == record["overall_before"]["micro_f1"] == 1
    shown = read_model(with_values(Run(run.parent / "run"), classes=case.info.classes))
    assert shown.thresholds.tolist() == [0.5] * len(case.tags)  # no thresholds are stored
    run.parent.joinpath("run").mkdir()
    run.rename(run.parent / "run" / "best")
    shown = read_model(with_values(Run(run.parent / "run"), classes=case.info.classes))
    assert (shown.rule.tagged(case.logits)[0] == case.tags).all()


def test_the_exported_model_agrees_with_predict(case, run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export(run, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    picture = np.asarray(Image.open(tmp_path / "a.png"))[None]
    logits, _ = session.run(OUTPUTS, {"pictures": picture})
    assert (case.info.tag_rule.tagged(logits)[0] == case.tags).all()


def test_a_threshold_on_raw_probabilities_is_compared_with_raw_logits(case, run, tmp_path):
    options = Options(raw=True, thresholds=["0.5"])
    predict(run, [tmp_path / "a.png"], tmp_path / "p.csv", options)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text()))
    reached = case.logits[0] >= 0
    assert row["tags"].split("|") == np.array(case.info.classes)[reached].tolist()


def test_infinite_logits_as_half_precision_stores_them(case):
    high, low = (np.full(case.logits.shape, sign * np.inf, np.float16) for sign in (1, -1))
    assert case.info.tag_rule.tagged(high).all()
    assert (case.info.tag_rule.tagged(low)[0] == (np.array(case.info.thresholds) == 0)).all()
