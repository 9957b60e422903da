import pytest


@pytest.fixture(scope="module")
def site(small_model):
    from tests.use.serve.serving import served

    with served(small_model) as address:
        yield address
