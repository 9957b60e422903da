"""`spml prepare` with local files, from a server, and with download errors."""

import hashlib
import io
import shutil
import tarfile
from dataclasses import replace

import pytest

from spml.data import download
from spml.data.benchmarks import BENCHMARKS, Archive, Counts
from spml.data.readers.voc import CLASSES
from tests.conftest import spml
from tests.data.file_server import serving


def voc_files(pictures=True):
    """A miniature VOC2012 by path: five images to train on, two to test."""
    home = "VOCdevkit/VOC2012"
    files = {}
    for name, images in {"train": "abcde", "val": "fg"}.items():
        files[f"{home}/ImageSets/Main/{name}.txt"] = "".join(f"{image}\n" for image in images)
        for label in CLASSES:
            marks = [f"{image} {1 if label in ('dog', 'person') else -1}\n" for image in images]
            files[f"{home}/ImageSets/Main/{label}_{name}.txt"] = "".join(marks)
        if pictures:
            files |= {f"{home}/JPEGImages/{image}.jpg": f"picture {image}" * 50 for image in images}
    return files


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "data"


@pytest.fixture
def placed(root):
    """A folder that already has the files."""
    for name, text in voc_files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def packed(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.fixture
def server(monkeypatch):
    """The archive on a local server, instead of the official address."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    with serving() as files:

        def offer(content):
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            address = files.address("voc.tar")
            archive = Archive("voc.tar", (address,), len(content), digest, 10**6)
            entry = replace(BENCHMARKS["voc"], archives=(archive,))
            monkeypatch.setitem(BENCHMARKS, "voc", entry)
            files.content = content

        files.offer = offer
        offer(packed(voc_files()))
        yield files


def listing(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_existing_files_need_no_network(placed, server, capsys):
    before = listing(placed)
    assert spml(f"prepare voc --root {placed}") == 0
    out = capsys.readouterr().out
    assert "voc: 20 classes, 4 / 1 / 2 images" in out and "2.00 positives per training image" in out
    assert "warning: 5 images in the train list, the paper has 5,717: another version" in out
    assert "warning: the observed labels are not those of the reference protocol" in out
    assert "all 7 pictures are there" in out
    assert out.splitlines()[-1] == f"next: spml train voc --root {placed}"
    assert spml(f"prepare voc --root {placed} --download") == 0
    assert listing(placed) == before and server.seen == []


def test_agreement_with_the_paper_is_printed(placed, capsys, monkeypatch):
    entry = replace(BENCHMARKS["voc"], paper=Counts(20, 4, 1, 2, 2.0))
    monkeypatch.setitem(BENCHMARKS, "voc", entry)
    assert spml(f"prepare voc --root {placed}") == 0
    out = capsys.readouterr().out
    printed = [line.split()[8] for line in out.splitlines() if "sha256" in line]
    hashes = dict(zip(("train", "test"), printed, strict=True))
    monkeypatch.setitem(BENCHMARKS, "voc", replace(entry, observed_sha256=hashes))
    assert spml(f"prepare voc --root {placed}") == 0
    out = capsys.readouterr().out
    assert "warning" not in out and "as in the paper: 4 / 1 / 2, 2.0" in out
    assert out.count(", as the reference protocol's") == 2


def test_missing_pictures_are_counted_and_named(placed, capsys):
    (placed / "VOCdevkit/VOC2012/JPEGImages/b.jpg").unlink()
    (placed / "VOCdevkit/VOC2012/JPEGImages/f.jpg").unlink()
    assert spml(f"prepare voc --root {placed}") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "2 of 7 pictures are missing, first " in err and "b.jpg" in err


@pytest.mark.parametrize("exists", [False, True])
def test_no_files(root, capsys, exists):
    if exists:
        root.mkdir()
    assert spml(f"prepare voc --root {root}") == 2
    remedy = f"get the files with: spml prepare voc --root {root} --download"
    assert remedy in capsys.readouterr().err


def test_download(root, server, capsys):
    assert spml(f"prepare voc --root {root} --download") == 0
    out = capsys.readouterr().out
    assert "all 7 pictures are there" in out and "voc.tar is unpacked" in out
    assert listing(root) == sorted([*voc_files(), ".voc.tar.unpacked", "voc.tar"])
    assert spml(f"prepare voc --root {root} --download") == 0
    assert len(server.seen) == 1


def test_a_broken_download_is_resumed_by_running_again(root, server, capsys):
    server.faults = [("cut", 5000), 404]
    assert spml(f"prepare voc --root {root} --download") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert all(part in err for part in ("HTTP 404", "5,000 of ", "run again to resume"))
    assert spml(f"prepare voc --root {root} --download") == 0
    assert server.seen[-1] == "bytes=5000-"


def test_an_interrupted_unpacking_is_finished_by_running_again(root, server, capsys, monkeypatch):
    def stop(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download.shutil, "move", stop)
        assert spml(f"prepare voc --root {root} --download") == 130
    assert "interrupted; run it again to resume" in capsys.readouterr().err
    assert spml(f"prepare voc --root {root} --download") == 0
    assert len(server.seen) == 1


def test_too_little_disk_is_reported_before_any_request(root, server, capsys, monkeypatch):
    usage = shutil.disk_usage(root.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    assert spml(f"prepare voc --root {root} --download") == 2
    assert "0.0 GB free" in capsys.readouterr().err and server.seen == [] and not root.exists()


def test_an_archive_with_paths_outside_the_folder_is_refused(root, server, capsys):
    server.offer(packed({**voc_files(), "../escaped": "x"}))
    assert spml(f"prepare voc --root {root} --download") == 2
    assert "which is outside the destination" in capsys.readouterr().err
    assert listing(root) == ["voc.tar"] and not (root.parent / "escaped").exists()


def test_files_that_went_missing_after_unpacking(root, server, capsys):
    assert spml(f"prepare voc --root {root} --download") == 0
    (root / "VOCdevkit/VOC2012/JPEGImages/b.jpg").unlink()
    assert spml(f"prepare voc --root {root} --download") == 2
    assert f"remove {root / '.voc.tar.unpacked'} and run again" in capsys.readouterr().err
    (root / ".voc.tar.unpacked").unlink()
    assert spml(f"prepare voc --root {root} --download") == 0
    assert len(server.seen) == 1


@pytest.mark.parametrize("flag", ["", "--download"])
def test_nuswide_prints_manual_steps(root, capsys, flag):
    assert spml(f"prepare nuswide --root {root} {flag}") == 2
    out, err = capsys.readouterr()
    assert "Agreement and Disclaimer Form" in out and f"{root}/Flickr" in out
    assert "the steps are above" in err
