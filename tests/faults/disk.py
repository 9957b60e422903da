"""A disk under a folder whose n-th operation fails, or at whose n-th operation the machine stops.

It stands between Python and the system: writes of Python's files, writes at a position, flushes,
renames, and new or removed files and folders below the folder are counted in this process.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import tarfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

KINDS = ("error", "kill", "power", "torn")
GONE = 2**22 + 1  # above the numbers of Linux: afterwards the process is dead
MAKING = {  # functions of os that change names, by the number of paths they take
    **dict.fromkeys(("mkdir", "rmdir", "unlink", "remove"), 1),
    **dict.fromkeys(("rename", "replace"), 2),
}


class Stopped(BaseException):
    """The process is gone: no handler of an error may do anything on the disk."""


class Disk:
    """Counts the operations below `root`.

    Args:
        root: the folder.
        at: number of the operation at which `kind` happens; 0 for never.
        kind: "error" lets the operation fail, a write after half of its bytes. The others end the
            process there. With "torn", files that were not flushed keep half of their bytes; with
            "power", renames that were not flushed are undone too.
    """

    def __init__(self, root: Path, at: int = 0, kind: str = "error") -> None:
        self.root, self.at, self.kind = root.resolve(), at, kind
        self.count, self.stopped, self.happened = 0, False, ""
        self.unflushed: set[Path] = set()
        self.renamed: list[tuple[Path, Path, bytes | None]] = []

    @contextmanager
    def mounted(self):
        """Put the disk under this process until the block ends."""
        with pytest.MonkeyPatch.context() as patch:
            for module, name in ((io, "open"), (builtins, "open"), (tarfile, "bltn_open")):
                patch.setattr(module, name, self._opener(getattr(module, name)))
            for name, paths in MAKING.items():
                patch.setattr(os, name, self._namer(name, getattr(os, name), paths))
            for name, act in (("fsync", self._fsync), ("pwrite", self._pwrite)):
                patch.setattr(os, name, act(getattr(os, name)))
            patch.setattr(os, "sync", self._sync)
            patch.setattr(os, "getpid", lambda: GONE)
            yield self

    def inside(self, path: object) -> Path | None:
        """The absolute path, if it is below the folder."""
        if not isinstance(path, str | os.PathLike):
            return None
        absolute = Path(os.path.abspath(path))  # noqa: PTH100
        return absolute if absolute.is_relative_to(self.root) else None

    def step(self, what: str, path: Path) -> bool:
        """Count an operation; whether it is the one."""
        if self.stopped:
            raise Stopped
        self.count += 1
        if self.count != self.at:
            return False
        self.happened = f"{what} {path.relative_to(self.root)}"
        return True

    def act(self) -> None:
        """Fail, or stop the process."""
        if self.kind == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.stopped = True
        self.lose()
        raise Stopped

    def lose(self) -> None:
        """Take back what was not flushed, as the kind says."""
        if self.kind == "kill":
            return
        for path in filter(Path.is_file, self.unflushed):
            os.truncate(path, path.stat().st_size // 2)
        for source, target, before in reversed(self.renamed if self.kind == "power" else []):
            with suppress(OSError):
                self._rename(target, source)
                if before is not None:
                    with self._open(target, "wb") as file:
                        file.write(before)

    _rename, _open = staticmethod(os.rename), staticmethod(io.open)  # the system's own

    def _opener(self, original):
        def opened(file, mode="r", *arguments, **named):
            path = self.inside(file)
            if path is None or not set(mode) & set("wxa+"):
                return original(file, mode, *arguments, **named)
            if self.step("open", path):
                self.act()
            if set(mode) & set("wx"):
                self.unflushed.add(path)
            return File(original(file, mode, *arguments, **named), self, path)

        return opened

    def _namer(self, name, original, paths):
        def renamed(*arguments, **named):
            inside = [self.inside(path) for path in arguments[:paths]]
            if None in inside or "dir_fd" in named:
                if self.stopped:
                    raise Stopped
                return original(*arguments, **named)
            if self.step(name, inside[-1]):
                self.act()
            if paths == 2:
                source, target = inside
                before = target.read_bytes() if target.is_file() else None
                self.renamed.append((source, target, before))
                self.unflushed = {
                    target / path.relative_to(source) if path.is_relative_to(source) else path
                    for path in self.unflushed - {target}
                }
            return original(*arguments, **named)

        return renamed

    def _fsync(self, original):
        def flushed(handle):
            path = self.inside(Path(f"/proc/self/fd/{handle}").readlink())
            if path is not None:
                if self.step("fsync", path):
                    self.act()
                self.unflushed.discard(path)
                self.renamed = [one for one in self.renamed if one[1].parent != path]
            return original(handle)

        return flushed

    def _sync(self) -> None:
        if self.step("sync", self.root):
            self.act()
        self.unflushed, self.renamed = set(), []

    def _pwrite(self, original):
        def written(handle, data, offset):
            path = self.inside(Path(f"/proc/self/fd/{handle}").readlink())
            if path is not None:
                self.unflushed.add(path)
                if self.step("pwrite", path):
                    original(handle, bytes(data)[: len(data) // 2], offset)
                    self.act()
            return original(handle, data, offset)

        return written


class File:
    """A file whose writes are counted, and reach the system at once."""

    def __init__(self, file, disk: Disk, path: Path) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, data):
        self._disk.unflushed.add(self._path)
        if self._disk.step("write", self._path):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            self._disk.act()
        count = self._file.write(data)
        self._file.flush()
        return count

    def writelines(self, parts):
        for part in parts:
            self.write(part)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self._file.close()

    def __iter__(self):
        return iter(self._file)
