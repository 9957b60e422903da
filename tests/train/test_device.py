import pytest
from lightning.fabric import (
    Fabric,
)  # here, since it looks into what the test replaces when it is imported

from spml.errors import UserError
from spml.train import Settings
from spml.train.device import make_fabric


@pytest.mark.parametrize("precision", ["16-mixed", "16"])
@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
def test_float16_is_refused_on_a_cpu_rather_than_replaced(monkeypatch, precision, accelerator):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    with pytest.raises(
        UserError, match=f"--precision {precision} needs a GPU; on a CPU give 32-true"
    ):
        make_fabric(Settings(accelerator=accelerator, precision=precision), unused=False)
    assert isinstance(
        make_fabric(Settings(accelerator="cpu", precision="bf16-mixed"), unused=False), Fabric
    )
