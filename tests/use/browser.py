"""Headless Chromium, driven by its own protocol over two pipes, without another package."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
]
KEYS = {" ": ("Space", 32), "ArrowRight": ("ArrowRight", 39), "ArrowLeft": ("ArrowLeft", 37)}


def executable() -> str | None:
    """Path of Chromium; None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _high(ends: tuple[int, int]) -> list[int]:
    """Move a pipe to descriptors above 3 and 4, which the browser's ends use."""
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Browser:
    """One page of a browser; `requests` holds every address it requested."""

    def __init__(
        self,
        program: str,
        folder: Path,
        size: tuple[int, int] = (1200, 1000),
        downloads: Path | None = None,
    ):
        (out, self._write), (self._read, back) = (_high(os.pipe()) for _ in range(2))
        own = [f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        shell = f'exec "$@" 3<&{out} 4>&{back} {out}<&- {back}>&-'
        command = ["bash", "-c", shell, "bash", program, *QUIET, *own]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(out, back), **quiet)
        os.close(out)
        os.close(back)
        self._number, self._rest, self._session = 0, b"", None
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "DOM", "Runtime"):
            self.call(f"{domain}.enable")
        if downloads is not None:
            self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Browser"):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next(60)).get("id") != self._number:
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], seconds)[0]:
                raise TimeoutError("the browser says nothing")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser is gone")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def value(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        how = {"returnByValue": True, "awaitPromise": True}
        done = self.call("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, script: str, seconds: float = 60) -> Any:
        """Wait until an expression is true and return it; a page being closed does not answer."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(RuntimeError):
                if value := self.value(script):
                    return value
            time.sleep(0.1)
        raise TimeoutError(f"never true: {script}\n{self.value('document.body.innerText')[:2000]}")

    def downloaded(self, path: Path) -> None:
        """Wait until a file is there, with all its bytes."""
        end = time.monotonic() + 60
        while not path.exists() or list(path.parent.glob("*.crdownload")):
            assert time.monotonic() < end, f"{path} never came"
            self.value("new Promise(done => setTimeout(done, 20))")

    def go(self, address: str) -> None:
        """Open a page in place of the current one, which may have the same address."""
        self.value("window.left = true")
        self.call("Page.navigate", url=address)
        self.until(
            "!window.left && document.readyState === 'complete' && location.href !== 'about:blank'"
        )

    def click(self, selector: str) -> None:
        """Scroll to an element and click its centre."""
        what = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{what}.scrollIntoView({{block: 'center'}})")
        centre = "b => ({x: b.x + b.width / 2, y: b.y + b.height / 2})"
        middle = f"({centre})({what}.getBoundingClientRect())"
        box, last = self.value(middle), None
        later = f"new Promise(done => setTimeout(() => done({middle}), 30))"
        while box != last:  # pictures that load move it
            box, last = self.value(later), box
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **box, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, number = KEYS.get(key, (f"Key{key.upper()}", ord(key.upper()[0])))
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **event)

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in a file field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(20)
        for end in (self._read, self._write):
            os.close(end)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
