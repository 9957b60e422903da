"""Options and inputs that a method refuses, and the message that names the remedy."""

import math
import re

import numpy as np
import pytest
import torch

from spml import losses
from spml.data import LabelTable

from .common import NAMES, build, features_of, random_batch

LOGITS, OBSERVED = random_batch()
PRIORS = "priors are 7 shares above 0 and up to 1, not"
NO_NUMBER = "is not a number, .start, end. or one number per class"
PER_CLASS = "is a number, or one for each of 7 classes, not"
X = torch.ones(5, 2)
OPTIONS = [
    ("gr", {"sigm": 1}, r"gr has no option 'sigm'; 'sigma'\? It has: variant, q1"),
    ("an", {"zzzzz": 1}, r"an has no option 'zzzzz'\. It has: eps, reduction"),
    ("focal", {"gamma": True}, "gamma is a number of 0 or more, not True"),
    ("focal", {"gamma": None}, "gamma is a number of 0 or more, not None"),
    ("an", {"eps": math.nan}, "eps is one of a number from 0 to below 1, none, not nan"),
    ("taylor_ce", {"order": 2.0}, "order is a whole number of 1 or more, not 2.0"),
    ("taylor_ce", {"order": True}, "order is a whole number of 1 or more, not True"),
    ("asl", {"detach": 1}, "detach is true or false, not 1"),
    ("splc", {"margin_on_pseudo": "no"}, "is one of true or false, none, not 'no'"),
    ("splc", {"negative": "hil"}, "negative is one of focal, hill, none, not 'hil'"),
    ("gr", {"variant": "offical"}, "variant is one of official, paper"),
    ("em_apl", {"base": 3}, "base is text, not 3"),
    ("gr", {"w": np.zeros((3, 4))}, "per class"),
    ("gr", {"w": np.zeros((2, 3, 4))}, "per class"),
    ("gr", {"w": "steep"}, f"'steep' {NO_NUMBER}"),
    ("gr", {"w": True}, "True is not a number"),
    ("gr", {"w": (0, None)}, "None is not a number"),
    ("gr", {"w": [0, 1, "x"]}, NO_NUMBER),
    ("gr", {"w": (0, math.nan)}, "nan is not a number, "),
    ("gr", {"q3": [1.0, math.nan, 1.0]}, "nan, 1.0. is not a number"),
    ("gr", {"sigma": (2, 0)}, "sigma must be positive"),
    ("gr", {"sigma": [1.0, -1.0, 1.0]}, "sigma must be positive"),
    ("gr", {"q3": -0.5}, "q is 0 or more"),
    ("gr", {"a": 1.0}, "a is a probability below 1"),
    ("gr_learnable", {"w": [1.0, 2.0]}, f"the start of w {PER_CLASS}"),
    ("gr_learnable", {"w": None}, f"start of w {PER_CLASS} None"),
    ("gr_learnable", {"b": "low"}, f"start of b {PER_CLASS} 'low'"),
    ("gr_learnable", {"sigma": 0.1}, "above sigma_min"),
    ("crisp", {"priors": [0.1]}, PRIORS),
    ("crisp", {"priors": [0.0] * 7}, PRIORS),
    ("crisp", {"priors": [1.1] * 7}, PRIORS),
    ("crisp", {"priors": "few"}, f"{PRIORS} few"),
    ("crisp", {"priors": [None] * 7}, PRIORS),
    ("crisp", {"warmup": 0}, "warmup must be at least 1"),
    ("mime", {"rule": "ignore"}, "rule='ignore' needs mean_inverse_positives"),
    ("smile", {"x": torch.ones(4, 2)}, r"one row for each of the 5 items; it has shape \(4, 2\)"),
    ("smile", {"x": torch.zeros(5)}, r"it has shape \(5,\)"),
    ("smile", {"x": X * math.nan}, "not finite"),
]


@pytest.mark.parametrize(
    ("name", "options", "message"), OPTIONS, ids=[f"{n}-{'-'.join(o)}" for n, o, _ in OPTIONS]
)
def test_invalid_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, OBSERVED, **options)


# Numbers just outside the range of each option.
OUTSIDE = """
an eps=-1e-5,1,inf | an_ls smoothing=-0.1,1.5 | epr expected_positives=-1,inf
role expected_positives=-1,inf label_lr=0 | focal gamma=-1
asl gamma_neg=-1 gamma_pos=-1 clip=-0.1,1 | hill gamma=-1
splc gamma=-1 tau=-0.1,1.5 | taylor_ce order=0 | gr_learnable sigma_min=-0.1 | gr missed_rate=0,1
ll_r delta=-0.1,20 | ll_ct delta=-0.1,20 | ll_cp delta=-0.1,1.1 | boostlu delta=-0.1,20
em_apl theta=-0.1,1.1 warmup=0 | crisp warmup=-1 momentum=-0.1,1
en momentum=-0.1,1.1 power=0.5,inf cl=-1,inf scl=-1,inf expected_positives=-1 grid=0
mime theta=-0.1,1.5 warmup=0 mean_inverse_positives=0,2
lagc first=1.5 tau=0.4,1.1 tau_second=0.4,2 queue=-1 temperature=0
smile mu=1.5 pi0=-0.1 k=0 temperature=0 own_lr=-1e-3,0 queue=-1 queue_temperature=0
"""


@pytest.mark.parametrize("line", OUTSIDE.strip().replace(" | ", "\n").splitlines())
def test_numbers_out_of_range_are_refused_with_the_meaning_of_the_option(line):
    name, *settings = line.split()
    helps = {option.name: option.help for option in losses.options(name)}
    for option, _, values in (setting.partition("=") for setting in settings):
        for value in values.split(","):
            kind = int if option in ("order", "warmup", "grid", "queue", "k") else float
            message = f"{option} is .*number .*, not {re.escape(repr(kind(value)))}: "
            with pytest.raises(ValueError, match=message + re.escape(helps[option][:-1])):
                losses.check_options(name, {option: kind(value)})


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


CALL = {"index": torch.arange(5), "views": torch.zeros(5, 7)}
NEEDED = [
    (name, need)
    for name in NAMES
    for need in ("index", "features", "views")
    if need in losses.needs(name)
]


@pytest.mark.parametrize(("name", "need"), [*NEEDED, ("en", "features")])
def test_an_input_that_is_missing_is_named(name, need):
    method = build(name, OBSERVED, **(EN if name == "en" else {})).method
    rows = 10 if name == "lagc" else 5
    call = {**CALL, "features": features_of(name, rows, 7), need: None}
    with pytest.raises(ValueError, match=f"{name} needs {need}: the "):
        method(LOGITS, OBSERVED, **call)


EN = {"scl": 1.0, "grid": 2}


@pytest.mark.parametrize(
    "index", [torch.arange(5)[:, None], torch.tensor([2]), torch.arange(6)], ids=str
)
@pytest.mark.parametrize("name", [name for name, need in NEEDED if need == "index"])
def test_an_index_of_another_batch_is_refused(name, index):
    method = build(name, OBSERVED).method
    with pytest.raises(ValueError, match=f"{name} needs index of each item, not "):
        method(LOGITS, OBSERVED, index=index, features=features_of(name, 5, 7))


def test_lagc_needs_both_views():
    method, wide = build("lagc", OBSERVED).method, torch.zeros(10, 7, 6)
    with pytest.raises(ValueError, match="lagc needs features of both views"):
        method(LOGITS, OBSERVED, views=CALL["views"], features=wide[:5])
    with pytest.raises(ValueError, match=r"logits \(4, 7\) and observed \(5, 7\)"):
        method(LOGITS, OBSERVED, views=CALL["views"][:4], features=wide)


NORMAL = "give --head query-normal"
MAPS = "give --head linear with a picture backbone, or scl=0"


@pytest.mark.parametrize(
    ("name", "options", "shapes", "message"),
    [
        ("mime", {}, [(1, 8), (1, 7, 4, 4), (1, 7, 8), (1, 4, 9), (1, 7, 1)], NORMAL),
        ("smile", {}, [(1, 7, 8, 8), (1, 64), (1, 7, 1)], "give --head query"),
        ("lagc", {}, [(1, 7, 4, 4), (1, 64)], "give --head query"),
        ("en", EN, [(5, 64), (5, 7, 64), (5, 6, 2, 2)], MAPS),
    ],
)
def test_features_of_another_head_are_refused(name, options, shapes, message):
    for shape in shapes:
        method = build(name, OBSERVED, **options).method
        with pytest.raises(ValueError, match=message):
            method.prepare(torch.zeros(shape))
