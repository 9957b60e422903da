"""From a method's name to the method. A method's options, defaults and help are those of its signature."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor, nn

from spml.losses.method import Method
from spml.losses.search import Space

METHODS: dict[str, str] = {
    "an": "spml.losses.cross_entropy",
    "an_ls": "spml.losses.cross_entropy",
    "wan": "spml.losses.cross_entropy",
    "epr": "spml.losses.cross_entropy",
    "role": "spml.methods.role",
    "focal": "spml.losses.focal",
    "asl": "spml.losses.focal",
    "hill": "spml.losses.focal",
    "splc": "spml.losses.focal",
    "ll_r": "spml.losses.large_loss",
    "ll_ct": "spml.losses.large_loss",
    "ll_cp": "spml.methods.ll_cp",
    "boostlu": "spml.methods.boostlu",
    "em": "spml.losses.entropy",
    "em_apl": "spml.methods.em_apl",
    "en": "spml.methods.en",
    "mime": "spml.methods.mime",
    "gce": "spml.losses.robust",
    "sce": "spml.losses.robust",
    "taylor_ce": "spml.losses.robust",
    "gr": "spml.losses.gr",
    "gr_learnable": "spml.methods.gr_learnable",
    "crisp": "spml.methods.crisp",
    "lagc": "spml.methods.lagc",
    "smile": "spml.methods.smile.method",
    "full": "spml.losses.cross_entropy",
}

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    """One hyper-parameter of a method."""

    name: str
    default: Any
    help: str
    type: Any = None


def names() -> list[str]:
    """Every method."""
    return list(METHODS)


def create(name: str, **values: Any) -> Method:
    """The method of that name, a module to be called as loss(logits, observed, epoch=, epochs=, index=).

    Epochs count from 1. A call that does not say is of the first of one epoch: what moves over training then stands
    still, so that gr and the like want to be told.

    Args:
        name: one of names(), or "package.module:function" for one's own: a loss with the signature above
            (its first parameter is called `logits`), or a function or class that makes one.
        values: its options; and items, classes and observed (a table with rows(index)) where needs(name) has "items".
    """
    factory = _factory(name)
    check_options(name, values)
    known = {option.name: option for option in options(name)}
    missing = [
        option.name
        for option in known.values()
        if option.default is REQUIRED and option.name not in values
    ]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    method = CallableLoss(factory, values) if _is_loss(factory) else factory(**values)
    if not callable(method):
        raise ValueError(f"{name} makes a {type(method).__name__}, not a loss")
    if isinstance(method, Method) and not isinstance(method, CallableLoss):
        return method
    wrapped = method if isinstance(method, CallableLoss) else CallableLoss(method, {})
    wrapped.needs = needs(name)
    return wrapped


def check_options(name: str, values: Mapping[str, Any]) -> None:
    """Refuse what is not an option of the method, or not of its kind."""
    known = {option.name: option for option in options(name)}
    for given in values:
        if given not in known and not (given in GIVEN and "items" in needs(name)):
            raise ValueError(
                f"{name} has no option {given!r}{_near(given, known)} It has: {', '.join(known) or 'none'}"
            )
    for given, value in values.items():
        if given in known:
            _check_type(known[given], value)


def needs(name: str) -> frozenset[str]:
    """What the method wants besides logits and labels: of items, index, features, views, pass."""
    return frozenset(getattr(_factory(name), "needs", frozenset()))


def head(name: str, pictures: bool = True) -> str | None:
    """The classifier's head that the method is meant for, where it is not the linear one."""
    return getattr(_factory(name), "head" if pictures else "vector_head", None)


def space(name: str) -> Space:
    """What may be searched over in the method; empty where it declares nothing."""
    found = getattr(_factory(name), "space", None)
    return found if isinstance(found, Space) else Space()


def memory(name: str, items: int, classes: int, **values: Any) -> int:
    """Bytes that the method keeps for a training split of that size, with these options."""
    check_options(name, values)
    told = getattr(_factory(name), "memory", None)
    return 0 if told is None else int(told(items, classes, **values))


@lru_cache(maxsize=256)
def code(name: str) -> str | None:
    """SHA-256 of the file that a method of one's own stands in, as this process knows it; None for those of spml."""
    if name in METHODS:
        return None
    _factory(name)
    file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def as_python(value: Any) -> Any:
    """Numbers of numpy's, alone or in pairs and lists, as Python's own; all else as it is."""
    if type(value) in (tuple, list):
        return type(value)(map(as_python, value))
    return (
        value.item()
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
        else value
    )


def options(name: str) -> list[Option]:
    """The method's hyper-parameters with defaults and help, in the order of its signature."""
    factory = _factory(name)
    help_of = _argument_help(inspect.getdoc(factory) or "")
    parameters = list(inspect.signature(factory).parameters.values())
    if _is_loss(factory):
        parameters = [p for p in parameters[2:] if p.name not in CALL_ARGUMENTS]
    fixed = [
        p
        for p in parameters
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in GIVEN
    ]
    types = _types(factory)
    return [Option(p.name, p.default, help_of.get(p.name, ""), types.get(p.name)) for p in fixed]


def summary(name: str) -> str:
    """One line that says what the method is."""
    return (inspect.getdoc(_factory(name)) or "").partition("\n")[0]


CALL_ARGUMENTS = ("epoch", "epochs", "index", "features", "views")
GIVEN = (
    "items",
    "classes",
    "observed",
)  # what a loop tells a method of its data, as opposed to options


class CallableLoss(Method):
    """A plain function or module as a method; it is given those of the call's arguments that it names."""

    def __init__(self, function: Callable[..., Tensor], values: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.values = function, values
        called = function.forward if isinstance(function, nn.Module) else function
        parameters = inspect.signature(called).parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.takes = (
            CALL_ARGUMENTS
            if takes_any
            else tuple(p.name for p in parameters if p.name in CALL_ARGUMENTS)
        )

    def forward(self, logits: Tensor, observed: Tensor, **arguments: Any) -> Tensor:
        """Loss of a batch."""
        taken = {name: arguments[name] for name in self.takes if name in arguments}
        return self.function(logits, observed, **self.values, **taken)


def _factory(name: str) -> Callable[..., Any]:
    if name in METHODS:
        return getattr(import_module(METHODS[name]), name)  # type: ignore[no-any-return]
    module, colon, function = name.partition(":")
    if not colon:
        there = f"There are: {', '.join(METHODS)}, and package.module:function"
        raise ValueError(f"no method {name!r}{_near(name, METHODS)} {there}")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"method {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ValueError(f"method {name!r} is not a function or class")
    return found  # type: ignore[no-any-return]


def _types(factory: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):  # annotations of one's own that do not resolve say nothing
        return {}


def _check_type(option: Option, value: Any) -> None:
    """Refuse a value that the option's annotation does not admit."""
    value = as_python(value)
    alternatives = (
        get_args(option.type) if get_origin(option.type) in (Union, UnionType) else (option.type,)
    )
    wanted = []
    for kind in alternatives:
        if kind in (None, Any) or (
            kind not in (bool, int, float, str, type(None)) and get_origin(kind) is not Literal
        ):
            return  # not annotated, or something only the method itself can judge
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return
            wanted += [str(choice) for choice in get_args(kind)]
        elif isinstance(value, bool) == (kind is bool) and isinstance(
            value, (int, float) if kind is float else kind
        ):
            if value == value:  # nan is not
                return
            wanted.append("a number")
        else:
            wanted.append(
                {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(
                    kind, "none"
                )
            )
    few = list(dict.fromkeys(wanted))
    raise ValueError(
        f"{option.name} is {few[0] if len(few) == 1 else 'one of ' + ', '.join(few)}, not {value!r}"
    )


def _near(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, known, n=1)
    return f"; {match[0]!r}?" if match else "."


def _is_loss(factory: Callable[..., Any]) -> bool:
    """Whether it is the loss itself, rather than what makes one."""
    return (
        not inspect.isclass(factory)
        and next(iter(inspect.signature(factory).parameters), None) == "logits"
    )


def _argument_help(doc: str) -> dict[str, str]:
    """Name to text of the docstring's Args section."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    pairs = re.findall(
        r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE
    )
    return {name: re.sub(r"\s+", " ", text).strip() for name, text in pairs}
