"""Settings that the user leaves open, and options that own data decide: gr's k_hat, epr's count."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from spml import losses
from spml.bench.plan import trimmed
from spml.data import Experiment, LabelTable, load
from spml.train import Settings, fit
from spml.train.resolve import COMPILE_FROM, method_options, resolve
from tests.conftest import refused
from tests.train.settings import experiment

VECTORS = experiment("mine.npz", np.zeros((3, 5), np.float32))


def has(settings, **expected):
    """Assert these values of resolved settings."""
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.fixture(scope="module")
def digits():
    return load("digits")


DATA = {
    "pictures": None,
    "array": np.zeros((3, 3, 8, 8), np.uint8),
    "wide array": np.zeros((3, 3, 8, 12), np.uint8),
    "features": np.zeros((3, 5), np.float32),
}
ASKED = {
    "nothing": {},
    "linear init": {"linear_init": 2},
    "rates of linear init": {"linear_init": 2, "linear_lr": 0.5, "linear_batch_size": 4},
    "crop": {"crop": 0.5},
    "patience": {"patience_drop": 1.0},
    "query head": {"head": "query"},
    "a GPU": {"accelerator": "cuda"},
    "all of the machine": {
        "precision": "bf16-mixed",
        "cache": "memory",
        "eval_batch_size": 7,
        "compile": "graphs",
    },
}


@pytest.mark.parametrize("data", [*DATA, "voc", "digits"])
@pytest.mark.parametrize("asked", ASKED)
def test_nothing_is_left_undecided(digits, data, asked):
    own = experiment("mine", DATA[data]) if data in DATA else experiment(data)
    own = digits if data == "digits" else own
    if data == "features" and asked in ("crop", "linear init", "rates of linear init"):
        return
    settings = resolve(Settings(**ASKED[asked]), own)
    assert not [name for name, value in vars(settings).items() if value is None]
    has(settings, **ASKED[asked])


@pytest.mark.parametrize("asked", ASKED)
def test_config_records_what_is_off_or_depends_on_the_machine_as_null(digits, asked):
    config = resolve(Settings(**ASKED[asked]), digits).as_config()
    assert list(config) == [field.name for field in fields(Settings)]
    null = {name for name, value in config.items() if value is None}
    off = {"size", "crop", "patience_drop", "precision", "eval_batch_size", "cache", "cache_dir"}
    linear = set() if "linear_init" in ASKED[asked] else {"linear_lr", "linear_batch_size"}
    assert null == (off | linear) - set(ASKED[asked])


@pytest.mark.parametrize(
    ("name", "epochs", "batch", "lr"),
    [("voc", 8, 8, 1e-5), ("coco", 8, 16, 1e-5), ("nuswide", 10, 16, 1e-5), ("cub", 10, 8, 5e-5)],
)
def test_benchmarks_use_the_protocol_of_the_paper(name, epochs, batch, lr):
    settings = resolve(Settings(method="an"), experiment(name))
    has(settings, epochs=epochs, batch_size=batch, lr=lr, head_lr=10, optimizer="adam")
    has(settings, backbone="resnet50", weights="pretrained", size=448, flip=True, weight_decay=0)
    has(settings, observe_seed=1200, split_seed=1200)


@pytest.mark.parametrize(("items", "lr"), [(10, 1.5e-4), (1200, 1e-4), (9000, 5e-5)])
def test_on_pictures_of_a_user_a_run_of_few_steps_learns_faster(items, lr):
    own = replace(experiment("mine.csv"), train_rows=np.arange(items))
    has(resolve(Settings(), own), lr=lr, method="auto", backbone="tf_efficientnet_lite0")
    has(resolve(Settings(), own), epochs=10, batch_size=16, size=448)


@pytest.mark.parametrize(
    ("explicit", "times"), [({}, 10), ({"method": "mime"}, 1), ({"head": "query"}, 1)]
)
def test_on_data_of_a_user_a_transformer_learns_no_faster_than_the_backbone(explicit, times):
    vectors, pictures = experiment("mine.npz", np.zeros((3, 8), np.float32)), experiment("mine.csv")
    for own in (vectors, pictures):
        assert resolve(Settings(**explicit), own).head_lr == times
        assert resolve(Settings(**explicit, head_lr=3.0), own).head_lr == 3
    assert resolve(Settings(**explicit), experiment("voc")).head_lr == 10  # of the protocol


@pytest.mark.parametrize(("method", "times"), [("smile", 1), ("lagc", 1), ("mime", 10), ("an", 10)])
def test_on_the_benchmarks_the_head_learns_at_its_published_rate(method, times):
    assert resolve(Settings(method=method), experiment("voc")).head_lr == times
    assert resolve(Settings(method=method, head_lr=3.0), experiment("voc")).head_lr == 3


@pytest.mark.parametrize("method", ["smile", "mime", "lagc", "gr"])
def test_methods_that_were_published_with_frozen_batch_norm_freeze_pretrained_statistics(method):
    frozen = method != "gr"
    for data in ("voc", "mine.csv"):
        assert resolve(Settings(method=method), experiment(data)).frozen_norm == frozen
        assert not resolve(Settings(method=method, weights="none"), experiment(data)).frozen_norm
        other = Settings(method=method, frozen_norm=not frozen)
        assert resolve(other, experiment(data)).frozen_norm != frozen


@pytest.mark.parametrize(
    ("method", "lr", "head_lr"), [("gr", 3e-3, 10), ("mime", 1e-3, 1), ("lagc", 1e-3, 1)]
)
def test_digits_use_the_tiny_backbone_at_their_own_size_with_rates_for_the_head(
    digits, method, lr, head_lr
):
    settings = resolve(Settings(method=method), digits)
    has(settings, lr=lr, head_lr=head_lr, size=digits.observed.x.shape[-1])
    has(settings, backbone="tiny", weights="none", flip=False, selection="complete")


@pytest.mark.parametrize(("items", "size"), [(3, 16), (2000, 40), (90_000, 128)])
def test_features_use_a_linear_model_and_fifty_steps_an_epoch_within_bounds(items, size):
    settings = resolve(Settings(), replace(VECTORS, train_rows=np.arange(items)))
    has(settings, backbone="linear", weights="none", selection="observed", flip=False, size=0)
    has(settings, epochs=30, lr=2e-4, head_lr=10, batch_size=size)


@pytest.mark.parametrize("explicit", [{"size": 32}, {"flip": True}, {"crop": 0.5}])
def test_settings_of_pictures_are_refused_for_features(explicit):
    with refused(f"^{next(iter(explicit))} is for pictures, but the data are feature vectors"):
        resolve(Settings(**explicit), VECTORS)
    assert resolve(Settings(flip=False), VECTORS).flip is False


def test_arrays_keep_their_size_and_the_method_chooses_the_head():
    own = experiment("mine.npz", np.zeros((3, 3, 8, 8), np.uint8))
    settings = resolve(Settings(method="boostlu"), own)
    has(settings, backbone="tf_efficientnet_lite0", size=8, head="boostlu", flip=True)
    assert resolve(Settings(method="boostlu", head="query"), own).head == "query"
    assert resolve(Settings(method="smile"), own).head == "query"
    assert resolve(Settings(method="smile"), VECTORS).head == "linear"


@pytest.mark.parametrize("shape", [(3, 3, 8, 12), (3, 3, 12, 8)])
def test_arrays_that_are_not_square_use_their_longer_side(shape):
    own = experiment("mine.npz", np.zeros(shape, np.uint8))
    assert (resolve(Settings(), own).size, resolve(Settings(size=6), own).size) == (12, 6)


@pytest.mark.parametrize(
    ("explicit", "weights"),
    [
        ({"backbone": "tiny"}, "none"),
        ({"backbone": "resnet18"}, "pretrained"),
        ({"backbone": "tiny", "weights": "mine.pth"}, "mine.pth"),
    ],
)
def test_the_tiny_backbone_has_no_pretrained_weights(explicit, weights):
    assert resolve(Settings(**explicit), experiment("voc")).weights == weights


@pytest.mark.parametrize(("fewer", "how"), [(1, "graphs"), (0, "compile")])
def test_a_long_run_on_one_gpu_is_compiled(fewer, how):
    own = experiment("mine.csv")
    epochs = COMPILE_FROM // len(own.train_rows) - fewer
    assert resolve(Settings(accelerator="cuda", epochs=epochs), own).compile == how
    several = Settings(accelerator="cuda", epochs=epochs, devices=2)
    assert resolve(several, own).compile == "none"


ABOVE_0 = ("epochs", "batch_size", "lr", "head_lr", "size", "linear_lr", "linear_batch_size")
AND_MORE = ("devices", "nodes", "eval_batch_size", "checkpoint_minutes")
NOT_NEGATIVE = ("seed", "linear_init", "patience_drop", "weight_decay")


@pytest.mark.parametrize("name", [*ABOVE_0, *AND_MORE, *NOT_NEGATIVE])
def test_impossible_values_are_refused(digits, name):
    for value in (0, -1, float("nan")):
        if value == 0 and name in NOT_NEGATIVE:
            assert getattr(resolve(Settings(**{name: value}), digits), name) == 0
        elif value == value or name not in ("seed", "linear_init"):  # integers have no NaN
            with refused(f"^{name} must"):
                resolve(Settings(**{name: value}), digits)


def test_numbers_of_numpy_become_plain_numbers(digits):
    settings = resolve(
        Settings(epochs=np.int64(3), lr=np.float32(0.5), flip=np.bool_(True)), digits
    )
    assert json.dumps([settings.epochs, settings.lr, settings.flip]) == "[3, 0.5, true]"
    options = {"q2": np.int64(1), "q3": (np.float32(0.5), 1), "mu": [np.float64(0.5)] * 3}
    chosen = method_options("gr", "digits", options)
    assert json.dumps([chosen[name] for name in options]) == "[1, [0.5, 1], [0.5, 0.5, 0.5]]"


@pytest.mark.parametrize("value", [np.zeros(3), (np.zeros(3), np.ones(3)), torch.ones(2)], ids=str)
def test_options_that_json_cannot_store_are_refused(value):
    with refused(r"option w cannot be stored in config.json; use .* lists"):
        method_options("gr", "digits", {"w": value})


def test_labels_that_choose_the_epoch_must_exist():
    with refused("needs complete validation labels, which these data lack; use .observed."):
        resolve(Settings(selection="complete"), experiment("mine.csv"))
    with refused("selection must be 'complete' or 'observed', not 'all'"):
        resolve(Settings(selection="all"), experiment("mine.csv"))


def test_a_benchmark_uses_the_published_options_of_a_method():
    assert method_options("gr", "coco", {})["w"] == (0.0, 10.0)
    assert method_options("gr", "coco", {"w": 3})["w"] == 3
    assert method_options("gr", "digits", {"q3": 2})["w"] == (0.0, 2.0)
    assert set(method_options("gr", "digits", {})) == {
        option.name for option in losses.options("gr")
    }


def test_completely_labelled_validation_rows_choose_the_epoch():
    labels = np.array([[1, 0], [0, 1], [1, -1]], np.int8)
    own = replace(
        experiment("my.csv"), observed=LabelTable(["a", "b", "c"], ["one", "two"], labels)
    )
    assert resolve(Settings(), own).selection == "complete"
    assert own.validation_labels("complete").tolist() == [[1, -1]]
    # Stored sparse, without the negatives.
    known = own.observed.with_labels(np.array([[-1, -1], [-1, 1], [1, -1]], np.int8))
    assert replace(own, observed=known).validates_completely
    other = replace(own, train_rows=np.array([0, 2]), val_rows=np.array([1]))
    assert resolve(Settings(), other).selection == "observed"


FLAT = {"w": [0.0, 2.0], "b": [-2.0, -2.0]}
STEEP = {"w": [0.0, 10.0], "b": [-2.0, -8.0]}


def observed_data(classes, rows, *, name="mine.csv", x=None, observed=1):
    """Rows that show `observed` classes each; the last 10 are for validation."""
    labels = np.zeros((rows + 10, classes), np.int8)
    for k in range(observed):
        labels[np.arange(rows + 10), (np.arange(rows + 10) + k) % classes] = 1
    items, names = [f"{row}.jpg" for row in range(rows + 10)], [f"c{c}" for c in range(classes)]
    table = LabelTable(items, names, labels, x=x)
    train, val = np.arange(rows), np.arange(rows, rows + 10)
    return Experiment(name, table.classes, table, None, train, val, None, "observed")


def vectors(rows, width=3):
    return np.random.default_rng(0).normal(size=(rows + 10, width)).astype(np.float32)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (observed_data(20, 800), FLAT),
        (observed_data(20, 799), STEEP),
        (observed_data(21, 2100), STEEP),
        (observed_data(21, 21, x=vectors(21)), FLAT),
        (observed_data(80, 100, name="digits"), FLAT),
    ],
    ids=["VOC's", "few positives", "many classes", "vectors", "named data"],
)
def test_gr_takes_its_pseudo_labels_from_classes_and_observed_positives(data, expected):
    chosen = method_options("gr", data, {})
    assert {name: list(chosen[name]) for name in expected} == expected


def test_what_the_user_sets_stays_with_the_defaults_that_belong_to_it():
    chosen = method_options("gr", observed_data(80, 100), {"w": (0.0, 4.0)})
    assert (chosen["w"], chosen["b"]) == ((0.0, 4.0), (-2.0, -2.0))
    assert method_options("epr", observed_data(5, 20), {COUNT: 3})[COUNT] == 3


COUNT = "expected_positives"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (observed_data(5, 20), 1.5),
        (observed_data(5, 20, observed=2), 3.0),
        (observed_data(5, 20, observed=4), 5.0),
        (observed_data(5, 20, x=vectors(20)), 2.9),
        (observed_data(5, 20, x=vectors(20), name="digits"), 1.5),
    ],
    ids=["one observed", "two observed", "at most all", "vectors", "named data"],
)
def test_epr_counts_from_the_observed_positives_of_an_item(data, expected):
    assert method_options("epr", data, {})[COUNT] == expected


def test_a_bench_keeps_an_option_that_own_data_would_decide_otherwise():
    assert trimmed("gr", "mine.csv", {**FLAT, "q3": 1.0}) == FLAT
    assert trimmed("gr", "digits", {**FLAT, "q3": 1.0}) == {}


def test_a_run_prints_and_records_what_the_data_decided(tmp_path, capsys):
    data = observed_data(4, 40, x=vectors(40))
    for method, options in (("gr", {}), ("gr", {"w": 3.0}), ("an", {})):
        out = tmp_path / f"{method}{len(options)}"
        settings = Settings(method=method, epochs=1, accelerator="cpu")
        fit(data, settings, out, options=options)
        config = json.loads((out / "config.json").read_text())
        recorded = config["options"]
        first = capsys.readouterr().out.splitlines()[0]
        shown = "gr (w 0 to 2, b -2 to -2 for 4 classes, 40 observed positives) on linear" in first
        assert shown == (method == "gr" and not options)
        assert config.get("options_from_data") == (["b", "w"] if shown else None)
        assert set(recorded) == {option.name for option in losses.options(method)}
        assert method != "gr" or recorded["w"] == options.get("w", FLAT["w"])
