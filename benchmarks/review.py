"""Measure `spml review`: the precision of its suggestions, and the gain in test mAP by answers.

python benchmarks/review.py --data digits           # CPU, a minute
python benchmarks/review.py --data features=FILE    # CPU; from benchmarks/voc_features.py
python benchmarks/review.py --data voc=DIR --weights FILE --cache DIR --jobs 4  # GPU

The DIR of voc holds VOCdevkit. For each seed, GR and AN are trained, and each ranks the unknown
labels of the training rows. The first 500 of either list, and 500 drawn at random, are answered
from the complete labels. GR is then trained again from scratch with the answers and the same seed.
The epoch is chosen with observed labels of the validation rows, which are never answered. Existing
records are not repeated. Tables: python benchmarks/render.py docs/review.md
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import environment, run_all

RESULTS = Path(__file__).parent / "results"
DEPTHS = (100, 500, 1000)
ARMS = ("gr's list", "an's list", "at random")
Record = dict[str, Any]
Options = dict[str, Any]


def load_data(options: Options) -> Any:
    from spml.data import load

    if options["data"] == "features":
        return load(options["root"], labels="complete")
    return load(options["data"], options["root"])


def train(
    options: Options, method: str, seed: int, experiment: Any, folder: Path
) -> tuple[Path, Record]:
    import torch

    from spml.train import Settings, fit

    own: dict[str, Any] = {}
    if options["data"] == "voc":
        from voc_plan import AT_LR

        own = {**AT_LR, "weights": options["weights"], "cache_dir": options["cache"]}
    elif options["data"] == "features":
        own = {"epochs": 8}
    own |= {key: options[key] for key in ("epochs", "size") if options[key] is not None}
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    settings = Settings(method=method, seed=seed, selection="observed", **own)
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    result = fit(experiment, settings, out, quiet=True)
    config = json.loads((out / "config.json").read_text())
    keys = (
        "options",
        "backbone",
        "epochs",
        "best_epoch",
        "selection",
        "val_map",
        "test_map",
        "observed_sha256",
    )
    about = {key: config[key] for key in ("size", "batch_size", "lr", "head_lr", "versions")}
    return out, {**{key: result[key] for key in keys}, **about, "seconds": result["seconds"]}


def before(options: Options, method: str, seed: int, folder: Path) -> Record:
    """Train, rank the unknown labels of the training rows, and measure the precision."""
    import numpy as np
    import torch

    from spml.model import load_model
    from spml.use.review.ranking import fit_scale, likeliest
    from spml.use.stored_model import score_readable

    experiment = load_data(options)
    run, record = train(options, method, seed, experiment, folder)
    model, info = load_model(run)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    table = experiment.observed.take(experiment.train_rows)
    logits, _ = score_readable(table, model, info, batch_size=64)
    observed, truth = table.labels, experiment.complete.rows(experiment.train_rows)
    rankings = {"list": fit_scale(logits, observed), **others(logits, observed)}
    precision = {}
    for name, ranking in rankings.items():
        rows, columns = likeliest(ranking, logits, observed, max(DEPTHS))
        right = truth[rows, columns] == 1
        precision[name] = {str(depth): float(right[:depth].mean()) for depth in DEPTHS}
        if name == "list":
            classes = len(np.unique(columns[: options["answers"]]))
            np.savez(
                entries(options, method, seed), rows=experiment.train_rows[rows], columns=columns
            )
    unknown = observed == 0
    counts = {"unknown": int(unknown.sum()), "missing": int((truth[unknown] == 1).sum())}
    return {
        "stage": "before",
        "row": method,
        "seed": seed,
        **counts,
        "precision": precision,
        "classes": classes,
    } | record


def others(logits: Any, observed: Any) -> dict[str, Any]:
    """Other ways to compare labels of different classes."""
    import numpy as np

    positives = [np.sort(logits[observed[:, c] == 1, c]) for c in range(logits.shape[1])]
    middle = np.array([np.median(values) if len(values) else np.inf for values in positives])

    def percentile(part: Any) -> Any:
        ranks = [
            np.searchsorted(v, part[:, c], side="right") / max(len(v), 1)
            for c, v in enumerate(positives)
        ]
        return np.stack(ranks, axis=1) + 1e-6 * part

    return {
        "logit": lambda part: part,
        "above the median": lambda part: part - middle,
        "percentile": percentile,
    }


def after(options: Options, arm: str, seed: int, folder: Path) -> Record:
    """Answer 500 labels from the complete ones, and train again."""
    import numpy as np

    from spml.use.review.answers import with_answers

    experiment = load_data(options)
    count = options["answers"]
    if arm == "at random":
        observed = experiment.observed.rows(experiment.train_rows)
        rows, columns = np.nonzero(observed == 0)
        chosen = np.random.default_rng((seed, 500)).choice(
            len(rows), min(count, len(rows)), replace=False
        )
        rows, columns = experiment.train_rows[rows[chosen]], columns[chosen]
    else:
        with np.load(entries(options, arm.removesuffix("'s list"), seed)) as file:
            rows, columns = file["rows"][:count], file["columns"][:count]
    values = np.array(
        [
            experiment.complete.rows([row])[0, column]
            for row, column in zip(rows, columns, strict=True)
        ]
    )
    labels = with_answers(experiment.observed.sparse, rows, columns, values)
    answered = replace(experiment, observed=experiment.observed.with_labels(labels))
    assert (answered.observed.rows(rows)[np.arange(len(rows)), columns] == values).all()
    _, record = train(options, "gr", seed, answered, folder)
    counts = {
        "answers": len(values),
        "positive": int((values == 1).sum()),
        "negative": int((values == -1).sum()),
    }
    return {"stage": "after", "row": arm, "seed": seed, **counts} | record


def upper(options: Options, row: str, seed: int, folder: Path) -> Record:
    """Train with all labels, for comparison."""
    _, record = train(options, "full", seed, load_data(options), folder)
    return {"stage": "full", "row": row, "seed": seed} | record


def entries(options: Options, method: str, seed: int) -> Path:
    return Path(options["work"]) / f"{options['data']}-{method}-{seed}.npz"


def main() -> None:
    from spml.files import write_json

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="digits", metavar="NAME[=PLACE]", help="digits, voc=DIR or features=FILE"
    )
    parser.add_argument(
        "--weights", default="pretrained", metavar="FILE", help="of tf_efficientnet_lite0, for voc"
    )
    parser.add_argument("--cache", type=Path, help="folder of decoded pictures")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--epochs", type=int, help="instead of the default of the data")
    parser.add_argument("--size", type=int, help="of pictures; default: 448")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument(
        "--work", type=Path, default=Path("build/review"), help="folder of the lists"
    )
    parser.add_argument("--json", type=Path, help="file of the results")
    parser.add_argument("--lists", default="gr,an", help="methods whose lists are answered")
    parser.add_argument(
        "--without-full", action="store_true", help="leave out the runs with all labels"
    )
    arguments = parser.parse_args()
    name, _, place = arguments.data.partition("=")
    if name not in ("digits", "voc", "features") or (name != "digits") != bool(place):
        parser.error(f"--data {arguments.data}: give digits, voc=DIR or features=FILE")
    out = arguments.json or RESULTS / f"review-{name}.json"
    options: Options = {
        "data": name,
        "root": place or None,
        "weights": arguments.weights,
        "cache": arguments.cache,
    }
    options |= {
        "answers": arguments.answers,
        "epochs": arguments.epochs,
        "size": arguments.size,
        "work": str(arguments.work.resolve()),
    }
    arguments.work.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    done: Record = json.loads(out.read_text()) if out.exists() else {"data": name, "records": []}
    done["environment"] = environment()

    def keep(record: Record) -> None:
        key = ("stage", "row", "seed")
        rest = [
            other
            for other in done["records"]
            if [other[k] for k in key] != [record[k] for k in key]
        ]
        done["records"] = sorted([*rest, record], key=lambda r: (r["stage"], r["row"], r["seed"]))
        write_json(out, done)
        shares = {
            name: f"{value['500']:.3f}" for name, value in record.get("precision", {}).items()
        }
        details = shares or {k: record[k] for k in ("positive", "negative") if k in record}
        name = f"{record['stage']} {record['row']} {record['seed']}"
        print(f"{name}: test {record['test_map']:.2f} {details}", flush=True)

    def recorded(stage: str, row: str, seed: int) -> bool:
        same = [
            r for r in done["records"] if (r["stage"], r["row"], r["seed"]) == (stage, row, seed)
        ]
        return bool(same) and (stage != "before" or entries(options, row, seed).exists())

    lists = arguments.lists.split(",")
    arms = [arm for arm in ARMS if arm == "at random" or arm.removesuffix("'s list") in lists]
    first = [("before", before, row, seed) for seed in seeds for row in lists]
    if not arguments.without_full:
        first += [("full", upper, "full", seed) for seed in seeds]
    second = [("after", after, row, seed) for seed in seeds for row in arms]
    for stage in (first, second):
        wanted = [
            (function.__name__, options, row, seed)
            for s, function, row, seed in stage
            if not recorded(s, row, seed)
        ]
        run_all(call, wanted, arguments.jobs, keep)


def call(function: str, options: Options, row: str, seed: int, folder: Path) -> Record:
    record: Record = globals()[function](options, row, seed, folder)
    return record


if __name__ == "__main__":
    main()
