"""The parts of benchmarks/throughput.py that run without a GPU."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # the benchmark sets it and restores it


@pytest.mark.slow
def test_all_parts_are_measured(benchmarks, tmp_path, capsys):
    import throughput

    small = (
        "--fake 40 --backbone test_resnet --size 32 --batch 8 --epochs 2 --device cpu --budget 0.1"
    )
    result = throughput.main(
        [*small.split(), "--set", "flip=False", "--json", str(tmp_path / "found.json")]
    )
    names = ["step", "epoch from cold", "epoch from cache", "evaluation", "whole experiment"]
    assert set(result["seconds"]) == set(result["ratios"]) == set(names)
    assert all(value > 0 for pair in result["seconds"].values() for value in pair.values())
    for run in result["runs"].values():
        assert run["whole"] > sum(run["epochs"])
        assert len(run["epochs"]) == 2
        assert run["cold"] > run["epochs"][0]
    stored = json.loads((tmp_path / "found.json").read_text())
    assert stored["ratios"] == result["ratios"] and stored["asked"]["set"] == {"flip": False}
    output = capsys.readouterr().out
    assert all(name in output for name in names) and "of the" in output


def test_unknown_parts_are_refused(benchmarks, capsys):
    import throughput

    with pytest.raises(SystemExit):
        throughput.main(["--fake", "40", "--parts", "step,speed"])
    assert "'speed' is none of step, epoch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_nhwc", "convolution and matrix products"),
        ("void at::native::batch_norm_backward_reduce_channels_last_kernel<4>", "batch norm"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "batch norm"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimiser"),
        ("void at::unrolled_elementwise_kernel<at::direct_copy_kernel_cuda>", "copies and casts"),
        ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>", "copies and casts"),
        ("void at::vectorized_elementwise_kernel<4, clamp_min>", "elementwise, pooling and sums"),
        ("something new", "others"),
    ],
)
def test_kernels_are_classified_by_their_names(benchmarks, name, expected):
    import device_share

    assert device_share.kind(name) == expected


def test_time_is_summed_by_kind_and_idle_time_is_reported(benchmarks):
    import device_share

    events = [
        {"cat": "kernel", "name": "conv", "ts": 10.0, "dur": 40.0},
        # concurrent, on another stream
        {"cat": "kernel", "name": "elementwise", "ts": 30.0, "dur": 40.0},
        {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 100.0, "dur": 10.0},
        {"cat": "cpu_op", "name": "aten::conv2d", "ts": 0.0, "dur": 500.0},
        {"ph": "M"},
    ]
    spent = device_share.by_kind(events, 2, 50e-6)
    assert spent == {
        "convolution and matrix products": pytest.approx(20e-6),
        "elementwise, pooling and sums": pytest.approx(20e-6),
        "copies and casts": pytest.approx(5e-6),
        "idle": pytest.approx(50e-6 - 35e-6),
    }
    assert device_share.by_kind(events, 2, 10e-6)["idle"] == 0
