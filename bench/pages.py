#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures and figures of weir's page beside the pages of others, in the same scenes and with the same answers.

usage: pages.py serve PORT [STATIC]      weir with the default model behind a proxy, whose answers are ours to choose
       pages.py look FOLDER NAME=URL...  writes NAME-SCENE.png to FOLDER, and prints a table in Markdown

`serve` prints nothing more; a page of another system is given http://127.0.0.1:PORT/v1 as its server, or STATIC, the folder of a built page,
is served by the proxy itself. The proxy adds a grammar to each chat, so that the model writes the answer of the scene that the last message
names, at its own speed. `look` needs Chromium (scripts/deps.sh check). Needs WEIR_BIN and WEIR_TEST_MODEL in the environment for `serve`.
bench/results/pages.md has the results."""
import http.server
import json
import mimetypes
import os
import pathlib
import shutil
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from serve import Server  # noqa: E402
from webdriver import Browser, ENTER, ESCAPE  # noqa: E402

SENTENCE = "The miller counts the fish below the weir each morning and writes their number on the wall beside the door. "
ANSWERS = {
    "long": "\n\n".join(f"**{i}.** " + SENTENCE * 3 for i in range(1, 9)),
    "code": "Here it is:\n\n```python\ndef count(fish):\n    \"\"\"How many fish there are of each kind.\"\"\"\n    kinds = {}\n    for one in fish:\n"
            "        kinds[one] = kinds.get(one, 0) + 1\n    return kinds  # a line that is much longer than the column of text is wide, so that the block has to scroll or wrap\n```\n\nCall it with a list.",
    "table": "| month | fish | of these trout | the miller's remark |\n|---|---:|---:|---|\n" + "\n".join(
        f"| {m} | {n} | {n // 3} | the water was {w} |" for m, n, w in (("March", 120, "high"), ("April", 95, "clear"), ("May", 210, "low"), ("June", 33, "warm"))),
}
INPUTS = "textarea, [contenteditable=true], [role=textbox]"


def grammar_of(text):
    quoted = json.dumps(text, ensure_ascii=False)  # GBNF's literals have the escapes of JSON that occur here
    return f"root ::= {quoted}"


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    target = static = None

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        file = self.static and os.path.join(self.static, self.path.split("?")[0].strip("/") or "index.html")
        if self.command == "GET" and file and os.path.isfile(file):
            self.send_response(200)
            self.send_header("Content-Type", mimetypes.guess_type(file)[0] or "application/octet-stream")
            self.end_headers()
            with open(file, "rb") as f:
                shutil.copyfileobj(f, self.wfile)
            return
        if self.command == "POST" and self.path.endswith("/chat/completions"):
            asked = json.loads(body)
            last = asked["messages"][-1]["content"]
            last = last if isinstance(last, str) else " ".join(part.get("text", "") for part in last)
            scene = next((name for name in ANSWERS if last.strip() == f"scene {name}"), None)  # not where a page asks for a title of it
            if scene:
                asked = {k: v for k, v in asked.items() if k not in ("response_format", "tools")} | {"grammar": grammar_of(ANSWERS[scene]), "max_tokens": 2000}
                body = json.dumps(asked).encode()
        request = urllib.request.Request(self.target + self.path, data=body if self.command == "POST" else None, method=self.command,
                                         headers={"Content-Type": self.headers.get("Content-Type") or "application/json"})
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as e:
            answer = e
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()

    do_GET = do_POST = do_DELETE = do

    def log_message(self, *_):
        pass


def serve(port, static=None):
    Proxy.static = static
    with Server(os.environ["WEIR_BIN"], "-np", "2", "-c", "8192", "--no-log", model=os.environ["WEIR_TEST_MODEL"], patience=120) as server:
        Proxy.target = server.url
        http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Proxy).serve_forever()


VISIBLE = """const input = [...document.querySelectorAll(arguments[0])].find((e) => e.offsetParent && e.getBoundingClientRect().width > 100);"""


class Looker:
    def __init__(self, browser, folder, name, url):
        self.b, self.folder, self.name, self.url = browser, folder, name, url

    def picture(self, scene):
        self.b.screenshot(os.path.join(self.folder, f"{self.name}-{scene}.png"))

    def input(self):
        return self.b.js(VISIBLE + "return !!input", INPUTS)

    def open(self):
        self.b.open(self.url)
        self.b.wait(self.input, "a field to write in", 60)
        time.sleep(2)
        self.b.keys(ESCAPE)  # a greeting, if there is one

    def text(self):
        return self.b.js("return document.body.innerText")

    def ask(self, scene):
        """Sends it, and waits until the page's text has not changed for 8 s. Where Enter begins a line, as on a touch screen, by the form's last button."""
        self.b.js(VISIBLE + "input.focus(); input.id ||= 'pages-input'; document.querySelectorAll('[data-pages]').forEach((e) => delete e.dataset.pages); input.dataset.pages = 1", INPUTS)
        self.b.type("[data-pages]", f"scene {scene}" + ENTER)
        time.sleep(1)
        self.b.js("""const input = document.querySelector('[data-pages]');
            if (input && (input.value ?? input.innerText).includes('scene')) [...input.closest('form').querySelectorAll('button')].findLast((e) => e.offsetParent && !e.disabled)?.click()""")
        before, since = None, time.monotonic()
        until = since + 120
        while time.monotonic() < min(since + 8, until):
            text = self.text()
            if text != before:
                before, since = text, time.monotonic()
            time.sleep(0.3)

    def settings(self):
        """Opens them where a control is called so; else they stay out of the pictures."""
        return self.b.js("""const named = (e) => [e.innerText, e.ariaLabel, e.title].some((text) => text?.trim().toLowerCase() === 'settings');
            const found = [...document.querySelectorAll('button, a, [role=button]')].find((e) => e.offsetParent && named(e));
            found?.click(); return new Promise((done) => setTimeout(() => done(!!found), 1500))""")

    def figures(self):
        """kB and requests of the load; buttons and links below 24 px; widths of answer and field."""
        return self.b.js("""
            const all = [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')];
            const seen = [...document.querySelectorAll('button, a[href], input, select, textarea, [role=button]')].filter((e) => e.offsetParent);
            const small = seen.filter((e) => { const r = e.getBoundingClientRect(); return r.width && (r.width < 24 || r.height < 24); });
            return [all.reduce((n, e) => n + e.transferSize, 0) / 1000, all.length, seen.length, small.length,
                    seen.filter((e) => !(e.innerText || e.ariaLabel || e.title || e.labels?.length || e.placeholder || e.getAttribute('aria-labelledby'))).length]""")


def look(folder, *pages):
    os.makedirs(folder, exist_ok=True)
    print("| page | kB of the first load | requests | controls | below 24 px | without a name |\n|---|---|---|---|---|---|")
    with open(os.path.join(folder, "chromedriver.log"), "w") as log:
        for name, url in (page.split("=", 1) for page in pages):
            with Browser(log) as browser:
                at = Looker(browser, folder, name, url)
                browser.screen(1280, 800)
                at.open()
                time.sleep(3)
                print(f"| {name} | " + " | ".join(f"{n:.0f}" for n in at.figures()) + " |", flush=True)
                at.picture("first")
                for scene in ANSWERS:
                    at.open()
                    at.ask(scene)
                    at.picture(scene)
                if at.settings():
                    at.picture("settings")
                browser.screen(1280, 800, dark=True)
                at.open()
                at.ask("code")
                at.picture("dark")
                browser.screen(390, 844)
                browser.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
                at.open()
                at.ask("table")
                at.picture("phone")


if __name__ == "__main__":
    {"serve": serve, "look": look}[sys.argv[1]](*sys.argv[2:])
