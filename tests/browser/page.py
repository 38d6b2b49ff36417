"""What the tests of the server's page share: the page in headless Chromium, and how a file of tests runs."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import sys
import time
import traceback

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, os.pardir, "support"))
from serve import Server  # noqa: E402
from webdriver import Browser, ENTER, ESCAPE, LEFT, TAB, find_browser  # noqa: E402,F401

OUT = os.path.join(os.environ["WEIR_BUILD_DIR"], "browser")
STORY = "Tell me a long story about a river, a mill and a miller who counts fish."
ANSWER = ".message.assistant:last-child"
tests = []


def test(f):
    tests.append(f)
    return f


def start(*words, log):
    return Server(os.environ["WEIR_BIN"], *words, model=os.environ["WEIR_TEST_MODEL"], log=log)


class Page:
    """What the tests do with the page."""

    def __init__(self, browser, server):
        self.b, self.server = browser, server

    def fresh(self, **settings):
        """A new chat in the only tab, with these settings and a wide screen."""
        b = self.b
        b.screen(1280, 800)
        b.open(self.server.url + "/")
        b.js("localStorage.clear(); sessionStorage.clear(); if (arguments[0]) localStorage.setItem('weir.settings', arguments[0])", json.dumps(settings))
        b.js("location.hash = ''")
        b.open("about:blank")
        b.log()
        b.open(self.server.url + "/")
        self.live()

    def reload(self):
        """A load waits neither for the page's modules nor for what shows answers as Markdown."""
        self.b.reload()
        self.b.wait(lambda: self.b.js("return document.documentElement.hasAttribute('data-theme')"), "the page's modules")
        self.marked()

    def marked(self):
        self.b.wait(lambda: self.b.count(".assistant .body.plain-text:not(:empty)") == 0, "answers as Markdown")

    def show_engine(self):
        if self.b.js("return document.getElementById('toggle-engine').getAttribute('aria-expanded')") == "false":
            self.b.click("#toggle-engine")

    def live(self):
        self.b.wait(lambda: self.b.js("return ['live', 'asleep'].includes(document.getElementById('link').dataset.state)"), "the engine's events")

    def ask(self, text):
        self.b.type("#text", text + ENTER)

    def endless(self):
        """Until the next reload, answers go on until they are stopped: no test depends on what the model likes to say."""
        self.b.js("""const real = window.fetch;
            window.fetch = (path, options) => real(path, options?.body && !path.endsWith('/control') ? { ...options, body: JSON.stringify({ ...JSON.parse(options.body), ignore_eos: true }) } : options);""")

    def answer(self):
        return self.b.text(ANSWER + " .body") or ""

    def streaming(self):
        return self.b.js("return !document.getElementById('stop').hidden")

    def growing(self):
        self.b.wait(lambda: self.streaming() and self.answer(), "the first text")

    def complete(self):
        """Waits for the answer's end; its text."""
        self.b.wait(lambda: not self.streaming() and self.b.count(ANSWER), "the end of the answer", 180)
        assert not self.b.js(f"return !document.querySelector('{ANSWER} .error').hidden"), self.b.text(ANSWER + " .error")
        self.marked()
        return self.answer()

    def idle(self):
        self.b.wait(lambda: self.server.busy_slots() == 0, "idle slots")

    def shoot(self, name):
        self.b.screenshot(os.path.join(OUT, name + ".png"))

    def complaints(self):
        """The browser's errors; a test removes those that it provoked on purpose."""
        return [e["message"] for e in self.b.log() if e["level"] == "SEVERE"]


def kept_text(p):
    """The last message of the only chat, as it is kept."""
    return p.b.js("""const chats = Object.keys(localStorage).filter((k) => k.startsWith('weir.chat.')).map((k) => JSON.parse(localStorage.getItem(k)));
        return chats[0].messages.at(-1)""")


@contextlib.contextmanager
def second_tab(p):
    """A new tab is the current one; it is closed afterwards. Gives the first one and it."""
    first, second = p.b.tab(), p.b.new_tab()
    try:
        yield first, second
    finally:
        p.b.switch(second)
        p.b.close_tab()
        p.b.switch(first)


# What a model may be made to say. Neither quotes nor backslashes, so that JSON writes it as it is.
HOSTILE = ("<script>window.hacked=1</script><img src=x onerror=window.hacked=2><svg onload=window.hacked=3></svg>"
           "<iframe src=javascript:parent.hacked=4></iframe><style>*{display:none}</style>"
           "[a](javascript:window.hacked=5) [b](data:text/html,<script>parent.hacked=6</script>) ![c](/v1/models) "
           "<a href=javascript:window.hacked=7>d</a> [e](JaVaScRiPt:window.hacked=8) <javascript:window.hacked=9>")
FORBIDDEN = "script, img, svg:not(button svg), iframe, style, object, embed, form.x, [onerror], [onload], [onclick], [style], base, meta, link"


def spotless(p):
    """No element in the messages that the text could have brought, no link that runs something, nothing ran."""
    found = p.b.js("""return [window.hacked ?? null,
        [...document.querySelectorAll('#messages *')].filter((e) => e.matches(arguments[0])).map((e) => e.outerHTML),
        [...document.querySelectorAll('#messages a')].map((e) => e.protocol).filter((x) => !['http:', 'https:', 'mailto:'].includes(x))]""", FORBIDDEN)
    assert found == [None, [], []], found


def main(name):
    """Runs the tests of the file NAME that the arguments name, or all."""
    chosen = [t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]]
    if not find_browser():
        print("no browser: chromium and chromedriver are missing (scripts/deps.sh check installs them)")
        sys.exit(1)
    os.makedirs(OUT, exist_ok=True)
    failed = 0
    with open(os.path.join(OUT, name + "-driver.log"), "w") as driver_log, open(os.path.join(OUT, name + "-server.log"), "w") as server_log:
        with start("-np", "4", "-c", "4096", log=server_log) as server, Browser(driver_log) as browser:
            page = Page(browser, server)
            for t in chosen:
                started = time.monotonic()
                try:
                    t(page)
                    print(f"ok    {t.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAIL  {t.__name__}\n" + traceback.format_exc(), flush=True)
                    try:
                        page.shoot("failed-" + t.__name__)
                    except Exception as e:
                        print("no screenshot:", e, flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
