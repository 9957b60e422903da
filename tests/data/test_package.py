"""The names of `spml.data`, whatever is imported first."""

import subprocess
import sys

import pytest

import spml.data


@pytest.mark.parametrize("first", ["observation", "experiment", "readers.read", "benchmarks"])
def test_every_name_is_there_after_any_first_import(first):
    script = (
        f"import spml.data.{first}, types; import spml.data as data\n"
        "for name in data.__all__:\n"
        "    assert not isinstance(getattr(data, name), types.ModuleType), name\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("name", "heavy"),
    [("benchmarks", ["numpy"]), ("readers.read", ["torch", "sklearn", "pyarrow", "scipy", "PIL"])],
)
def test_heavy_libraries_are_not_imported(name, heavy):
    script = f"import sys, spml.data.{name}; assert not {{*{heavy}}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_name_raises_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'spml.data' has no attribute 'nothing'"):
        _ = spml.data.nothing
