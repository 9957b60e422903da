"""Output of `spml stats`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spml.cli.output.tables import add_ends, columns, plain
from spml.data.benchmarks import paper_counts
from spml.data.statistics import MAX_CLASSES, MIN_ITEMS, Pair, Statistics

ENDS = 10  # classes shown from each end if there are many
ALL = 30  # up to this many classes are all shown


def print_statistics(console: Console, statistics: Statistics) -> None:
    """Print the paper's table, the share of missing positives, the classes and the pairs."""
    console.print(
        plain(statistics.name) + (f" ({statistics.version})" if statistics.version else ""),
        markup=False,
        soft_wrap=True,
    )
    console.print(_observation(statistics), markup=False, soft_wrap=True)
    console.print(_summary(statistics))
    console.print(_constant(statistics), markup=False, soft_wrap=True)
    console.print(_classes(statistics))
    if statistics.cooccurrence is None:
        many = len(statistics.classes) > MAX_CLASSES
        reason = f"more than {MAX_CLASSES:,} classes" if many else "no item has two known positives"
        console.print(f"Pairs of classes are not counted: {reason}.\n")
        return
    if not statistics.complete:
        console.print(
            "The pairs are those among the known positives; "
            "how often classes truly co-occur is not known."
        )
    for name, pairs in statistics.pairs().items():
        console.print(_pairs(name, pairs))


def _observation(statistics: Statistics) -> str:
    if not statistics.complete:
        return "observed labels of the data: the true number of positives is not known"
    options = ", ".join(
        f"{key} {value}" for key, value in statistics.observation.items() if key != "model"
    )
    model = statistics.observation.get("model", "?")
    return f"observed labels drawn from complete ones: {model} ({options})"


def _summary(statistics: Statistics) -> Table:
    """Return the paper's table of data sets, with the paper's own column if it has one."""
    images, per = statistics.images, "labels per training image"
    rows = [
        ("classes", f"{len(statistics.classes):,}"),
        ("images, training", f"{images['train']:,}"),
        ("images, validation", f"{images['val']:,}"),
        ("images, test", f"{images['test']:,}"),
    ]
    if statistics.complete:
        negative = len(statistics.classes) - statistics.positives
        rows += [(f"{per}, positive", f"{statistics.positives:.2f}")]
        rows += [(f"{per}, negative", f"{negative:.2f}")]
    known = {"known positive": statistics.seen.sum(), "known negative": statistics.negatives.sum()}
    for name, count in {**known, "unknown": statistics.unknown}.items():
        rows.append((f"{per}, {name}", f"{count / images['train']:.2f}"))

    out, printed = columns("", "this data"), list[str]()
    if (paper := paper_counts(statistics.name)) is not None:
        out.add_column("the paper", justify="right")
        printed = [f"{count:,}" for count in (paper.classes, paper.train, paper.val, paper.test)]
        printed += [f"{paper.positives}", f"{paper.classes - paper.positives:.4g}"]
    for place, (name, value) in enumerate(rows):
        out.add_row(name, value, *printed[place : place + 1])
    return out


def _constant(statistics: Statistics) -> str:
    """Return the share of positives among the unknown labels, the constant of Remark 1."""
    if statistics.missing is None:
        return "How many unlabelled entries are positive is not known; it needs complete labels.\n"
    if statistics.constant is None:
        return "Every entry is labelled.\n"
    text = (
        f"{statistics.missing.sum():,} of {statistics.unknown:,} unlabelled entries "
        f"({statistics.constant:.1%}) are positive"
    ).replace("%", " %")
    if statistics.logit is not None:
        text += f": Remark 1's constant is {statistics.constant:.4f}"
        text += f", and b(0) by Assumption 1 is {statistics.logit:.3f}"
    return f"{text}.\n"


def _classes(statistics: Statistics) -> Table:
    names = ["seen", "missing", "total"] if statistics.complete else ["known positives"]
    names += ["known negatives"] if statistics.negatives.any() else []
    out = columns(f"positives of {len(statistics.classes):,} classes", *names)
    order = (-statistics.total).argsort(kind="stable").tolist()
    counts = [statistics.seen]
    if statistics.missing is not None:
        counts += [statistics.missing, statistics.total]
    if statistics.negatives.any():
        counts.append(statistics.negatives)
    rows = [(statistics.classes[i], [f"{count[i]:,}" for count in counts]) for i in order]
    add_ends(out, rows, ENDS, ALL)
    return out


def _pairs(name: str, pairs: list[Pair]) -> Table:
    heads = {
        "count": "pairs, most frequent first",
        "lift": f"pairs of at least {MIN_ITEMS} items, highest lift first",
    }
    out = columns(heads[name], "items", "lift")
    for pair in pairs:
        both = Text(f"{plain(pair.first)} + {plain(pair.second)}")
        out.add_row(both, f"{pair.items:,}", f"{pair.lift:.2f}")
    return out
