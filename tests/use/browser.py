"""Chromium without a window, driven over a pipe in its own protocol: clicks and keys as a user's."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WORDS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
KEYS = {" ": ("Space", 32), "ArrowRight": ("ArrowRight", 39), "ArrowLeft": ("ArrowLeft", 37)}
PATIENCE = 60  # seconds for one thing to happen


class Browser:
    """A page in a browser of its own; as a context, it is closed at its end."""

    def __init__(self, profile: Path, downloads: Path, size=(1100, 900)):
        self.profile, self.downloads, self.size = profile, downloads, size
        self.numbers, self.left = itertools.count(1), b""

    def __enter__(self):
        theirs_in, self.out = os.pipe()
        self.back, theirs_out = os.pipe()

        def hand_over():
            first, second = os.dup(theirs_in), os.dup(theirs_out)  # above 4, so that neither is overwritten
            os.dup2(first, 3), os.dup2(second, 4)
            os.set_inheritable(3, True), os.set_inheritable(4, True)

        words = [CHROMIUM, *WORDS, f"--user-data-dir={self.profile}", f"--window-size={self.size[0]},{self.size[1]}"]
        self.process = subprocess.Popen(
            words, pass_fds=(3, 4), preexec_fn=hand_over, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in), os.close(theirs_out)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out), os.close(self.back)

    def call(self, method, **params):
        number = next(self.numbers)
        session = {"sessionId": self.session} if self.session and not method.startswith("Browser") else {}
        os.write(self.out, json.dumps({"id": number, "method": method, "params": params, **session}).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            while b"\0" not in self.left:
                ready, _, _ = select.select([self.back], [], [], max(0, end - time.monotonic()))
                part = os.read(self.back, 1 << 20) if ready else b""
                if not part:
                    raise TimeoutError(f"the browser does not answer {method}")
                self.left += part
            text, self.left = self.left.split(b"\0", 1)
            message = json.loads(text)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def script(self, text):
        found = self.call("Runtime.evaluate", expression=text, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, text):
        end = time.monotonic() + PATIENCE
        while not (value := self.script(text)):
            if time.monotonic() > end:
                raise TimeoutError(text)
            time.sleep(0.02)
        return value

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def click(self, selector):
        """Press the left button over the middle of an element, once it is in view."""
        what = f"document.querySelector({json.dumps(selector)})"
        self.script(f"{what}.scrollIntoView({{block: 'center'}})")
        box = self.script(f"(b => ({{x: b.x + b.width / 2, y: b.y + b.height / 2}}))({what}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **box, button="left", clickCount=1)

    def press(self, key):
        code, number = KEYS.get(key, (f"Key{key.upper()}", ord(key.upper()[0])))
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number)

    def picture(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
