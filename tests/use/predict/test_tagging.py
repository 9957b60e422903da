import json
from dataclasses import replace

import numpy as np
import pytest

from spml.errors import UserError
from spml.model import ModelInfo
from spml.use.predict.predict import Rule, check_classes, named_classes, parse_thresholds
from tests.use.conftest import PICTURES

INFO = ModelInfo(["dog", "cat", "a=b"], "tiny", PICTURES, [0.5, 0.6, 0.7])
LOGITS = np.array([[1.0, 0.2, -3.0], [-1.0, -0.5, -2.0], [3.0, 2.0, 4.0]], np.float32)


def tagged(*thresholds, info=INFO, logits=LOGITS, **rule):
    return Rule(parse_thresholds(thresholds, info), **rule).columns(logits, LOGITS, info)


def test_stored_thresholds_are_for_calibrated_logits_and_others_for_the_logits_written():
    assert tagged() == [[0], [], [0, 1, 2]]
    shift = [[[0.0, 1.0], [5.0, 6.0]]] * 3  # calibrated logits are 5 above the model's own
    how = {"info": replace(INFO, calibration=shift), "logits": LOGITS - 5}
    assert tagged(**how) == tagged(raw=True, **how) == [[0], [], [0, 1, 2]]
    assert tagged("cat=0.001", raw=True, **how) == [[0, 1], [1], [0, 1, 2]]
    assert tagged("0.3", raw=True, **how) == [[], [], []]
    assert tagged("0.3", **how) == [[0, 1], [1], [0, 1, 2]]
    assert tagged("dog=0.0") == [[0], [0], [0, 1, 2]]


def test_thresholds_are_given_for_all_classes_for_one_or_in_a_file(tmp_path):
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"cat": 0.25, "a=b": 0}))
    assert parse_thresholds(["0.3", "dog=0.9"], INFO) == {0: 0.9, 1: 0.3, 2: 0.3}
    assert parse_thresholds(["dog=0.9", "0.3"], INFO) == {0: 0.3, 1: 0.3, 2: 0.3}
    assert parse_thresholds(["a=b=0.2", str(file)], INFO) == {2: 0.0, 1: 0.25}
    stored = {"classes": ["cat", "dog"], "thresholds": [0.1, 0.2], "backbone": "tiny"}
    file.write_text(json.dumps(stored))
    assert parse_thresholds([str(file)], INFO) == {1: 0.1, 0: 0.2}


@pytest.mark.parametrize(
    "text,message",
    [
        ("1.5", "'1.5' is no probability"),
        ("nan", "no probability"),
        ("half", "no probability"),
        ("dgo=0.3", "no class 'dgo'; did you mean 'dog'?"),
        ("dog=", "no probability"),
        ("dog=-1", "no probability"),
        ("gone.json", "gone.json: No such file"),
    ],
)
def test_invalid_thresholds_are_refused(text, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        parse_thresholds([text], INFO)


@pytest.mark.parametrize(
    "content,message",
    [
        ("{", "not JSON"),
        ("[0.5, 0.5]", "must hold thresholds by class name"),
        ('{"dog": true}', "True is no probability"),
        ('{"dog": null}', "None is no probability"),
        ('{"bird": 0.5}', "no class 'bird'"),
        ('{"classes": ["dog"], "thresholds": [1, 1]}', "one number for each"),
        ('{"classes": ["dog"]}', "no class 'classes'"),
        ('{"classes": 3, "thresholds": [1]}', "no class 'classes'"),
        ("\xff", "not JSON"),
    ],
)
def test_a_file_without_thresholds_is_refused(tmp_path, content, message):
    (tmp_path / "t.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=message) as error:
        parse_thresholds([str(tmp_path / "t.json")], INFO)
    assert "t.json" in str(error.value)


def test_the_most_probable_classes_by_number():
    assert tagged(top_k=2) == [[0, 1], [1, 0], [2, 0]]
    assert tagged(at_least=1) == [[0], [1], [0, 1, 2]]
    assert tagged(at_least=2) == [[0, 1], [1, 0], [0, 1, 2]]
    stay = tagged("a=b=0.0", "dog=1", "cat=1", at_least=2)
    assert stay == [[2, 0], [2, 1], [2, 0]]  # classes that reach their thresholds


def test_names_are_joined_by_commas_unless_a_class_has_one(make_model):
    run = make_model(classes=["dog", "cat", "salt, pepper"])
    assert named_classes(None, run) == []
    assert named_classes("dog", run) == ["dog"]
    assert named_classes("dog, cat,", run) == ["dog", "cat"]
    assert named_classes("salt, pepper", run) == ["salt, pepper"]


def test_contradictory_rules_are_refused_and_others_accepted():
    one = {0: 0.5}
    for thresholds, top_k, at_least in (
        ({}, None, 0), ({}, 1, 0), ({}, 3, 0), ({}, None, 3), (one, None, 0), (one, None, 1),
    ):  # fmt: skip
        Rule(thresholds, top_k, at_least).check(INFO)
    for thresholds, top_k, at_least in (
        ({}, 0, 0), ({}, 4, 0), ({}, None, -1), ({}, None, 4), ({}, 1, 1), (one, 1, 0),
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"--top-k|--at-least"):
            Rule(thresholds, top_k, at_least).check(INFO)


@pytest.mark.parametrize(
    "names,message",
    [
        (["cat", "dog", "a=b"], "in another order, 'dog' first"),
        (["dog", "cta", "a=b"], "no class 'cta'; did you mean 'cat'"),
        (["dog", "cat"], "2 classes, the model has 3, such as 'a=b'"),
    ],
)
def test_another_class_list_is_refused(tmp_path, names, message):
    (tmp_path / "c.txt").write_text("\n".join(names))
    with pytest.raises(UserError, match=message):
        check_classes(tmp_path / "c.txt", INFO)
    (tmp_path / "c.txt").write_text("\n".join(INFO.classes))
    check_classes(tmp_path / "c.txt", INFO)
