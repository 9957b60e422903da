# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---
"""From presence-only records to probabilities per site, and what biased sampling does to them.

python examples/presence_only.py [FOLDER] [--short]
"""

# %% [markdown]
# # Presence-only records: which species live where?
#
# An observer visits a site and notes **one** species seen there. That a species is not noted
# means nothing, and a site without any species leaves no record. You want the probability of
# every species at every site of the map.
#
# A simulation knows the truth, so this script can measure what real records hide: how wrong the
# probabilities are, and how much worse they become if observers stay near roads or note the
# conspicuous species first. It needs about 40 seconds on two cores. With your own records, begin
# at *Train*.

# %%
import argparse
import csv
import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from spml.cli import main
from spml.metrics import average_precision

parser = argparse.ArgumentParser(description="Probabilities per site from presence-only records.")
parser.add_argument("folder", type=Path, nargs="?", default=Path("build/examples/presence_only"))
parser.add_argument("--short", action="store_true", help="fewer visits and two surveys")
options = parser.parse_args([] if "ipykernel" in sys.modules else None)  # a notebook has none

OUT = options.folder.resolve()
OUT.mkdir(parents=True, exist_ok=True)


def spml(line):
    """Run a command as typed in a shell; an error ends the script."""
    print(f"\n$ spml {line.replace(str(OUT), '.')}", flush=True)
    code = main(shlex.split(line))
    sys.stdout.flush()
    if code:
        raise SystemExit(code)


# %% [markdown]
# ## A landscape
#
# 60 × 60 sites. Elevation rises to the north-east, temperature falls with it, rain and forest
# vary in patches. A road runs through the lowland. Eight species prefer different conditions: the
# logarithm of the odds of finding one is a hump over temperature and rain, plus a preference for
# or against forest.

# %%
rng = np.random.default_rng(0)
SIDE = 60
y, x = (axis.ravel() / (SIDE - 1) for axis in np.mgrid[:SIDE, :SIDE])


def patches(scale):
    """A smooth random field over the sites with mean 0 and standard deviation 1."""
    field = np.zeros(SIDE * SIDE)
    for _ in range(12):
        a, b, phase = rng.normal(0, scale), rng.normal(0, scale), rng.uniform(0, 2 * np.pi)
        field += np.sin(a * x + b * y + phase)
    return (field - field.mean()) / field.std()


elevation = 1200 * np.clip(0.55 * x + 0.45 * y + 0.12 * patches(6), 0, None)
temperature = 16 - 0.007 * elevation + 0.4 * patches(8)
rain = 900 + 0.25 * elevation + 130 * patches(5)
forest = 1 / (1 + np.exp(-1.5 * patches(7)))
road = 20 * np.abs(y - 0.15 - 0.1 * np.sin(4 * x))  # distance in kilometres

SPECIES = [f"species_{letter}" for letter in "abcdefgh"]
optimum = np.stack([rng.uniform(8, 15, 8), rng.uniform(800, 1300, 8)])
likes_forest = rng.normal(0, 1.5, 8)
common = rng.uniform(-0.3, 1.7, 8)
logits = (
    common
    - ((temperature[:, None] - optimum[0]) / 2.2) ** 2
    - ((rain[:, None] - optimum[1]) / 220) ** 2
    + likes_forest * (forest[:, None] - 0.5)
)
probability = 1 / (1 + np.exp(-logits))  # of each species at each site: what we want to learn
present = rng.random(probability.shape) < probability
print(f"{present.sum(1).mean():.2f} species at a site; none at {(~present.any(1)).mean():.0%}")

# %% [markdown]
# ## Four surveys
#
# Each has 2,000 visits. A survey decides which sites are visited, and which of the species
# present is noted. *Conspicuous* species are noted up to twelve times as often as others.

# %%
VISITS = 1000 if options.short else 2000
everywhere, near_roads = np.ones(len(x)), np.exp(-road / 1.5)
any_species, conspicuous = np.ones(8), np.geomspace(1, 12, 8)
SURVEYS = {
    "unbiased": (everywhere, any_species),
    "near roads": (near_roads, any_species),
    "conspicuous": (everywhere, conspicuous),
    "both": (near_roads, conspicuous),
}
if options.short:
    SURVEYS = {name: SURVEYS[name] for name in ("unbiased", "conspicuous")}


def visit(site_weight, species_weight):
    """Visited sites and the species noted at each; a site without one leaves no record."""
    sites = rng.choice(len(x), VISITS, p=site_weight / site_weight.sum())
    sites = sites[present[sites].any(1)]
    noted = []
    for site in sites:
        weight = present[site] * species_weight
        noted.append(rng.choice(8, p=weight / weight.sum()))
    return sites, np.array(noted)


# %% [markdown]
# ## The files
#
# A row is a record: a name, the conditions and the species. The model is linear in the columns,
# so a hump needs the square as a column too, as in a logistic regression. The distance to the
# road is not a column: it describes the observers, not the species.

# %%
columns = {
    "env_temperature": temperature,
    "env_temperature2": (temperature - temperature.mean()) ** 2,
    "env_rain": rain,
    "env_rain2": ((rain - rain.mean()) / 100) ** 2,
    "env_forest": forest,
}


def write(path, sites, noted=None):
    """Write a CSV of records, or of sites without species."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["record", *columns, *([] if noted is None else ["label"])])
        for number, site in enumerate(sites):
            row = [f"{number}", *(f"{values[site]:.6g}" for values in columns.values())]
            writer.writerow(row if noted is None else [*row, SPECIES[noted[number]]])


write(OUT / "all_sites.csv", range(len(x)))
records = {}
for name, weights in SURVEYS.items():
    records[name] = visit(*weights)
    write(OUT / f"{name.replace(' ', '_')}.csv", *records[name])
print((OUT / "unbiased.csv").read_text()[:300])

# %% [markdown]
# Single records say little about **how many** species a site has. So somebody lists every species
# of 40 sites, chosen at random. Only the mean of their numbers is used below.

# %%
listed = present[rng.choice(len(x), 40, replace=False)].sum(1)
number = listed[listed > 0].mean()
print(f"{number:.2f} species at a site that has any, by complete lists of {len(listed)} sites")

# %% [markdown]
# ## Train, calibrate, predict
#
# The same three commands for each survey. `train` standardises the columns, `calibrate` turns
# scores into probabilities, and `predict` writes one row a site. All surveys use the method `em`,
# so that only the sampling differs; without `--method`, several methods race.
#
# The unbiased survey is also calibrated from its records alone, without the number of species.

# %%
CLASSES = f"--classes {','.join(SPECIES)}"
FEATURES = "--image-column record --features 'env_*'"
KNOWN = f"--positives-per-item {number:.2f}"
EPOCHS = 20 if options.short else 30


def probabilities(run, calibration=""):
    """Calibrate a model, predict all sites, and return their probabilities."""
    spml(f"calibrate {run} {calibration}")
    spml(f"predict {run} {OUT}/all_sites.csv --out {run}.csv --overwrite")
    with Path(f"{run}.csv").open(newline="") as rows:
        return np.array(
            [[float(row[species]) for species in SPECIES] for row in csv.DictReader(rows)]
        )


estimate = {}
for name in SURVEYS:
    file = name.replace(" ", "_")
    run = f"{OUT}/runs/{file}"
    spml(
        f"train {OUT}/{file}.csv {FEATURES} {CLASSES} --method em --epochs {EPOCHS} "
        f"--accelerator cpu --quiet --overwrite --out {run}"
    )
    if name == "unbiased":
        alone = probabilities(run)
    estimate[name] = probabilities(run, KNOWN)
print("\n".join(Path(f"{run}.csv").read_text().splitlines()[:3]))

# %% [markdown]
# ## What the probabilities are worth
#
# - **species a site**: the sum of a site's probabilities, in the mean over the map.
# - **error**: mean absolute difference from the true probability, over the whole map and over the
#   fifth of the sites farthest from the road.
# - **conspicuous**, **inconspicuous**: mean estimated minus mean true probability of the two
#   species that are noted most and least readily.
# - **mAP**: how well the probabilities order the sites of each species.
#
# Two rows come before the surveys. *No model*: every site gets each species' share of the records
# of the unbiased survey, times the number of species. *No lists*: the unbiased survey, calibrated
# from its records alone.

# %%
known = np.where(present, 1, -1)
far = road > np.quantile(road, 0.8)
shares = np.bincount(records["unbiased"][1], minlength=8) / len(records["unbiased"][1])
guesses = {"no model": np.tile(number * shares, (len(x), 1)), "no lists": alone, **estimate}
print(f"truth: {probability.sum(1).mean():.2f} species a site")
print(
    f"{'survey':<13} records  species a site  error  error far  conspicuous  inconspicuous    mAP"
)
for name, p in guesses.items():
    noted = len(records[name][0]) if name in records else len(records["unbiased"][0])
    wrong = np.abs(p - probability)
    bias = p.mean(0) - probability.mean(0)
    order = np.nanmean(average_precision(p, known))
    print(
        f"{name:<13} {noted:>7}  {p.sum(1).mean():>14.2f}  {wrong.mean():>5.3f}"
        f"  {wrong[far].mean():>9.3f}  {bias[-1]:>+11.3f}  {bias[0]:>+13.3f}  {100 * order:>5.1f}"
    )

# %% [markdown]
# In the maps of the most conspicuous species, white points are the records and the black line
# encloses the road.

# %%
figure, axes = plt.subplots(
    1, len(SURVEYS) + 2, figsize=(2.6 * len(SURVEYS) + 6, 3.2), layout="constrained"
)
for (name, p), marker in zip(estimate.items(), "os^D", strict=False):
    axes[0].scatter(probability.mean(0), p.mean(0), marker=marker, label=name, alpha=0.8, s=28)
axes[0].axline((0, 0), slope=1, color="grey", linewidth=1)
axes[0].set(xlabel="true share of sites", ylabel="mean estimated probability")
axes[0].set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title="eight species")
axes[0].legend(fontsize=7)
maps = {f"{SPECIES[-1]}: truth": probability, **estimate}
for axis, (name, p) in zip(axes[1:], maps.items(), strict=True):
    picture = axis.imshow(p[:, -1].reshape(SIDE, SIDE), origin="lower", vmin=0, vmax=1)
    axis.contour(road.reshape(SIDE, SIDE), [0.4], colors="black", linewidths=0.6)  # the road
    if name in records:
        sites = records[name][0]
        axis.plot(sites % SIDE, sites // SIDE, ".", color="white", markersize=1, alpha=0.5)
    axis.set_title(name)
    axis.set_axis_off()
figure.colorbar(picture, ax=axes[1:], shrink=0.8, label="probability")
figure.savefig(OUT / "presence_only.png", dpi=120)
print(f"figure: {OUT / 'presence_only.png'}")

# %% [markdown]
# ## What to take from it
#
# The numbers change with the seed of the landscape; these directions were the same for the seeds
# 0 to 3:
#
# - **How many** species a site has is the weak spot of single records: without the 40 lists it
#   was estimated as 2.6 to 3.6, and was 2.2 to 2.8. It moves all probabilities at once.
# - **Near roads**, the model sees a part of the conditions and extrapolates to the rest. The
#   error far from the road grows most. More records beside the road repeat the same conditions.
# - **Conspicuous species** get probabilities that are too high, inconspicuous ones too low. The
#   order of the sites *within* a species (mAP) hardly suffers. `calibrate` assumes that each
#   species of a site is noted with equal chance, and no figure that it prints reveals that this
#   is wrong.
# - Sites without any species are never in such records, so probabilities are those of a site that
#   has at least one.
#
# `spml` can use more, if you have it: known absences (the column `negative`), or complete lists
# of the validation sites (`spml calibrate --labels complete`).
