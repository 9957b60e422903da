import pytest


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file of this test."""

    def writer(content, name="my.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


@pytest.fixture
def positives():
    """Names of the positives of every item of a table."""

    def names(table):
        rows = zip(table.items, table.labels == 1, strict=True)
        return {item: [name for name, there in zip(table.classes, row, strict=True) if there] for item, row in rows}

    return names
