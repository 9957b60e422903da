"""From a method's name to the method; its signature holds its options, defaults and help.

A method is a function or class marked by `@method` in any module of `spml.losses` or
`spml.methods`.
"""

import difflib
import hashlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor, nn

from spml.losses.framework import Method, Reduction
from spml.losses.metadata import SEARCHED, About, Preset, Space

PACKAGES = ("spml.losses", "spml.methods")
REQUIRED = inspect.Parameter.empty
CALL_ARGUMENTS = ("epoch", "epochs", "index", "features", "views")
DATA_ARGUMENTS = ("items", "classes", "observed")  # come from the training loop, so are no options
PROTOCOL = ("batch_size", "lr", "epochs", "head_lr")  # training settings taken from gr by default
GR_TRAINING = "the GR Loss setting for this data: the method's own source states none"


@dataclass(frozen=True)
class Option:
    """One hyper-parameter of a method."""

    name: str
    default: Any
    help: str
    type: Any = None


def names() -> list[str]:
    """The names of all methods."""
    every = {name for package in PACKAGES for name in _methods_of(package)}
    return sorted(every, key=lambda name: (about(name).order, name))


def about(name: str) -> About:
    """What the method declares about itself; empty if it declares nothing."""
    return getattr(factory(name), "about", About())


def create(name: str, **values: Any) -> Method:
    """Create a method, a module to call as loss(logits, observed, epoch=, epochs=, index=).

    Epochs count from 1. Without epoch and epochs, a call is for the first of one epoch, so
    schedules do not advance: pass both for gr and other methods that change over training.

    Args:
        name: one of names(), or "package.module:function" for your own: a loss with the signature
            above (its first parameter is called `logits`), or a function or class that returns one.
        values: options of the method; if needs(name) contains "items", also items and classes, the
            numbers of the training split, and observed, its labels (a table with rows(index), or an
            array).
    """
    maker = factory(name)
    check_options(name, values)
    missing = [p.name for p in _parameters(maker) if p.default is REQUIRED and p.name not in values]
    if missing:
        whose = " of the training split" if set(missing) & set(DATA_ARGUMENTS) else ""
        raise ValueError(f"{name} needs {', '.join(missing)}{whose}")

    if _is_loss(maker):
        method: Method = CallableLoss(maker, values)
    else:
        built = maker(**values)
        if isinstance(built, Method):
            return built
        if not callable(built):
            raise ValueError(f"{name} makes a {type(built).__name__}, not a loss")
        method = CallableLoss(built, {})
    method.needs = needs(name)
    return method


def check_options(name: str, values: Mapping[str, Any]) -> None:
    """Raise ValueError if a value is for no option of the method, or has the wrong type."""
    known = {option.name: option for option in options(name)}
    for key in values:
        if key not in known and not (key in DATA_ARGUMENTS and "items" in needs(name)):
            listed = ", ".join(known) or "none"
            raise ValueError(f"{name} has no option {key!r}{_near(key, known)} It has: {listed}")
    for key, value in values.items():
        if key in known:
            _check_type(known[key], value)


def needs(name: str) -> frozenset[str]:
    """Inputs besides logits and labels: any of items, index, features, views, pass."""
    return frozenset(getattr(factory(name), "needs", frozenset()))


def head(name: str, pictures: bool = True) -> str | None:
    """The classifier head that the method is meant for; None for the linear head."""
    return getattr(factory(name), "head" if pictures else "vector_head", None)


def space(name: str) -> Space:
    """What a search may vary in the method; empty if it declares nothing."""
    return getattr(factory(name), "space", Space())


def memory(name: str, items: int, classes: int, **values: Any) -> int:
    """Bytes that the method keeps for a training split of that size, with these options."""
    check_options(name, values)
    estimate = getattr(factory(name), "memory", None)
    return 0 if estimate is None else int(estimate(items, classes, **values))


def preset(name: str, dataset: str) -> Preset:
    """Published options and training settings of a method on a data set.

    Options that no source sets for the data set keep their default. The eps that published code
    adds inside logs is not included: it replaces the exact log, which is the default here. Training
    settings that no source sets are those of gr.
    """
    known = {option.name for option in options(name)}  # raises for an unknown method
    gr, own = about("gr").presets, about(name).presets
    if dataset not in (declared := datasets()):
        raise ValueError(f"presets exist for {', '.join(declared)}, not {dataset!r}")

    result = Preset()
    for entry in gr:
        if dataset in entry.data:
            result.training.update({k: v for k, v in entry.values.items() if k in PROTOCOL})
    result.sources.update(dict.fromkeys(result.training, GR_TRAINING))
    for entry in own:
        if entry.covers(dataset):
            for key, value in entry.values.items():
                (result.options if key in known else result.training)[key] = value
            result.search.update(entry.tried)
            stated = [*entry.values, *(SEARCHED + key for key in entry.tried)]
            result.sources.update(dict.fromkeys(stated, entry.source))
    return result


def published_training(name: str, data: str) -> tuple[dict[str, Any], bool]:
    """A method's published rate of the head, on a benchmark, and whether it freezes batch norm."""
    if name not in names():
        return {}, False
    benchmark = data in datasets()
    training = preset(name, data if benchmark else "voc").training
    rate = {"head_lr": training["head_lr"]} if benchmark and "head_lr" in training else {}
    return rate, bool(training.get("frozen_norm", False))


def datasets() -> list[str]:
    """The data sets that some method declares values for, those of gr first."""
    entries = [entry for name in ("gr", *names()) for entry in about(name).presets]
    return list(dict.fromkeys(data for entry in entries for data in entry.data))


@lru_cache(maxsize=256)
def code(name: str) -> str | None:
    """SHA-256 of the file of a user's own method, as loaded here; None for methods of spml."""
    factory(name)
    module, colon, _ = name.partition(":")
    if not colon:
        return None
    file = getattr(sys.modules[module], "__file__", None)
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def options(name: str) -> list[Option]:
    """The method's hyper-parameters with defaults and help, in the order of its signature."""
    maker = factory(name)
    help_of = _argument_help(inspect.getdoc(maker) or "")
    types = _types(maker)
    if types.get("reduction") is Reduction:
        help_of.setdefault("reduction", "mean, sum, sum_classes or none.")
    return [
        Option(p.name, p.default, help_of.get(p.name, ""), types.get(p.name))
        for p in _parameters(maker)
        if p.name not in DATA_ARGUMENTS
    ]


def summary(name: str) -> str:
    """One line that describes the method."""
    return (inspect.getdoc(factory(name)) or "").partition("\n")[0]


def factory(name: str) -> Callable[..., Any]:
    """The function or class behind a name."""
    for package in PACKAGES:  # in turn, so that a loss does not load the other methods
        if name in _methods_of(package):
            return _methods_of(package)[name]
    module, colon, function = name.partition(":")
    if not colon:
        listed = f"There are: {', '.join(names())}, and package.module:function"
        raise ValueError(f"no method {name!r}{_near(name, names())} {listed}")
    try:
        maker = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"method {name!r} cannot be loaded: {error}") from error
    if not callable(maker):
        raise ValueError(f"method {name!r} is not a function or class")
    return maker  # type: ignore[no-any-return]


@lru_cache(maxsize=2)
def _methods_of(package: str) -> dict[str, Callable[..., Any]]:
    """Import every module of a package and collect the methods defined there."""
    root = import_module(package)
    methods: dict[str, Callable[..., Any]] = {}
    for entry in pkgutil.walk_packages(root.__path__, f"{package}."):
        module = import_module(entry.name)
        for value in vars(module).values():
            # A module may import another one's methods, and a class inherit from one.
            own = getattr(value, "__module__", None) == module.__name__
            if own and isinstance(getattr(value, "__dict__", {}).get("about"), About):
                methods[value.__name__] = value
    return methods


class CallableLoss(Method):
    """A plain function or module as a method; it receives the call arguments that it names."""

    def __init__(self, function: Callable[..., Tensor], values: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.values = function, values
        called = function.forward if isinstance(function, nn.Module) else function
        parameters = inspect.signature(called).parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = tuple(p.name for p in parameters if p.name in CALL_ARGUMENTS)
        self.takes = CALL_ARGUMENTS if takes_any else named

    def forward(self, logits: Tensor, observed: Tensor, **arguments: Any) -> Tensor:
        """Loss of a batch."""
        passed = {name: arguments[name] for name in self.takes if name in arguments}
        return self.function(logits, observed, **self.values, **passed)


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that `create` may pass, in the order of the signature."""
    parameters = list(inspect.signature(maker).parameters.values())
    if _is_loss(maker):
        parameters = [p for p in parameters[2:] if p.name not in CALL_ARGUMENTS]
    return [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def as_python(value: Any) -> Any:
    """Convert numpy numbers, alone or in tuples and lists, to Python's; keep other values."""
    if type(value) in (tuple, list):
        return type(value)(map(as_python, value))
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _types(maker: Callable[..., Any]) -> dict[str, Any]:
    try:
        checked = maker.__init__ if inspect.isclass(maker) else maker
        return get_type_hints(checked, include_extras=True)
    except (NameError, TypeError):  # annotations of your own that do not resolve
        return {}


PLAIN_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "none",
}


def _check_type(option: Option, value: Any) -> None:
    """Raise ValueError if the option's annotation does not admit the value."""
    value = as_python(value)
    union = get_origin(option.type) in (Union, UnionType)
    wanted, meaning = [], ""
    for kind in get_args(option.type) if union else (option.type,):
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return
            wanted += [str(choice) for choice in get_args(kind)]
            continue
        kind, *ranges = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        if kind not in PLAIN_TYPES:
            return  # no annotation, or one that only the method itself can check
        fits = isinstance(value, (int, float) if kind is float else kind)
        if fits and isinstance(value, bool) == (kind is bool) and value == value:  # not nan
            if all(value in each for each in ranges):
                return
            meaning = f": {option.help.rstrip('.')}"
        wanted.append(" ".join(map(str, (PLAIN_TYPES[kind], *ranges))))
    few = list(dict.fromkeys(wanted))
    expected = few[0] if len(few) == 1 else "one of " + ", ".join(few)
    raise ValueError(f"{option.name} is {expected}, not {value!r}{meaning}")


def _near(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, known, n=1)
    return f"; {match[0]!r}?" if match else "."


def _is_loss(maker: Callable[..., Any]) -> bool:
    """Whether the function is the loss itself, rather than a function or class that returns one."""
    if inspect.isclass(maker):
        return False
    return next(iter(inspect.signature(maker).parameters), None) == "logits"


def _argument_help(doc: str) -> dict[str, str]:
    """Argument names and texts of the docstring's Args section."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", doc, re.MULTILINE)
    arguments = section[1] if section else ""
    pairs = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).strip() for name, text in pairs}
