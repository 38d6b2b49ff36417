"""The server's page in headless Chromium, without its chats: the engine's pane, servers that go and come back, keys, looks. Screenshots
for people lie in WEIR_BUILD_DIR/browser afterwards. Arguments: names of tests, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import threading
import time

from page import ANSWER, ENTER, ESCAPE, LEFT, OUT, STORY, TAB, Page, main, second_tab, start, test


@test
def opens_without_a_word_from_elsewhere(p):
    p.fresh()
    reply = p.server.get("/")
    policy = reply.headers["content-security-policy"]
    assert reply.status == 200 and policy and "unsafe" not in policy, policy
    assert reply.headers["x-content-type-options"] == "nosniff", reply.headers
    urls = p.b.js("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert len(urls) > 10 and all(u.startswith(p.server.url + "/") for u in urls), urls
    assert p.b.js("return document.activeElement.id") == "text"
    complaints = p.complaints()
    assert complaints == [], complaints


@test
def libraries_come_with_the_answer_that_needs_them(p):
    p.fresh()
    loaded = lambda: p.b.js("return performance.getEntriesByType('resource').map((e) => e.name.split('/').slice(3).join('/')).filter((n) => n.endsWith('.js'))")
    p.b.wait(lambda: "slots.js" in loaded(), "the last module of an empty page")
    early = loaded()
    assert not [name for name in early if name.startswith("lib/") or name == "markdown.js"], early

    def shows(text, selector):
        kept = {"id": "abc", "title": "t", "at": 1, "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": text, "finish": "stop"}]}
        p.b.js("location.hash = 'chat=def'; localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps(kept))
        p.b.wait(lambda: p.b.count(".message") == 0, "an empty chat")
        p.b.js("location.hash = 'chat=abc'")
        p.b.wait(lambda: p.b.count(selector), selector)
        return [name for name in loaded() if name.startswith("lib/")]
    assert shows("**a**", ".body strong") == ["lib/markdown-it.js"]
    assert "lib/katex.js" not in shows("```c\nint a;\n```", ".hl-type") and "lib/highlight.js" in loaded()
    assert "lib/katex.js" in shows("$x^2$", ".formula math")
    # Where the library does not come, a text is shown as it is.
    p.b.cdp("Network.enable")
    p.b.cdp("Network.setBlockedURLs", urls=["*/lib/markdown-it.js"])
    try:
        p.b.js("location.hash = 'chat=abc'")
        p.b.reload()
        p.b.wait(lambda: p.b.text(ANSWER + " .body") == "$x^2$", "the text")
        assert p.b.js_async("return import('/markdown.js').then(() => 'came', () => 'failed')") == "failed"
        assert p.b.text(ANSWER + " .body") == "$x^2$" and p.b.count(ANSWER + " .body.plain-text") == 1
        p.b.wait(lambda: p.b.js("return !document.getElementById('text').disabled"), "the message box")
    finally:
        p.b.cdp("Network.setBlockedURLs", urls=[])
    p.b.wait(lambda: p.b.count(ANSWER + " .formula math") == 1, "the library, which is asked for again")
    p.b.log()  # of the blocked request


# ---- The engine

@test
def the_engine_is_closed_until_somebody_opens_it(p):
    for width in (1024, 1600):
        p.fresh()
        p.b.screen(width, 800)
        p.reload()
        open_ = lambda: (p.b.js("return document.getElementById('engine').checkVisibility()"), p.b.js("return document.getElementById('toggle-engine').getAttribute('aria-expanded')"))
        assert open_() == (False, "false") and p.b.js("return document.getElementById('chats').checkVisibility()"), width
        p.b.click("#toggle-engine")
        assert open_() == (True, "true")
        p.b.wait(lambda: p.b.count("#slots tr") == 4, "the slots")
        p.reload()
        assert open_() == (True, "true"), width
        p.b.click("#toggle-engine")
        p.reload()
        assert open_() == (False, "false"), width
    p.b.screen(1280, 800)


@test
def the_engine_live(p):
    p.fresh(max_tokens=300, seed=6)
    p.endless()
    p.show_engine()
    p.b.wait(lambda: p.b.count("#slots tr") == 4, "the slots")
    p.ask(STORY)
    p.b.wait(lambda: "generating" in p.b.text("#slots"), "a slot that generates")
    # Of the last ten seconds.
    p.b.wait(lambda: p.b.text("#ttft-p50") != "–" and p.b.text("#itl-p50") != "–", "times")
    p.b.wait(lambda: p.b.text("#link-text") == "1 of 4 slots", "the number of busy slots")
    p.b.wait(lambda: p.b.text("#rate-decode") not in ("–", "0%"), "a rate")
    p.b.wait(lambda: p.b.js("return document.getElementById('kv').value") > 0, "cells in use")
    # The drawings have the colours of the events.
    colours = """const c = document.querySelector(arguments[0]), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, found = new Set();
        for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) found.add(`rgb(${d[i]}, ${d[i + 1]}, ${d[i + 2]})`);
        const probe = document.body.appendChild(document.createElement('i')); probe.style.color = `var(--${arguments[1]})`;
        const want = getComputedStyle(probe).color; probe.remove();
        return found.has(want);"""
    p.b.wait(lambda: p.b.js(colours, "#ticks", "decode") and p.b.js(colours, "#ticks", "prefill"), "bars")
    p.b.wait(lambda: p.b.js(colours, "tr[data-state=generating] .lane", "decode"), "a lane")
    p.b.js("document.getElementById('ticks').focus()")
    p.b.keys(LEFT)
    p.b.wait(lambda: "back:" in p.b.text("#tick"), "a chosen tick")
    p.complete()
    p.b.wait(lambda: p.b.text("#link-text") == "0 of 4 slots", "idle slots")
    # Asking again finds its prefix.
    p.b.click(ANSWER + " .actions button")
    p.complete()
    assert "cached" in p.b.text(ANSWER + " .figures")
    p.b.wait(lambda: p.b.text("#cache-hits") not in ("–", "0"), "a hit")


@test
def a_hidden_page_rests(p):
    """A browser has six connections to a server; tabs that nobody looks at hold none of them."""
    p.fresh()
    p.b.js("""const link = document.getElementById('link'); window.states = [];
        new MutationObserver(() => window.states.push(link.dataset.state)).observe(link, {attributeFilter: ['data-state']});""")
    with second_tab(p) as (first, second):
        p.b.open("about:blank")
        p.b.switch(first)
    p.live()
    assert "paused" in p.b.js("return window.states")


# ---- How it looks, and how it is used without looking

def fits(p, width):
    """Nothing is wider than the screen, and no text is cut off, by it or by a list of choices that is too narrow."""
    too_wide = p.b.js("""const w = innerWidth, bad = [];
        if (document.documentElement.scrollWidth > w) bad.push('page ' + document.documentElement.scrollWidth);
        for (const e of document.querySelectorAll('body *')) {
          const r = e.getBoundingClientRect();
          if (!r.width || !r.height || e.closest('.quiet, .skip, pre, .table, .formula, svg')) continue;
          if (r.right > w + 0.5 || r.left < -0.5) bad.push(e.nodeName + '.' + e.className + '#' + e.id + ' ' + r.left + ' ' + r.right);
        }
        for (const e of document.querySelectorAll('.formula.block')) if (e.scrollHeight > e.clientHeight) bad.push('a formula is cut');
        const pen = document.createElement('canvas').getContext('2d');
        for (const e of document.querySelectorAll('select')) {
          const style = getComputedStyle(e), room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16; // the arrow
          pen.font = style.font;
          for (const { text } of e.checkVisibility() ? e.options : []) if (pen.measureText(text).width > room) bad.push(`cut: ${text}`);
        }
        return bad;""")
    assert not too_wide, (width, too_wide)


# The contrast of every text with its background, by WCAG's formula; disabled and hidden things are exempt.
CONTRAST = """const parse = (c) => c.match(/[\\d.]+/g).map(Number);
    const lum = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
    const bad = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let n; (n = walker.nextNode()); ) {
      const e = n.parentElement;
      if (!n.data.trim() || !e.checkVisibility() || e.closest('.quiet, .skip, :disabled, noscript')) continue;
      let back = e, colour;
      for (; back; back = back.parentElement) { colour = parse(getComputedStyle(back).backgroundColor); if (colour.length < 4 || colour[3] === 1) break; }
      if (!back) colour = [255, 255, 255];
      const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(colour)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) bad.push(n.data.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
    }
    return bad;"""

SAMPLE = """Here is what a *tick* does, in **short**:

1. It takes what the queue has.
2. It runs **one** forward pass: see `weir_engine_step`.

```c
weir_status status = weir_engine_step(engine, NULL, &report, &error);
if (status != WEIR_OK) fprintf(stderr, "weir: %s\\n", error.message); /* a line that is longer than narrow screens */
```

| slots | tokens/s | first token | what a reader of this table should know about it |
|---|--:|--:|---|
| 1 | 135 | 45 ms | an incomprehensibility of one |
| 8 | 412 | 80 ms | decode-maximal batches, as the counterrevolutionaries wanted |

- [x] prompts in chunks of $c = \\min(512, n - d)$ tokens
- [ ] the rest

$$
t(n) = t_0 + \\sum_{i=1}^{n} \\frac{a_i}{b} + \\sqrt{\\begin{pmatrix} 1 & x^2 \\\\ 0 & e^{i\\pi} \\end{pmatrix}} + \\text{a formula that is wider than narrow screens are}
$$

> Decode first, always. More at https://example.org/a/very/long/address/that/has/no/place/to/break/in/it
"""


class Load:
    """Three clients that ask again and again, with prompts of all lengths, while the context lasts."""

    def __init__(self, server):
        self.server, self.over = server, threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(random.Random(i),)) for i in range(3)]

    def ask(self, dice):
        while not self.over.is_set():
            words = " ".join(str(dice.random()) for _ in range(dice.choice([1, 10, 40])))
            body = {"messages": [{"role": "user", "content": words}], "max_tokens": dice.choice([20, 60, 150]), "stream": True}
            connection = self.server.connect()
            connection.request("POST", "/v1/chat/completions", body)
            status, _ = connection.head()
            assert status == 200, status
            for _ in connection.events():
                if self.over.is_set():
                    break
            connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


@test
def screens(p):
    """360 and 1600 pixels, light and dark, with an answer that streams: nothing overflows, all text can be read."""
    kept = {"id": "abc", "title": "Ticks", "at": 1, "messages": [
        {"role": "user", "content": "What does a tick do?"},
        {"role": "assistant", "content": SAMPLE, "reasoning": "They ask about ticks.", "finish": "stop",
         "stats": {"tokens": 212, "decodeMs": 1500, "ttftMs": 48, "prompt": 31, "cached": 12, "reasoningMs": 900}},
        {"role": "user", "content": "And the weather?"},
        {"role": "assistant", "content": "", "calls": [{"id": "1", "name": "weather", "arguments": '{"town": "Ulm"}'}], "finish": "tool_calls",
         "stats": {"tokens": 18, "decodeMs": 120, "ttftMs": 40, "prompt": 280, "cached": 230}}]}
    p.fresh()
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps(kept))
    with Load(p.server):
        for width, height in ((360, 740), (768, 1024), (1600, 900)):
            for dark in (False, True):
                name = f"{width}-{'dark' if dark else 'light'}"
                p.b.screen(width, height, dark)
                p.b.open(p.server.url + "/#chat=def")
                p.reload()
                p.live()
                p.b.wait(lambda: p.b.text("#tick") != "No tick yet.", "ticks")
                assert p.b.js(CONTRAST) == [], (name, "empty", p.b.js(CONTRAST))
                fits(p, width)
                p.shoot(name + "-empty")
                p.b.js("location.hash = 'chat=abc'")
                p.b.wait(lambda: p.b.count(".message") == 4, "the chat")
                time.sleep(1)  # some more ticks, for the picture
                p.b.js("document.getElementById('log').scrollTop = 0")
                time.sleep(0.2)
                fits(p, width)
                assert p.b.js(CONTRAST) == [], (name, p.b.js(CONTRAST))
                p.shoot(name)
                p.b.js("document.getElementById('log').scrollTop = 1e6")
                time.sleep(0.2)
                fits(p, width)
                p.shoot(name + "-end")
                for pane, button in (("engine", "#toggle-engine"), ("chats", "#open-chats")) if width < 960 else ():
                    p.b.click(button)
                    time.sleep(0.3)
                    fits(p, width)
                    assert p.b.js(CONTRAST) == [], (name, pane, p.b.js(CONTRAST))
                    p.shoot(f"{name}-{pane}")
                    p.b.click(button)
                p.b.click("#open-settings")
                time.sleep(0.2)
                fits(p, width)
                assert p.b.js(CONTRAST) == [], (name, "settings", p.b.js(CONTRAST))
                p.shoot(name + "-settings")
                p.b.keys(ESCAPE)
    p.b.screen(1280, 800)
    p.idle()


@test
def settings_can_be_closed_from_their_end(p):
    """A phone has no Escape: the button that closes the settings stays in view while they are scrolled."""
    p.fresh()
    p.b.screen(390, 700)
    p.b.click("#open-settings")
    p.b.js("const dialog = document.getElementById('settings'); dialog.scrollTop = dialog.scrollHeight")
    close = "#settings .head button"
    assert p.b.js("""const r = document.querySelector(arguments[0]).getBoundingClientRect();
        return document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2) === document.querySelector(arguments[0])""", close)
    p.b.click(close)
    p.b.wait(lambda: not p.b.js("return document.getElementById('settings').open"), "the end of the settings")
    p.b.screen(1280, 800)


@test
def numbers_of_a_table_stay_in_one_line(p):
    """Cells on the right are numbers with units: on a phone the table scrolls instead."""
    table = "| river | length | remarks |\n|---|--:|---|\n| Danube | 2,850 km | " + "the second longest river of Europe " * 3 + "|\n"
    kept = {"id": "abc", "title": "t", "at": 1, "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": table, "finish": "stop"}]}
    p.fresh()
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.screen(390, 800)
    p.reload()
    p.b.wait(lambda: p.b.count("td.right"), "the table")
    assert p.b.js("const r = document.createRange(); r.selectNodeContents(document.querySelector('td.right')); return new Set([...r.getClientRects()].map((x) => x.top)).size") == 1
    fits(p, 390)
    p.b.screen(1280, 800)


@test
def text_and_message_box_are_one_column(p):
    """At every width, with and without the panes, a bar beside the text or not: the same left and right edge; 720 pixels at most."""
    edges = """const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.right]; };
        const log = document.getElementById('log'), all = [...document.querySelectorAll('#messages, #composer, .message.assistant .body'), document.getElementById('attach')];
        return [all.map(box), box(document.getElementById('send'))[1], log.scrollHeight > log.clientHeight]"""
    for n in (1, 30):
        kept = {"id": "abc", "title": "t", "at": 1, "messages": [m for _ in range(n) for m in ({"role": "user", "content": "?"}, {"role": "assistant", "content": "word " * 300, "finish": "stop"})][-2 * n:]}
        p.fresh()
        p.b.js("localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps(kept))
        for width in (360, 390, 700, 768, 1024, 1280, 1440, 1920):
            p.b.screen(width, 2000 if n == 1 else 800)
            p.b.js("location.hash = 'chat=abc'")
            p.reload()
            p.b.wait(lambda: p.b.count(".message") == 2 * n, "the chat")
            for engine in (False, True) if width >= 960 else (False,):
                if engine:
                    p.show_engine()
                boxes, send, scrolls = p.b.js(edges)
                lefts, rights = {round(left) for left, _ in boxes}, {round(right) for _, right in boxes[:-1]} | {round(send)}
                assert len(lefts) == len(rights) == 1 and scrolls == (n > 1), (width, engine, boxes, send, scrolls)
                assert rights.pop() - lefts.pop() <= 720, (width, boxes)
            p.b.js("localStorage.removeItem('weir.view')")
    p.b.screen(1280, 800)


@test
def the_end_stays_in_view_when_a_pane_opens(p):
    kept = {"id": "abc", "title": "t", "at": 1, "messages": [m for _ in range(9) for m in ({"role": "user", "content": "?"}, {"role": "assistant", "content": "word " * 300, "finish": "stop"})]}
    p.fresh()
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.screen(1024, 800)
    p.reload()
    width = lambda: p.b.js("return document.getElementById('log').clientWidth")
    from_end = lambda: p.b.js("const log = document.getElementById('log'); return log.scrollHeight - log.scrollTop - log.clientHeight")
    p.b.wait(lambda: p.b.count(".message") == 18 and from_end() < 2, "the end")
    for _ in range(3):
        before = width()
        p.b.click("#toggle-engine")
        p.b.wait(lambda: width() != before, "another width")
        p.b.js_async("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert from_end() < 2 and p.b.js("return document.getElementById('latest').hidden"), (from_end(), width())
    p.b.screen(1280, 800)


@test
def targets_are_large_enough(p):
    """At least 24 pixels wide and high, with a mouse and with fingers; links in a text are exempt."""
    kept = {"id": "abc", "title": "t", "at": 1, "messages": [
        {"role": "user", "content": "?", "files": [{"name": "a.txt", "text": "a"}], "versions": {"before": [[{"role": "user", "content": "!"}]], "after": []}},
        {"role": "assistant", "content": "```c\nint a;\n```", "reasoning": "hm", "finish": "length"}]}
    small = """return [...document.querySelectorAll('button, summary, select, input:not([type=checkbox]), textarea')].filter((e) => e.checkVisibility())
        .map((e) => [e.id || e.getAttribute('aria-label') || e.textContent.trim(), e.getBoundingClientRect()]).filter(([, r]) => r.width && (r.width < 24 || r.height < 24)).map(([n, r]) => [n, r.width, r.height])"""
    p.fresh()
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps(kept))
    for width, touch in ((1440, False), (390, False), (390, True)):
        screen(p, width, touch)
        p.b.js("location.hash = 'chat=abc'")
        p.reload()
        p.b.wait(lambda: p.b.count(".file summary") and p.b.count(".code-head button"), "the chat")
        found = p.b.js(small)
        for pane in ("#open-chats", "#toggle-engine") if width < 960 else ():
            p.b.click(pane)
            found += p.b.js(small)
            p.b.click(pane)
        p.b.click("#open-settings")
        found += p.b.js(small)
        p.b.keys(ESCAPE)
        assert not found, (width, touch, found)
    screen(p, 1280, False)


def screen(p, width, touch):
    """A screen of this width, which fingers touch or not."""
    p.b.cdp("Emulation.setTouchEmulationEnabled", enabled=touch)
    p.b.screen(width, 844)
    if touch:
        p.b.cdp("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=True)


@test
def a_phone_names_the_model_and_no_keys(p):
    p.fresh()
    visible = lambda e: p.b.js("const e = document.querySelector(arguments[0]); return e.checkVisibility() && e.clientWidth > 100", e)
    described = lambda: [n.get("description", {}).get("value", "") for n in p.b.cdp("Accessibility.getFullAXTree")["nodes"] if n.get("name", {}).get("value") == "Message"
                         and n.get("role", {}).get("value") == "textbox"]
    p.b.wait(lambda: p.b.text("#model"), "the model's name")
    assert visible("#keys") and visible("#model") and "sends" in described()[0]
    try:
        screen(p, 390, True)
        p.reload()
        p.b.wait(lambda: p.b.text("#model"), "the model's name")
        assert p.b.js("return matchMedia('(pointer: coarse)').matches")
        assert visible("#model") and not visible("#keys") and described() == [""], described()
        fits(p, 390)
    finally:
        screen(p, 1280, False)


@test
def labels_of_a_row_stay_in_line(p):
    """Where one of them needs a second line, what it names stays in line with its neighbours."""
    p.fresh()
    uneven = """const rows = new Map();
        for (const [above, below] of arguments[0]) for (const e of document.querySelectorAll(above)) {
          const key = Math.round(e.parentElement.getBoundingClientRect().top);
          rows.set(key, [...(rows.get(key) ?? []), Math.round(e.parentElement.querySelector(below).getBoundingClientRect().top)]);
        }
        return [[...rows.values()].filter((tops) => new Set(tops).size > 1), Math.max(...[...rows.values()].map((tops) => tops.length))]"""
    p.b.screen(1024, 800)
    p.show_engine()
    wrong, most = p.b.js(uneven, [[".tiles dt", "b"]])
    assert not wrong and most == 3, (wrong, most)
    for width in (1280, 390, 350):
        p.b.screen(width, 800)
        p.b.click("#open-settings")
        p.b.js("document.querySelector(\"label[for='set-top_k']\").textContent = 'Top k, which has many words'")
        wrong, most = p.b.js(uneven, [["#fields .field.number label", "input"]])
        p.shoot(f"labels-{width}")
        p.b.keys(ESCAPE)
        assert not wrong and most > 1, (width, wrong, most)
    p.b.screen(1280, 800)


@test
def a_phone_shows_whole_words(p):
    p.fresh(max_tokens=8)
    p.b.screen(360, 740)
    kept = {"id": "abc", "title": "Ticks", "at": 1, "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": SAMPLE, "finish": "stop"}]}
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.wait(lambda: p.b.count(".table"), "the table")
    width, room = p.b.js("const t = document.querySelector('.table'); return [t.scrollWidth, t.clientWidth]")
    assert room < 360 and width > room, (width, room)
    # A word that was broken would lie on two lines.
    broken = p.b.js("""const bad = [], range = document.createRange();
        for (const cell of document.querySelectorAll('.table td')) for (const { 0: word, index } of cell.textContent.matchAll(/[^\\s-]+/g)) {
          range.setStart(cell.firstChild, index), range.setEnd(cell.firstChild, index + word.length);
          if (range.getClientRects().length > 1) bad.push(word);
        }
        return bad;""")
    assert not broken, broken


@test
def an_empty_page_says_what_it_is(p):
    p.fresh(max_tokens=8)
    assert "language model" in p.b.text("#welcome") and p.b.count("#welcome button") == 3
    first = p.b.text("#welcome button")
    p.b.click("#welcome button")
    p.complete()
    assert p.b.text(".message.user .plain-text") == first and not p.b.js("return document.getElementById('welcome').checkVisibility()")


@test
def the_theme_is_chosen(p):
    """As the system has it, until someone chooses; drawings too."""
    p.fresh()
    ground = lambda: p.b.js("return getComputedStyle(document.body).backgroundColor")
    p.b.screen(1280, 800, dark=True)
    dark = ground()
    p.b.screen(1280, 800)
    light = ground()
    assert light != dark
    choose = lambda theme: p.b.js("const e = document.getElementById('theme'); e.value = arguments[0]; e.dispatchEvent(new Event('change'))", theme)
    choose("dark")
    assert ground() == dark
    assert p.b.js_async("return (await import('./canvas.js')).palette().ink") == p.b.js("return getComputedStyle(document.body).color")
    p.reload()
    assert ground() == dark and p.b.js("return document.getElementById('theme').value") == "dark"
    choose("light")
    p.b.screen(1280, 800, dark=True)
    assert ground() == light
    choose("")
    assert ground() == dark
    p.b.screen(1280, 800)


@test
def everything_has_a_name_and_a_key(p):
    p.fresh(max_tokens=8)
    p.show_engine()
    p.ask("Hello!")
    p.complete()
    p.b.click("#open-settings")
    nodes = p.b.cdp("Accessibility.getFullAXTree")["nodes"]
    p.b.keys(ESCAPE)
    nodes += p.b.cdp("Accessibility.getFullAXTree")["nodes"]
    needs = {"button", "link", "textbox", "spinbutton", "combobox", "dialog", "img", "image", "region", "log", "table", "progressbar", "navigation", "complementary", "searchbox"}
    seen, nameless = set(), []
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored") or role not in needs:
            continue
        seen.add(role)
        if not node.get("name", {}).get("value", "").strip():
            nameless.append((role, node.get("properties")))
    assert not nameless, nameless
    assert {"button", "textbox", "spinbutton", "combobox", "table", "progressbar", "navigation"} <= seen, seen
    # Tab alone reaches every control that is on the screen, and the focused one shows it.
    p.b.js("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
    reached = []
    for _ in range(80):
        p.b.keys(TAB)
        at = p.b.js("""const e = document.activeElement; if (!e || e === document.body) return null;
            const s = getComputedStyle(e); return [e.id || e.textContent.trim() || e.className, [s.outlineStyle, s.outlineWidth, s.outlineColor, s.outlineOffset, s.boxShadow].join(' ')]""")
        if at is not None:
            reached.append(at)
    names = [name for name, _ in reached]
    for wanted in ("Skip to the message box", "new-chat", "open-chats", "open-settings", "toggle-engine", "log", "Edit", "Copy", "Regenerate", "text", "send", "ticks"):
        assert wanted in names, (wanted, names)
    rings = {ring for _, ring in reached}  # one for all
    assert len(rings) == 1 and re.match(r"solid 2px rgb\(", rings.pop()), reached
    assert p.b.js("return [...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)") == []


if __name__ == "__main__":
    main("page")
