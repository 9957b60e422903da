"""What a method declares besides its signature: citation, published values, search space, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import cleandoc
from math import inf
from typing import Annotated, Any, Literal, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., Any])
Options = dict[str, Any]

SEARCHED = "search."


@dataclass(frozen=True)
class Range:
    """Numbers that an option admits, as part of its annotation: see `Share`.

    Attributes:
        low: least number.
        high: largest number.
        ends: which of the two belong to the range, as in interval notation.
    """

    low: float
    high: float = inf
    ends: Literal["[]", "[)", "(]", "()"] = "[]"

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.ends[0] == "[" else value > self.low
        return above and (value <= self.high if self.ends[1] == "]" else value < self.high)

    def __str__(self) -> str:
        closed, bounded = self.ends[0] == "[", self.high < inf
        if not bounded:
            return f"of {self.low:g} or more" if closed else f"above {self.low:g}"
        low = f"from {self.low:g}" if closed else f"above {self.low:g}"
        return f"{low} to {'' if self.ends[1] == ']' else 'below '}{self.high:g}"


Share = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(0, ends="[)")]
Above0 = Annotated[float, Range(0, ends="()")]
Count0 = Annotated[int, Range(0)]
Count1 = Annotated[int, Range(1)]
Eps = Annotated[float, Range(0, 1, "[)")] | None


@dataclass(frozen=True)
class Citation:
    """The publication that a method comes from.

    Attributes:
        authors: short form, such as "Cole et al.".
        title: of the publication.
        venue: conference, journal or archive.
        year: of the publication.
        link: address of the publication.
        repository: address of the authors' code.
        commit: of that repository, the one that was read.
        names: of all authors, in the publication's order.
    """

    authors: str
    title: str
    venue: str
    year: int
    link: str = ""
    repository: str = ""
    commit: str = ""
    names: str = ""


@dataclass(frozen=True)
class Published:
    """Values that one source gives for a method.

    Attributes:
        source: where the values come from: a paper, its code, or a search of your own.
        data: the data sets that the values are for; empty if they are for any.
        values: by the name of an option of the method or of a training setting.
        tried: by the same names, the values among which the source chose by validation.
    """

    source: str
    data: tuple[str, ...]
    values: Mapping[str, Any]
    tried: Mapping[str, Any]

    def covers(self, dataset: str) -> bool:
        """Whether the values are meant for this data set."""
        return not self.data or dataset in self.data


def published(
    source: str, *data: str, tried: Mapping[str, Any] | None = None, **values: Any
) -> Published:
    """Declare values of a source for the named data sets, or for any if none is named."""
    return Published(source, data, values, tried or {})


@dataclass(frozen=True)
class Preset:
    """Published values of a method on one data set.

    Attributes:
        options: to pass to create().
        training: fields of `spml.train.Settings`; linear_lr and linear_batch_size only matter with
            linear_init.
        sources: where each value comes from, by its name; names of `search` have the prefix
            "search.".
        search: the values that the source tried, if it chose among several by validation.
    """

    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """The value that a key of `sources` stands for."""
        if key.startswith(SEARCHED):
            return self.search[key.removeprefix(SEARCHED)]
        return (self.options if key in self.options else self.training)[key]


@dataclass(frozen=True)
class Space:
    """Values of a method's options to try; a search varies the learning rate as well.

    Attributes:
        dimensions: what a search varies independently, each a choice between sets of options.
        alternatives: a grid tries the first of these that differs from the published options.
    """

    dimensions: Mapping[str, tuple[Options, ...]] = field(default_factory=dict)
    alternatives: tuple[Options, ...] = ()

    def alternative(self, published: Mapping[str, Any]) -> Options | None:
        """The options to try beside the published ones; None if there are no others."""
        return next((options for options in self.alternatives if differs(options, published)), None)

    def without(self, fixed: Iterable[str]) -> Space:
        """The same space without the sets of options that would change one of the fixed options."""
        names = frozenset(fixed)

        def free(choices: Iterable[Options]) -> tuple[Options, ...]:
            return tuple(options for options in choices if names.isdisjoint(options))

        every = self.dimensions.items()
        dimensions = {name: left for name, choices in every if (left := free(choices))}
        return Space(dimensions, free(self.alternatives))


@dataclass(frozen=True, kw_only=True)
class About:
    """What a method declares besides its signature; `@method(...)` is this class.

    Attributes:
        citation: the publication that the method comes from.
        presets: published values; a later entry overrides an earlier one.
        notes: the text of the method's page in docs/methods/, in Markdown.
        examples: arguments of `spml train` to show there; by default it trains on digits.
        order: place in `losses.names()`; methods without one come last, by name.
        table2: row in Table 2 of the GR Loss paper, from 1.
        head: classifier head that the method is meant for; None leaves the class's attributes.
    """

    citation: Citation | None = None
    presets: Sequence[Published] = ()
    notes: str = ""
    examples: Sequence[str] = ()
    order: float = inf
    table2: int | None = None
    head: str | None = None

    def __call__(self, factory: Factory) -> Factory:
        """Mark a function or class as a method, which is listed under its own name."""
        marked: Any = factory
        shown = self.examples or (f"digits --method {factory.__name__}",)
        marked.about = replace(self, notes=cleandoc(self.notes), examples=shown)
        if self.head is not None:
            marked.head = marked.vector_head = self.head
        return factory


method = About


def searched(*alternatives: Options, **dimensions: Sequence[Any]) -> Callable[[Factory], Factory]:
    """Declare what a search may vary in a method.

    Args:
        alternatives: sets of options for a grid to try beside the published ones, the best first.
        dimensions: an option's name with its values, or any name with sets of related options.
    """
    choices = {
        name: tuple(value if isinstance(value, dict) else {name: value} for value in values)
        for name, values in dimensions.items()
    }

    def mark(factory: Factory) -> Factory:
        marked: Any = factory
        marked.space = Space(choices, alternatives)
        return factory

    return mark


def differs(options: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether any of the options has another value among the others."""
    return any(plain(others.get(name)) != plain(value) for name, value in options.items())


def plain(value: Any) -> Any:
    """A value as JSON returns it: tuples become lists."""
    return [plain(part) for part in value] if isinstance(value, (tuple, list)) else value
