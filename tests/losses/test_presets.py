"""Published settings: complete, sourced, valid, and equal to the sources."""

from ast import literal_eval
from dataclasses import fields

import pytest

from spml import losses
from spml.data.benchmarks import NAMES as DATASETS
from spml.losses.registry import GR_TRAINING
from spml.runs.settings import Settings

from .common import NAMES

# One value is for all data sets; four are for voc, coco, nuswide and cub, "-" where there is none.
# A capital name stands for its line.
PUBLISHED_VALUES = """
PROTOCOL     batch_size=8|16|16|8 lr=1e-5|1e-5|1e-5|5e-5 epochs=8|8|10|10 head_lr=10
POSITIVES    expected_positives=1.5|2.9|1.9|31.4
ONE_CYCLE    batch_size=8|128|16|8 lr=1e-5|1e-4|1e-5|5e-5 head_lr=10|1|10|10 reduction=-|sum|-|-
ONE_CYCLE    schedule=-|one-cycle|-|- weight_decay=-|1e-4|-|-
HILL         ONE_CYCLE epochs=8|31|10|10 margin=1 gamma=2
LARGE_LOSS   batch_size=16 lr=5e-3|1e-5|1e-5|7.5e-5 epochs=10 optimizer=sgd|adam|adam|adam
LARGE_LOSS   weight_decay=1e-3|0|0|0 patience_drop=3
EM           alpha=0.2|0.1|0.1|0.01 lr=1e-5|1e-5|1e-5|1e-4 epochs=10 head_lr=1
GR           q2=0.01 q3=1|1|1|1.5 mu=(0.5,0.8) sigma=(2.0,0.5) patience_drop=2
an           epochs=10
an_ls        smoothing=0.1 epochs=10 linear_lr=1e-4 linear_batch_size=8|8|16|8
wan          epochs=10
epr          POSITIVES epochs=10
role         POSITIVES epochs=10 linear_lr=1e-3 linear_batch_size=16|16|16|8
focal        gamma=2
asl          ONE_CYCLE epochs=8|40|10|10 gamma_neg=4 gamma_pos=1|0|1|1 clip=0.05
hill         HILL lam=1.5
splc         HILL tau=0.6 from_epoch=2
ll_r         LARGE_LOSS delta=0.002|0.004|0.004|0.004
ll_ct        LARGE_LOSS delta=0.002|0.002|0.002|0.004
ll_cp        LARGE_LOSS delta=0.001|0.002|0.002|0.002
boostlu      delta=0.005 batch_size=16 lr=1e-5 epochs=10
em           EM patience_drop=0
em_apl       EM beta=0.02|0.9|0.2|0.4 warmup=5|5|4|3 theta=0.9
en           POSITIVES count=observed momentum=0.8 start=observed power=2
mime         theta=0.95 beta=1e-4 warmup=2|2|2|5 batch_size=32|32|16|16 lr=1e-4 epochs=10
mime         optimizer=adamax frozen_norm=True head=query-normal
gce          q=0.7
sce          alpha=0.1 beta=1 A=-4
taylor_ce    order=2
gr           GR w=(0,2)|(0,10)|(0,10)|(0,10) b=(-2,-2)|(-2,-8)|(-2,-8)|(-2,-8)
gr_learnable GR w=0 b=-2 own_lr=0.1 own_momentum=0.9 own_decay=1e-3
crisp        delta=0.01 tau=0.01 epochs=10
lagc         tau=0.6 tau_second=0.9 temperature=0.5 queue=512 size=128 batch_size=32 lr=1e-4
lagc         epochs=80 head_lr=1 optimizer=adamw schedule=one-cycle weight_decay=1e-2
lagc         frozen_norm=True head=query lam=1 lac=1
smile        alpha=0.1 beta=0.01 theta=0.01 kl_embedding=1e-5 kl_beta=1e-5 warmup=2 lr=1e-5
smile        lam=0.1|0.01|0.1|0.001 epochs=10|10|10|20 optimizer=adam
smile        head=query head_lr=1 frozen_norm=True size=128|64|128|128
smile        queue=2048 queue_temperature=1 tau=0.9
full         epochs=10
"""
DEFAULT_VALUES = """
asl          detach=True
hill         variant=original
splc         variant=original lam=1.5
ll_cp        variant=meant
em_apl       base=em variant=original
en           cl=0 scl=0
mime         rule=add sample=True
crisp        positive_weight=2 prior_weight=1
lagc         first=0.5
smile        k=3 gamma=1e-3 delta=1 temperature=1 kl=correct own_lr=1e-3 sample=True
smile        contrast=draws detach=False
gr_learnable learn_alpha=True
"""


def value(text):
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def tables(text):
    """By name and option, the values of a table for each data set."""
    read = {}
    for line in text.strip().splitlines():
        name, *settings = line.split()
        for setting in settings:
            option, _, values = setting.partition("=")
            new = {option: ([*map(value, values.split("|"))] * 4)[:4]} if values else read[option]
            read.setdefault(name, {}).update(new)
    return read


PUBLISHED, DEFAULTS = tables(PUBLISHED_VALUES), tables(DEFAULT_VALUES)
PROTOCOL = PUBLISHED["PROTOCOL"]


def of(number, values):
    """The values for one of the data sets."""
    return {key: each[number] for key, each in values.items() if each[number] != "-"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_settings_for_every_benchmark(name, dataset):
    preset = losses.preset(name, dataset)
    options = {option.name for option in losses.options(name)}
    settings = {field.name for field in fields(Settings)}
    assert set(preset.options) <= options
    assert set(PROTOCOL) <= set(preset.training) <= settings
    assert set(preset.search) <= options | settings
    searched = {f"search.{key}" for key in preset.search}
    assert set(preset.sources) == set(preset.options) | set(preset.training) | searched
    assert all(preset.sources.values())
    assert set(preset.sources.values()) != {GR_TRAINING}, "nothing but the protocol"
    losses.check_options(name, preset.options)
    Settings(method=name, **preset.training)
    if not losses.needs(name):
        losses.create(name, **preset.options)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.islower()])
def test_presets_are_the_published_values(name):
    for number, dataset in enumerate(DATASETS):
        preset = losses.preset(name, dataset)
        assert {**preset.options, **preset.training} == of(number, {**PROTOCOL, **PUBLISHED[name]})


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_the_values_published_for_voc(name):
    defaults = {option.name: option.default for option in losses.options(name)}
    expected = {**losses.preset(name, "voc").options, **of(0, DEFAULTS.get(name, {}))}
    assert {option: defaults[option] for option in expected} == expected


@pytest.mark.parametrize("name", ["an", "an_ls", "wan", "epr", "role", "full"])
def test_the_first_methods_were_searched_over_rates_and_batches(name):
    search = losses.preset(name, "coco").search
    assert search == {"lr": (1e-2, 1e-3, 1e-4, 1e-5), "batch_size": (8, 16)}


def test_sources_state_what_is_not_published():
    for dataset in DATASETS:
        sources = losses.preset("en", dataset).sources
        assert "Cole" in sources["expected_positives"]
        for name in ("momentum", "count", "start", "power"):
            assert "not published" in sources[name]


def test_unknown_names_are_refused():
    known = "presets exist for voc, coco, nuswide, cub, not 'imagenet'"
    with pytest.raises(ValueError, match=known):
        losses.preset("gr", "imagenet")
    with pytest.raises(ValueError, match=r"no method 'grr'; 'gr'\?"):
        losses.preset("grr", "voc")
