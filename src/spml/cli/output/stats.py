"""What `spml stats` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spml.cli.output.tables import add_ends, columns, plain
from spml.data.benchmarks import PAPER
from spml.data.statistics import FEWEST, MOST_CLASSES, Pair, Statistics

ENDS = 10  # classes shown from each end, where there are many
ALL = 30  # classes of which none is left out


def print_statistics(console: Console, found: Statistics) -> None:
    """The paper's table, the constant of Remark 1, the classes and the pairs."""
    console.print(
        plain(found.name) + (f" ({found.version})" if found.version else ""),
        markup=False,
        soft_wrap=True,
    )
    console.print(_observation(found), markup=False, soft_wrap=True)
    console.print(_summary(found))
    console.print(_constant(found), markup=False, soft_wrap=True)
    console.print(_classes(found))
    if found.together is None:
        many = len(found.classes) > MOST_CLASSES
        why = f"more than {MOST_CLASSES:,} classes" if many else "no item has two known positives"
        console.print(f"Pairs of classes are not counted: {why}.\n")
        return
    if not found.complete:
        console.print(
            "The pairs are those among the known positives; how often classes truly meet is not known."
        )
    for name, pairs in found.pairs().items():
        console.print(_pairs(name, pairs))


def _observation(found: Statistics) -> str:
    if not found.complete:
        return "observed labels, as they stand: the true number of positives is not known"
    options = ", ".join(
        f"{key} {value}" for key, value in found.observation.items() if key != "model"
    )
    return f"observed labels drawn from complete ones: {found.observation.get('model', '?')} ({options})"


def _summary(found: Statistics) -> Table:
    """The paper's table of data sets, with the paper's own column where it has one."""
    paper = PAPER.get(found.name)
    out = columns("", "this data", *(["the paper"] if paper else []))

    def row(name: str, value: str, printed: str) -> None:
        out.add_row(name, value, *([printed] if paper else []))

    images = found.images
    row("classes", f"{len(found.classes):,}", f"{paper.classes:,}" if paper else "")
    row("images, training", f"{images['train']:,}", f"{paper.train:,}" if paper else "")
    row("images, validation", f"{images['val']:,}", f"{paper.val:,}" if paper else "")
    row("images, test", f"{images['test']:,}", f"{paper.test:,}" if paper else "")
    per = "labels per training image"
    known, no = found.seen.sum() / images["train"], found.negatives.sum() / images["train"]
    if found.complete:
        negative = len(found.classes) - found.positives
        row(f"{per}, positive", f"{found.positives:.2f}", f"{paper.positives}" if paper else "")
        row(
            f"{per}, negative",
            f"{negative:.2f}",
            f"{paper.classes - paper.positives:.4g}" if paper else "",
        )
    row(f"{per}, known positive", f"{known:.2f}", "")
    row(f"{per}, known negative", f"{no:.2f}", "")
    row(f"{per}, unknown", f"{found.unknown / images['train']:.2f}", "")
    return out


def _constant(found: Statistics) -> str:
    if found.missing is None:
        return (
            "Remark 1: the share of positives among the unknown labels is not known; "
            "complete labels would tell it.\n"
        )
    if found.constant is None:
        return "Remark 1: no label is unknown.\n"
    counts = f"{found.missing.sum():,} missing positives of {found.unknown:,} unknown labels"
    logit = (
        ""
        if found.logit is None
        else f"; its logit, the b(0) of Assumption 1, is {found.logit:.3f}"
    )
    return f"Remark 1: #{{y=1,s=0}} / #{{s=0}} = {found.constant:.4f} ({counts}){logit}\n"


def _classes(found: Statistics) -> Table:
    names = ["seen", "missing", "total"] if found.complete else ["known positives"]
    names += ["known negatives"] if found.negatives.any() else []
    out = columns(f"positives of {len(found.classes):,} classes", *names)
    order = (-found.total).argsort(kind="stable").tolist()
    counts = [found.seen] if found.missing is None else [found.seen, found.missing, found.total]
    counts += [found.negatives] if found.negatives.any() else []
    add_ends(out, [(found.classes[i], [count[i] for count in counts]) for i in order], ENDS, ALL)
    return out


def _pairs(name: str, pairs: list[Pair]) -> Table:
    heads = {
        "count": "pairs, most frequent first",
        "lift": f"pairs of at least {FEWEST} items, highest lift first",
    }
    out = columns(heads[name], "items", "lift")
    for pair in pairs:
        both = Text(f"{plain(pair.first)} + {plain(pair.second)}")
        out.add_row(both, f"{pair.items:,}", f"{pair.lift:.2f}")
    return out
