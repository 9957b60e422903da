import re
import shutil

import huggingface_hub
import pytest

from spml.use.hub import FILES, local_folder, push, repository
from tests.conftest import refused, spml


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The public functions of huggingface_hub on a folder, and the calls that they received."""
    store, calls = tmp_path / "hub", []

    def create_repo(name, **options):
        calls.append((name, options))

    def upload_folder(repo_id, folder_path, allow_patterns, **options):
        assert (folder_path / "last.ckpt").exists() is False
        (store / repo_id).mkdir(parents=True)
        for name in allow_patterns:
            shutil.copy(folder_path / name, store / repo_id)

    def snapshot_download(name, revision, allow_patterns):
        calls.append((name, revision, allow_patterns))
        return str(store / name)

    for stand_in in (create_repo, upload_folder, snapshot_download):
        monkeypatch.setattr(huggingface_hub, stand_in.__name__, stand_in)
    return calls


def test_a_pushed_model_predicts_as_the_run_does(hub, finished, scenes_file, here, capsys):
    assert spml(f"export {finished} --hub ann/scenes") == 0
    assert hub == [("ann/scenes", {"private": True, "exist_ok": True})]
    assert "spml predict hub:ann/scenes INPUT..." in capsys.readouterr().out
    assert spml(f"predict hub:ann/scenes@v1 {scenes_file} --out hub.csv") == 0
    assert hub[1:] == [("ann/scenes", "v1", list(FILES))]
    assert spml(f"predict {finished} {scenes_file} --out run.csv") == 0
    assert (here / "hub.csv").read_text() == (here / "run.csv").read_text()


def test_a_folder_has_the_layout_of_a_repository(finished, scenes_file, here, capsys):
    assert spml(f"export {finished} --hub ./scenes") == 0
    assert sorted(path.name for path in (here / "scenes").iterdir()) == sorted(FILES)
    assert spml(f"predict ./scenes {scenes_file}") == 0
    assert spml(f"export {finished} --hub ./scenes") == 2
    assert "scenes is already there; give --overwrite" in capsys.readouterr().err
    assert spml(f"export {finished} --hub ./scenes --overwrite") == 0
    assert spml(f"export {finished} --hub ./scenes --format onnx") == 2
    assert "leave out --out and --format" in capsys.readouterr().err


def test_the_card_has_the_front_matter_of_the_hub(finished):
    card = huggingface_hub.ModelCard.load(finished / "best" / "README.md")
    assert card.data.library_name == "spml" and card.data.pipeline_tag == "image-classification"
    (result,) = card.data.eval_results
    on_card = float(re.search(r"Test mAP ([\d.]+) %", card.text)[1])
    assert (result.metric_type, result.metric_value) == ("mAP", on_card)


def test_a_hub_that_cannot_be_reached_is_one_line(finished, here, capsys):
    """The tests' environment keeps huggingface_hub offline."""
    assert spml("predict hub:ann/birds x.jpg") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spml: hub:ann/birds: ") and line.endswith("`hf auth login`")
    with refused("hub:ann/birds: "):
        push(finished, "ann/birds")


@pytest.mark.parametrize("text", ["./ann/birds", "/ann/birds", "birds", "a/b/c", "ann/birds/"])
def test_other_paths_are_folders(text):
    assert repository(text) is None


def test_a_name_without_an_owner_is_refused():
    with refused("hub:birds: a model of the hub is hub:OWNER/NAME"):
        local_folder("hub:birds")
