import json
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_benchmark_of_predict_runs_and_its_table_is_rendered(
    pictures, tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import predict as benchmark
    import render

    words = ["--backbone", "tiny", "--size", "16", "--batch-size", "4", "--repeats", "1", "--cpu"]
    out = tmp_path / "predict-here.json"
    monkeypatch.setattr(
        sys, "argv", ["predict.py", "--root", str(pictures.parent), *words, "--json", str(out)]
    )
    monkeypatch.setattr(
        benchmark.torch, "set_num_threads", lambda count: None
    )  # the other tests' are not ours
    benchmark.main()
    assert "both / the slower alone" in capsys.readouterr().out
    data = json.loads(out.read_text())
    best = {name: min(times) for name, times in data["seconds"].items()}
    assert data["ratio"] == best["both"] / max(best["decoding alone"], best["model alone"])
    monkeypatch.setattr(render, "RESULTS", tmp_path)
    assert "| tiny, 12 at 16 px |" in (table := render.predict())
    assert f"{data['ratio']:.2f} |" in table
