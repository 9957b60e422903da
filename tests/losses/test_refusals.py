"""Options and inputs that a method refuses, and the message that names the remedy."""

import math
import re

import numpy as np
import pytest
import torch

from spml import losses
from spml.data import LabelTable
from spml.methods.parts.heatmaps import whole

from .common import NAMES, build, features_of, random_batch

LOGITS, OBSERVED = random_batch()
PRIORS = "priors are 7 shares above 0 and up to 1, not"
NO_NUMBER = "is not a number, .start, end. or one number per class"
WARMUP = "warmup is an epoch, counted from 1, not"
X = torch.ones(5, 2)
OPTIONS = [
    # names
    ("gr", {"sigm": 1}, r"gr has no option 'sigm'; 'sigma'\? It has: variant, q1"),
    ("an", {"zzzzz": 1}, r"an has no option 'zzzzz'\. It has: eps, reduction"),
    # types
    ("focal", {"gamma": True}, "gamma is a number, not True"),
    ("focal", {"gamma": None}, "gamma is a number, not None"),
    ("focal", {"gamma": math.nan}, "gamma is a number, not nan"),
    ("an", {"eps": math.nan}, "eps is one of a number, none, not nan"),
    ("taylor_ce", {"order": 2.0}, "order is a whole number, not 2.0"),
    ("taylor_ce", {"order": True}, "order is a whole number, not True"),
    ("asl", {"detach": 1}, "detach is true or false, not 1"),
    ("splc", {"margin_on_pseudo": "no"}, "is one of true or false, none, not 'no'"),
    ("splc", {"negative": "hil"}, "negative is one of focal, hill, none, not 'hil'"),
    ("splc", {"variant": "x"}, "variant is one of original, gr"),
    ("hill", {"variant": "x"}, "variant is one of original, gr"),
    ("gr", {"variant": "offical"}, "variant is one of official, paper"),
    ("gr", {"schedule": "linear"}, "schedule is one of official, paper"),
    ("gr_learnable", {"constraint": "x"}, "constraint is one of class, batch, none"),
    ("gr_learnable", {"variant": "x"}, "variant is one of official, paper"),
    ("em_apl", {"base": 3}, "base is text, not 3"),
    ("en", {"start": "x"}, "start is one of observed, first"),
    ("mime", {"rule": "replace"}, "rule is one of add, ignore, not 'replace'"),
    ("smile", {"x": X, "kl": "right"}, "kl is one of correct, released"),
    # values per class, and ramps
    ("gr", {"w": np.zeros((3, 4))}, "per class"),
    ("gr", {"w": np.zeros((2, 3, 4))}, "per class"),
    ("gr", {"w": "steep"}, f"'steep' {NO_NUMBER}"),
    ("gr", {"w": True}, "True is not a number"),
    ("gr", {"w": (0, None)}, "None is not a number"),
    ("gr", {"w": [0, 1, "x"]}, NO_NUMBER),
    ("gr", {"w": (0, 1, "x")}, NO_NUMBER),
    ("gr", {"w": math.nan}, "nan is not a number, "),
    ("gr", {"w": (0, math.nan)}, "nan is not a number, "),
    ("gr", {"q3": [1.0, math.nan, 1.0]}, "nan, 1.0. is not a number"),
    ("gr_learnable", {"w": [1.0, 2.0]}, "the start of w is a number, or one for each of 7 classes"),
    ("gr_learnable", {"w": None}, "start of w is a number, or one for each of 7 classes, not None"),
    ("gr_learnable", {"b": "low"}, "is a number, or one for each of 7 classes, not 'low'"),
    ("crisp", {"priors": [0.1]}, PRIORS),
    ("crisp", {"priors": [0.0] * 7}, PRIORS),
    ("crisp", {"priors": [1.1] * 7}, PRIORS),
    ("crisp", {"priors": "few"}, f"{PRIORS} few"),
    ("crisp", {"priors": [None] * 7}, PRIORS),
    ("smile", {"x": torch.ones(4, 2)}, r"one row for each of the 5 items; it has shape \(4, 2\)"),
    ("smile", {"x": torch.zeros(5)}, r"it has shape \(5,\)"),
    ("smile", {"x": X * math.nan}, "not finite"),
    # ranges
    ("an", {"eps": -1e-5}, "eps is added to probabilities .*: 0 or more and below 1, not -1e-05"),
    ("em", {"eps": math.inf}, "0 or more and below 1, not inf"),
    ("an_ls", {"smoothing": -0.1}, "smoothing is the distance of targets .*, not -0.1"),
    ("an_ls", {"smoothing": 1.5}, "from 0 to 1, not 1.5"),
    ("epr", {"expected_positives": -1}, "expected_positives is 0 or more, not -1"),
    ("role", {"expected_positives": math.inf}, "expected_positives is 0 or more, not inf"),
    ("focal", {"gamma": -1.0}, "gamma is 0 or more"),
    ("asl", {"gamma_neg": -1.0}, "gamma is 0 or more"),
    ("asl", {"clip": 1.0}, "clip a probability below 1"),
    ("asl", {"clip": -0.1}, "clip a probability below 1"),
    ("taylor_ce", {"order": 0}, "order must be at least 1"),
    ("splc", {"tau": 1.5}, "tau is a probability"),
    ("gr", {"sigma": (2, 0)}, "sigma must be positive"),
    ("gr", {"sigma": [1.0, -1.0, 1.0]}, "sigma must be positive"),
    ("gr", {"q3": -0.5}, "q is 0 or more"),
    ("gr", {"a": 1.0}, "a is a probability below 1"),
    ("gr_learnable", {"sigma": 0.1}, "above sigma_min"),
    ("gr_learnable", {"sigma_min": -0.1}, "≥ 0"),
    ("ll_r", {"delta": -0.1}, "delta is the share"),
    ("ll_r", {"delta": 20}, "delta is the share"),  # in percent
    ("ll_cp", {"delta": -0.1}, "delta is the share"),
    ("ll_cp", {"delta": 1.1}, "delta is the share"),
    ("em_apl", {"theta": -0.1}, "theta is a share"),
    ("em_apl", {"theta": 1.1}, "theta is a share"),
    ("em_apl", {"warmup": 0}, f"{WARMUP} 0"),
    ("em_apl", {"warmup": -1}, f"{WARMUP} -1"),
    ("crisp", {"warmup": 0}, "warmup must be at least 1"),
    ("crisp", {"warmup": -1, "priors": [0.5] * 7}, "warmup must be at least"),
    ("crisp", {"momentum": 1.0}, "momentum is the weight"),
    ("crisp", {"momentum": -0.1}, "momentum is the weight"),
    ("en", {"momentum": 1.1}, "momentum is the weight"),
    ("en", {"momentum": -0.1}, "momentum is the weight"),
    ("en", {"power": 0.5}, "power is 1 or more"),
    ("en", {"power": math.inf}, "power is 1 or more"),
    ("en", {"cl": -1.0}, "cl is 0 or more"),
    ("en", {"scl": math.inf}, "scl is 0 or more"),
    ("en", {"expected_positives": -1}, "expected_positives is 0 or more"),
    ("en", {"scl": 1.0, "grid": 0}, "grid is a number of cells"),
    ("mime", {"theta": 1.5}, "theta is a probability, not 1.5"),
    ("mime", {"theta": -0.1}, "theta is a probability, not -0.1"),
    ("mime", {"warmup": 0}, f"{WARMUP} 0"),
    ("mime", {"mean_inverse_positives": 0.0}, "is above 0 and up to 1, not 0.0"),
    ("mime", {"mean_inverse_positives": 2.0}, "is above 0 and up to 1, not 2.0"),
    ("mime", {"rule": "ignore"}, "rule='ignore' needs mean_inverse_positives"),
    ("lagc", {"first": 1.5}, "first is a share"),
    ("lagc", {"tau": 0.4}, "tau is a prob"),
    ("lagc", {"tau_second": 2.0}, "tau_second is a"),
    ("lagc", {"queue": -1}, "a queue holds"),
    ("lagc", {"temperature": 0.0}, "temperature must be above 0"),
    ("smile", {"queue_temperature": 0.0}, "temperature must be above 0"),
    ("smile", {"x": X, "mu": 1.5}, "mu must be from 0 to 1"),
    ("smile", {"x": X, "pi0": -0.1}, "pi0 must be from 0 to 1"),
    ("smile", {"x": X, "k": 0}, "k must be at least 1"),
    ("smile", {"x": X, "temperature": 0.0}, "temperature above 0"),
    ("smile", {"x": X, "own_lr": -1e-3}, "own_lr is a learning rate, above 0, not -0.001"),
]


@pytest.mark.parametrize(
    ("name", "options", "message"), OPTIONS, ids=[f"{n}-{'-'.join(o)}" for n, o, _ in OPTIONS]
)
def test_invalid_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, OBSERVED, **options)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_reduction_is_refused(name):
    with pytest.raises(ValueError, match="reduction is one of mean, sum, sum_classes, none"):
        build(name, OBSERVED, reduction="avg")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("grr", r"no method 'grr'; 'gr'\? There are: an, .*package.module:function"),
        ("zzzzz", r"no method 'zzzzz'\. There are: an, "),
        ("no.such.module:f", "'no.such.module:f' cannot be loaded: No module named 'no"),
        ("math:no_such", "'math:no_such' cannot be loaded: .*no_such"),
        ("math:pi", "'math:pi' is not a function or class"),
    ],
)
def test_unknown_methods_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        losses.create(name)


def test_values_of_the_right_kind_are_accepted():
    losses.check_options("focal", {"gamma": 2})
    plain = {"negative": None, "margin_on_pseudo": False, "tau": 0.5, "from_epoch": 3}
    losses.check_options("splc", plain)
    numpys = {"margin_on_pseudo": np.bool_(0), "tau": np.float32(0.5), "from_epoch": np.int64(3)}
    losses.check_options("splc", numpys)
    for share in (0.0, 1.0):
        build("ll_cp", OBSERVED, delta=share)
        build("em_apl", OBSERVED, theta=share)


@pytest.mark.parametrize("missing", ["items", "classes", "observed"])
@pytest.mark.parametrize("name", [name for name in NAMES if "items" in losses.needs(name)])
def test_items_classes_and_observed_are_each_needed(name, missing):
    spared = {"ll_cp": ("observed",), "gr_learnable": ("items", "observed")}.get(name, ())
    data = {"items": 5, "classes": 7, "observed": OBSERVED}
    del data[missing]
    if missing in spared:
        losses.create(name, **data)
    else:
        with pytest.raises(ValueError, match=f"{name} needs .*{missing}"):
            losses.create(name, **data)


@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (1, 3), (4, 1), (4, 2), (3, 4)], ids=str)
@pytest.mark.parametrize("name", ["role", "em_apl", "en", "mime", "crisp"])
def test_labels_of_another_split_are_refused(name, shape):
    labels = torch.zeros(shape, dtype=torch.int8)
    names = [list(map(str, range(size))) for size in shape]
    wrong = re.escape(f"is {shape}, the training split (4, 3)")
    for observed in (labels, labels.tolist(), LabelTable(*names, labels.numpy())):
        with pytest.raises(ValueError, match=f"observed {wrong}"):
            losses.create(name, items=4, classes=3, observed=observed)
    option = {"role": "estimated", "em_apl": "table"}.get(name)
    if option:
        with pytest.raises(ValueError, match=f"{option} {wrong}"):
            build(name, torch.zeros(4, 3), **{option: labels.float()})


@pytest.mark.parametrize(
    "index", [None, torch.arange(3)[:, None], torch.tensor([2]), torch.arange(4)], ids=str
)
@pytest.mark.parametrize("name", ["role", "ll_cp", "em_apl", "en", "mime", "smile", "smile-x"])
def test_an_index_that_is_missing_or_of_another_shape_is_refused(name, index):
    name, _, x = name.partition("-")
    loss = build(name, torch.zeros(4, 2), **({"x": torch.arange(8.0).view(4, 2)} if x else {}))
    features = {"features": features_of(name, 3, 2)} if "features" in loss.method.needs else {}
    with pytest.raises(ValueError, match=f"{name} needs index"):
        loss.method(torch.zeros(3, 2), torch.zeros(3, 2), index=index, **features)


VIEWS, WIDE = torch.zeros(5, 7), torch.zeros(10, 7, 6)
EN = {"scl": 1.0, "grid": 2}
FEATURES = [
    ("en", EN, {}, "en needs features"),
    ("mime", {}, {}, "mime needs features: an embedding of each label"),
    ("smile", {}, {}, "smile needs features"),
    ("lagc", {}, {}, "lagc needs views and features"),
    ("lagc", {}, {"views": VIEWS}, "lagc needs views and features"),
    ("lagc", {}, {"features": WIDE}, "lagc needs views and features"),
    ("lagc", {}, {"views": VIEWS, "features": WIDE[:5]}, "lagc needs views and features"),
    ("lagc", {}, {"views": VIEWS[:4], "features": WIDE}, r"logits \(4, 7\) and observed \(5, 7\)"),
]


@pytest.mark.parametrize(("name", "options", "call", "message"), FEATURES)
def test_missing_features_and_views_are_named(name, options, call, message):
    method = build(name, OBSERVED, **options).method
    with pytest.raises(ValueError, match=message):
        method(LOGITS, OBSERVED, index=torch.arange(5), **call)


NORMAL = "give --head query-normal"
MAPS = "give --head linear with a picture backbone, or scl=0"


@pytest.mark.parametrize(
    ("name", "options", "shapes", "message"),
    [
        ("mime", {}, [(1, 8), (1, 7, 4, 4), (1, 7, 8), (1, 4, 9), (1, 7, 1)], NORMAL),
        ("smile", {}, [(1, 7, 8, 8), (1, 64), (1, 7, 6), (1, 7, 1)], f"{NORMAL}:128"),
        ("lagc", {}, [(1, 7, 4, 4), (1, 64)], "give --head query"),
        ("en", EN, [(5, 64), (5, 7, 64), (5, 6, 2, 2)], MAPS),
    ],
)
def test_features_of_another_head_are_refused(name, options, shapes, message):
    for shape in shapes:
        method = build(name, OBSERVED, **options).method
        with pytest.raises(ValueError, match=message):
            method.prepare(torch.zeros(shape))
        if name == "mime":
            with pytest.raises(ValueError, match=message):
                index = torch.tensor([0])
                method(LOGITS[:1], OBSERVED[:1], index=index, features=torch.zeros(shape))


def test_visible_parts_of_another_batch_are_refused():
    loss = build("en", OBSERVED, **EN)
    loss.method.see(whole(3, torch.device("cpu")))
    with pytest.raises(ValueError, match="visible parts of 3 pictures for 5 items"):
        loss(LOGITS, OBSERVED)
