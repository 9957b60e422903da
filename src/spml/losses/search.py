"""What may be searched over in a method, declared beside its signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Factory = TypeVar("Factory", bound=Callable[..., Any])
Options = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Values of a method's options that are worth trying; the learning rate is searched besides, for every method.

    Attributes:
        dimensions: what a search varies independently, each a choice between sets of options.
        alternatives: what a grid tries beside the published options: the first of these that differs from them.
    """

    dimensions: Mapping[str, tuple[Options, ...]] = field(default_factory=dict)
    alternatives: tuple[Options, ...] = ()

    def alternative(self, published: Mapping[str, Any]) -> Options | None:
        """The options to try beside the published ones; None where there is nothing else."""
        return next((options for options in self.alternatives if differs(options, published)), None)

    def without(self, fixed: Iterable[str]) -> Space:
        """The same less every set of options that would change one of these."""
        names = frozenset(fixed)
        free = {
            name: tuple(options for options in choices if names.isdisjoint(options))
            for name, choices in self.dimensions.items()
        }
        dimensions = {name: choices for name, choices in free.items() if choices}
        return Space(
            dimensions, tuple(options for options in self.alternatives if names.isdisjoint(options))
        )


def searched(*alternatives: Options, **dimensions: Sequence[Any]) -> Callable[[Factory], Factory]:
    """Marks a method with what may be searched over.

    Args:
        alternatives: sets of options for a grid to try beside the published ones, the best first.
        dimensions: by the name of an option, its values; or by any name, sets of options that belong together.
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
    """A value as JSON would give it back: pairs are lists."""
    return [plain(part) for part in value] if isinstance(value, (tuple, list)) else value
