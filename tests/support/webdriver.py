"""A browser for tests: chromedriver over the WebDriver protocol (W3C), in plain Python."""
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

from checks import PATIENCE

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's key for a reference to an element
ENTER, ESCAPE, TAB, SHIFT = "\ue007", "\ue00c", "\ue004", "\ue008"
LEFT = "\ue012"


class WebDriverError(Exception):
    pass


def find_browser():
    """(browser, driver), or None where one of them is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    """One headless browser with a profile of its own. Use as a context manager."""

    def __init__(self, log):
        browser, driver = find_browser()
        self.port = free_port()
        self.process = subprocess.Popen([driver, f"--port={self.port}", "--allowed-ips=127.0.0.1"],
                                        stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.session = None
        try:
            self.wait(self.alive, "chromedriver")
            # Chromium's sandbox needs rights that root in a container does not have. The second: where /dev/shm is small.
            arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
                         "--disable-background-networking", "--disable-component-update", "--no-proxy-server", "--force-color-profile=srgb"]
            answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:chromeOptions": {"binary": browser, "args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
                "timeouts": {"script": PATIENCE * 1000, "pageLoad": PATIENCE * 1000}}}})
            self.session = answer["sessionId"]
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.session:
            try:
                self.call("DELETE", f"/session/{self.session}")
            except (WebDriverError, OSError):
                pass
        self.process.terminate()
        self.process.wait()

    def alive(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            return False

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            value = json.load(e)["value"]
            raise WebDriverError(f"{method} {path}: {value['error']}: {value['message'].splitlines()[0]}") from None

    def do(self, path, body=None):
        return self.call("POST", f"/session/{self.session}{path}", body if body is not None else {})

    def get(self, path):
        return self.call("GET", f"/session/{self.session}{path}")

    # ---- Pages

    def open(self, url):
        self.do("/url", {"url": url})

    def reload(self):
        self.do("/refresh")

    def js(self, script, *arguments):
        return self.do("/execute/sync", {"script": script, "args": list(arguments)})

    def js_async(self, script, *arguments):
        """The script is the body of an async function."""
        wrapped = ("const done = arguments[arguments.length - 1]; (async (...args) => {" + script +
                   "})(...[...arguments].slice(0, -1)).then((value) => done([true, value]), (e) => done([false, String(e)]));")
        good, value = self.do("/execute/async", {"script": wrapped, "args": list(arguments)})
        if not good:
            raise WebDriverError(value)
        return value

    def cdp(self, command, **parameters):
        return self.do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self):
        """What the browser had to complain about since the last call."""
        return self.do("/se/log", {"type": "browser"})

    # ---- Elements, by CSS selector; typing and clicking as a person would

    def find(self, selector):
        return self.do("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.do(f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        self.do(f"/element/{self.find(selector)}/value", {"text": text})

    def keys(self, *keys):
        """To whatever has the focus; keys are pressed one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.do("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def count(self, selector):
        return self.js("return document.querySelectorAll(arguments[0]).length", selector)

    # ---- Windows

    def tab(self):
        return self.get("/window")

    def new_tab(self):
        handle = self.do("/window/new", {"type": "tab"})["handle"]
        self.switch(handle)
        return handle

    def switch(self, handle):
        self.do("/window", {"handle": handle})

    def close_tab(self):
        self.call("DELETE", f"/session/{self.session}/window")

    def screen(self, width, height, dark=False):
        """A screen of this size, in CSS pixels."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.get("/screenshot")))

    # ---- Waiting

    def wait(self, condition, what, seconds=PATIENCE):
        """The first true value of condition()."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise WebDriverError(f"waited {seconds} s for {what}")
            time.sleep(0.05)
