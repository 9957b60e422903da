"""The command `spml predict`."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

from PIL import Image

from tests.conftest import spml
from tests.use.conftest import huge_png, rows


def launched(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "spml.cli", *map(str, words)], capture_output=True, **more
    )


def test_thresholds_and_numbers_of_tags_are_changed_at_predict_time(model, photo, tmp_path):
    def tags(words):
        out = tmp_path / "tags.jsonl"
        assert spml(f"predict {model} {photo} --out {out} --overwrite {words}") == 0
        return json.loads(out.read_text())["tags"]

    assert tags("--threshold 0") == ["red", "green", "blue"] and tags("--threshold 1") == []
    assert tags("--threshold 1 --threshold blue=0") == ["blue"]
    order = tags("--top-k 3")
    p = json.loads((tmp_path / "tags.jsonl").read_text())["probabilities"]
    assert sorted(p, key=p.get, reverse=True) == order
    assert tags("--threshold 1 --at-least 1") == order[:1]
    assert tags("--top-k 2 --no-probabilities") == order[:2]
    assert "probabilities" not in json.loads((tmp_path / "tags.jsonl").read_text())


def test_paths_on_standard_input_and_rows_on_standard_output(model, pictures):
    photos = sorted((pictures.parent / "photos").iterdir())
    paths = "\n".join(map(str, photos)) + "\n"
    done = launched("predict", model, "-", "--out", "-", "--format", "jsonl", input=paths.encode())
    assert done.returncode == 0, done.stderr
    images = [json.loads(line)["image"] for line in done.stdout.splitlines()]
    assert images == list(map(str, photos))
    paths = "".join(f"{photo}\0" for photo in [*photos, pictures.parent / "gone.jpg"])
    done = launched("predict", model, "-", "-0", "--out", "-", input=paths.encode())
    assert done.returncode == 2 and len(done.stdout.splitlines()) == 13
    assert b"gone.jpg: cannot be read" in done.stderr and b"1 of 13 inputs" in done.stderr


def test_a_closed_pipe_is_no_error(model, pictures):
    photos = "\n".join([str(pictures.parent / "photos" / "1.png")] * 4000)
    command = [sys.executable, "-m", "spml.cli", "predict", str(model), "-", "--out", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        writer = threading.Thread(target=feed, args=(process.stdin, photos.encode()))
        writer.start()
        assert process.stdout.readline().startswith(b"image,tags")
        process.stdout.close()
        error = process.stderr.read()
        writer.join()
    assert process.returncode == 141 and error == b""


def feed(stream, data):
    with contextlib.suppress(BrokenPipeError), stream:
        stream.write(data)


def test_bad_pictures_of_every_kind_do_not_stop_the_rest(model, tmp_path, capsys):
    folder = tmp_path / "p"
    folder.mkdir()
    Image.new("RGB", (1, 1), "red").save(folder / "one.png")
    (folder / "text.jpg").write_text("no picture at all")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "huge.png").write_bytes(huge_png())
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "up").symlink_to("..")
    assert spml(f"predict {model} {folder} --out {tmp_path}/o.csv") == 2
    error = capsys.readouterr().err
    assert [Path(row["image"]).name for row in rows(tmp_path / "o.csv")] == ["one.png"]
    assert "text.jpg: not a picture" in error and "empty.jpg: the file is empty" in error
    assert "above 179 megapixels" in error and "symbolic links" in error
    assert "p/up/p: a link to a folder that was already read; not followed" in error
    assert "4 of 5 inputs could not be read" in error and "Traceback" not in error


def test_wrong_models_are_one_line_and_nothing_is_overwritten(model, pictures, tmp_path, refused):
    out = tmp_path / "o.csv"
    out.write_text("mine")

    def rejected(words="--overwrite", inputs=pictures):
        error = refused(f"predict {model} {inputs} --out {out} {words}")
        assert out.read_text() == "mine"
        return error

    assert "already there" in rejected("")
    message = "o.csv is one of the inputs and would be replaced; give another --out"
    assert message in rejected(inputs=f"{pictures} {out}")
    (tmp_path / "names.txt").write_text("red\nblue\n")
    named = rejected(f"--overwrite --classes '{tmp_path / 'names.txt'}'")
    assert "2 classes, the model has 3" in named
    (model / "model.safetensors").unlink()
    assert "model.safetensors" in rejected()
