# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, driven over the pipe of its DevTools protocol: nothing to install but the browser.

https://chromedevtools.github.io/devtools-protocol/. One reader thread takes what the browser says; answers go to their
callers, events to the page that they are about.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root, in containers without user namespaces
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
)
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowDown": 40, "ArrowUp": 38}
SECONDS = 60.0


class BrowserError(Exception):
    """What the browser, or a script in its page, did not do."""


def find_browser() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self) -> None:
        path = find_browser()
        if path is None:
            raise BrowserError("no Chromium (Debian: apt install chromium)")
        self._profile = tempfile.TemporaryDirectory(prefix="lmn-browser-", ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def pipes() -> None:
            # The browser reads descriptor 3 and writes 4; neither may be overwritten before it is copied.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(reading, 1000), os.dup2(writing, 1001)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=pipes,
            close_fds=False,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._lock = threading.Lock()
        self._next = 0
        self._waiting: dict[int, Queue] = {}
        self._pages: dict[str, Page] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict:
        """Sends a command and waits for its answer."""
        answer: Queue = Queue()
        with self._lock:
            self._next += 1
            number = self._next
            self._waiting[number] = answer
            message = {"id": number, "method": method, "params": parameters}
            if session:
                message["sessionId"] = session
            data = json.dumps(message).encode() + b"\0"
            while data:
                data = data[os.write(self._out, data) :]
        try:
            said = answer.get(timeout=SECONDS)
        except Empty:
            raise BrowserError(f"{method}: no answer in {SECONDS:.0f} s") from None
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        return said["result"]

    def page(self) -> Page:
        """A tab with cookies and storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        return page

    def _read(self) -> None:
        buffer = b""
        while True:
            try:
                got = os.read(self._in, 1 << 16)
            except OSError:
                got = b""
            if not got:
                break
            buffer += got
            *messages, buffer = buffer.split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._waiting.pop(message["id"]).put(message)
                elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                    page.heard(message["method"], message["params"])
        for answer in list(self._waiting.values()):
            answer.put({"error": {"message": "the browser has ended"}})

    def close(self) -> None:
        if self._process.poll() is None:
            os.close(self._out)  # the browser ends with its pipe
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._profile.cleanup()


class Page:
    """One tab: what it asked for, what it complained about, and ways to use it."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context
        self.requests: list[str] = []  # addresses
        self.complaints: list[str] = []  # errors and warnings of the console, and exceptions

    def close(self) -> None:
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def call(self, method: str, **parameters: object) -> dict:
        return self._browser.call(method, self._session, **parameters)

    def heard(self, method: str, parameters: dict) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value", "")) for one in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            entry = parameters["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}".strip())

    def open(self, address: str, before: str = "") -> None:
        """Loads a page; `before` is a script that runs there before any of its own."""
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def look(self, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False) -> None:
        """Size of the view, and what the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> object:
        """The value of an expression; promises are awaited."""
        said = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            details = said["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return said["result"].get("value")

    def wait(self, condition: str, seconds: float = SECONDS) -> None:
        """Waits until an expression is true in the page."""
        end = time.monotonic() + seconds
        while True:
            try:
                if self.run(f"Boolean({condition})"):
                    return
            except BrowserError as error:  # the page is being replaced
                if "context" not in str(error).lower():
                    raise
            if time.monotonic() > end:
                raise BrowserError(f"not true after {seconds:.0f} s: {condition}")
            time.sleep(0.02)

    def press(self, key: str, shift: bool = False) -> None:
        """A key, as a keyboard would send it."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        modifiers = {"modifiers": 8} if shift else {}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **code, **modifiers)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code, **modifiers)

    def type(self, text: str) -> None:
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Clicks the middle of an element."""
        x, y = self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        where = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **where)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **where)

    def picture(self, path: str | Path) -> None:
        """Writes what is to be seen as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(data))
