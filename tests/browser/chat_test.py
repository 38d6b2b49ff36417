"""Chats on the server's page in headless Chromium: a real browser, a real server, the real model. Screenshots of failures lie in
WEIR_BUILD_DIR/browser afterwards. Arguments: names of tests, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import json
import os

from page import ANSWER, ENTER, ESCAPE, HOSTILE, OUT, STORY, Page, Server, kept_text, main, second_tab, spotless, start, test


# ---- Chat

@test
def text_grows_while_it_streams(p):
    p.fresh(max_tokens=800, seed=1)
    p.endless()
    p.ask(STORY)
    lengths = set()

    def ended():
        lengths.add(len(p.answer()))
        return not p.streaming() and p.b.count(ANSWER)
    p.b.wait(ended, "the end of the answer", 180)
    assert len(lengths) >= 3, lengths  # on a busy machine the page draws seldom
    figures = p.b.text(ANSWER + " .figures")
    assert "tokens" in figures and "tok/s" in figures and "first after" in figures and "prompt" in figures, figures
    # The page's count is the server's, and the engine's pane has seen the ticks.
    assert int(figures.split(" tokens")[0].split()[-1]) <= 800
    p.b.wait(lambda: "decode" in p.b.text("#tick") or "prefill" in p.b.text("#tick"), "a tick")
    complaints = p.complaints()
    assert complaints == [], complaints


@test
def nothing_of_others_is_seen(p):
    """Somebody else has sent a prompt that goes on as the page's does. Neither the page nor what it got has a word of it."""
    p.fresh(max_tokens=8, temperature=0)
    start = "The door of the mill opens with "
    secret = {"messages": [{"role": "user", "content": start + "swordfish, says the miller."}], "max_tokens": 8, "temperature": 0}
    for more in ({}, {"cache_salt": "0f3b"}):
        assert p.server.post("/v1/chat/completions", dict(secret, **more)).status == 200
    p.b.js("""window.got = '';
        const real = window.fetch;
        window.fetch = async (path, options) => {
            const answer = await real(path, options), copy = answer.clone();
            window.got += options?.body ?? '';
            copy.text().then((text) => { window.got += text; window.n_got = (window.n_got ?? 0) + 1; });
            return answer;
        };""")
    p.show_engine()
    p.ask(start + "what?")
    p.complete()
    p.b.wait(lambda: p.b.js("return window.n_got ?? 0"), "the whole answer")
    got, page = p.b.js("return [window.got, document.documentElement.outerHTML + JSON.stringify(Object.entries(localStorage))]")
    assert "what?" in got and "what?" in page and "cached_tokens" in got and "cache_salt" not in got, got
    assert "swordfish" not in got + page, got


@test
def a_long_prompt_is_seen_to_be_read(p):
    """How far it is, in words and as a bar that only grows, until the answer begins; and where the page is loaded anew meanwhile."""
    with open(os.path.join(OUT, "read-server.log"), "w") as log, Server(os.environ["WEIR_BIN"], "-np", "1", "-c", "8192", "-b", "64", "--cache-sequences", "0",
                                                                       model="fake:tick_us=300000,n_ctx_train=8192", log=log) as server:
        q = Page(p.b, server)
        q.fresh(max_tokens=12, temperature=0)
        q.endless()
        p.b.js("""window.values = []; window.words = new Set();
            setInterval(() => {
              const bar = document.querySelector('.message.assistant progress'), text = document.querySelector('.message.assistant .waiting')?.textContent;
              if (bar && !bar.hidden) { window.values.push(bar.value); window.words.add(text); }
            }, 30);""")
        q.ask("x" * 1200)
        p.b.wait(lambda: p.b.js("return window.values.filter((v) => v > 0).length") > 0, "a part of the prompt")
        text = q.complete()
        values, words = p.b.js("return [window.values, [...window.words]]")
        assert text and values == sorted(values) and len(set(values)) >= 3 and 0 <= values[0] and values[-1] < 1, values
        assert all(w.startswith("Reading the prompt, ") and w.endswith(" tokens") for w in words), words
        assert p.b.js("return ['progress', '.waiting'].every((s) => document.querySelector('.message.assistant ' + s).hidden)")
        q.ask("y" * 1200)
        p.b.wait(lambda: "Reading the prompt" in (p.b.text(ANSWER + " .waiting") or ""), "the second prompt")
        q.reload()
        p.b.wait(lambda: "Reading the prompt" in (p.b.text(ANSWER + " .waiting") or ""), "the prompt after a reload")
        assert q.complete()
    p.complaints()  # of the server that has ended


@test
def stop_ends_the_work_too(p):
    for how in ("click", "escape"):
        p.fresh(max_tokens=3000)
        p.endless()
        p.ask(STORY)
        p.growing()
        assert p.server.busy_slots() == 1
        p.b.click("#stop") if how == "click" else p.b.keys(ESCAPE)
        text = p.complete()
        p.idle()
        assert text and p.answer() == text and "stopped" in p.b.text(ANSWER + " .figures")
        assert p.b.js("return document.activeElement.id") == "text"


@test
def tokens_are_counted_and_not_pieces(p):
    """Drafts that are always right, so that most pieces have several tokens; also where the answer is stopped."""
    with open(os.path.join(OUT, "counts-server.log"), "w") as log, Server(os.environ["WEIR_BIN"], "-md", "fake:", "--no-prompt-lookup", "--draft-max", "6", "-np", "2",
                                                                         model="fake:tick_us=20000,n_ctx_train=100000", log=log) as server:
        q = Page(p.b, server)
        for stopped in (True, False):
            q.fresh(max_tokens=20000 if stopped else 120, temperature=0)
            q.endless()
            p.b.js("""const real = window.fetch; window.pieces = 0;
                window.fetch = async (path, options) => {
                  const response = await real(path, options);
                  if (!options?.body || !path.endsWith("chat/completions")) return response;
                  const [mine, theirs] = response.body.tee();
                  (async () => {
                    let text = "";
                    for await (const part of mine.pipeThrough(new TextDecoderStream())) {
                      text += part;
                      window.pieces = text.split('"delta":{"content":').length - 1;
                    }
                  })().catch(() => {});
                  return new Response(theirs, response);
                };""")
            q.ask("hello")
            if stopped:
                p.b.wait(lambda: p.b.js("return window.pieces") > 12, "pieces")
                p.b.click("#stop")
            q.complete()
            figures, pieces = p.b.text(ANSWER + " .figures"), p.b.js("return window.pieces")
            n = int(figures.split(" tokens")[0])
            q.idle()
            generated = server.metrics()["weir_generated_tokens_total"]
            if stopped:
                assert "stopped" in figures and pieces * 2 < n <= generated, (figures, pieces, generated)
            else:
                assert n == 120 and pieces < 80, (figures, pieces)
            p.b.wait(lambda: p.b.text("#tpot-p50") != "–" and p.b.text("#itl-p50") != "–", "times")
            assert float(p.b.text("#tpot-p50")) < float(p.b.text("#itl-p50"))


MORE = ANSWER + " > .actions > button:nth-child(2)"  # Continue


def kinds(p):
    """What can be done with the last answer."""
    return p.b.js("return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).map((e) => e.textContent)", ANSWER + " > .actions > button")


@test
def an_answer_that_was_cut_goes_on(p):
    """By its length or by Stop: in the same message, from its last character on; greedy, it is the text that one request would have had."""
    p.fresh(max_tokens=40, temperature=0)
    p.endless()
    p.ask(STORY)
    p.complete()
    whole = kept_text(p)["content"]
    p.fresh(max_tokens=20, temperature=0)
    p.endless()
    p.ask(STORY)
    p.complete()
    half = kept_text(p)["content"]
    assert whole.startswith(half) and kinds(p) == ["Regenerate", "Continue", "Copy"], (half, whole, kinds(p))
    watch_requests(p)
    p.b.click(MORE)
    p.b.wait(lambda: not p.streaming() and len(kept_text(p)["content"]) > len(half), "more of it")
    p.complete()
    message, sent = kept_text(p), p.b.js("return window.sent")[0]
    assert sent["continue_final_message"] is True and sent["messages"][-1] == {"role": "assistant", "content": half}, sent
    assert message["content"] == whole and p.b.count(".message") == 2 and p.b.text(ANSWER + " .figures").startswith("40 tokens"), message
    assert "before" not in message and message["finish"] == "length" and kinds(p)[1] == "Continue"
    # One that is stopped, and one that is loaded anew while it goes on.
    p.b.js("const e = document.getElementById('set-max_tokens'); e.value = '3000'; e.dispatchEvent(new Event('input'))")
    p.b.click(MORE)
    p.b.wait(lambda: len(p.answer()) > len(message["content"]) + 40, "more of it")
    p.reload()
    p.growing()
    p.b.click("#stop")
    p.complete()
    stopped = kept_text(p)
    assert stopped["content"].startswith(message["content"]) and stopped["finish"] == "stopped" and stopped["stats"]["tokens"] > 40 and kinds(p)[1] == "Continue", stopped
    # An end that is the model's own, a former message, and a call have none.
    keep = lambda *messages: (p.b.js("location.hash = 'chat=0'"), p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(
        {"id": "abc", "title": "t", "at": 1, "messages": list(messages)})), p.b.wait(lambda: p.b.count(".message") == len(messages), "the chat"))
    user, cut = {"role": "user", "content": "?"}, {"role": "assistant", "content": "One", "finish": "length"}
    keep(user, {**cut, "finish": "stop"})
    assert kinds(p) == ["Regenerate", "Copy"]
    keep(user, {**cut, "calls": [{"id": "1", "name": "f", "arguments": "{"}]})
    assert "Continue" not in kinds(p)
    keep(user, cut, user, {**cut, "content": ""})
    assert p.b.js("return [...document.querySelectorAll('.message button')].filter((e) => e.textContent === 'Continue' && e.checkVisibility()).length") == 0


@test
def two_tabs_at_once(p):
    p.fresh(max_tokens=400, seed=3)
    p.ask(STORY)
    p.growing()
    with second_tab(p) as (first, second):
        p.b.open(p.server.url + "/")
        assert p.b.count(".message") == 0  # a chat of its own
        p.endless()
        p.ask("List the planets, with a sentence about each.")
        p.growing()
        p.b.click("#stop")
        other = p.complete()
        p.b.switch(first)
        text = p.complete()
        assert text and other and text != other
        assert p.b.count(".message") == 2
        p.b.wait(lambda: p.b.count("#chat-list li") == 2, "both chats in the list")
        # The first tab's chat, in the second one.
        address = p.b.js("return location.href")
        p.b.switch(second)
        p.b.js("location.href = arguments[0]", address)
        p.b.wait(lambda: p.answer() == text, "the other tab's chat")
        # What one tab adds, the other one shows.
        p.ask("Thanks.")
        answer = p.complete()
        p.b.switch(first)
        p.b.wait(lambda: p.b.count(".message") == 4 and p.answer() == answer, "what the other tab added")


@test
def a_reload_keeps_the_chat(p):
    p.fresh(max_tokens=40, seed=4)
    p.ask("Say hello.")
    text = p.complete()
    p.reload()
    assert p.answer() == text and p.b.text(".message.user .plain-text") == "Say hello."


@test
def an_answer_survives_a_reload(p):
    """It goes on growing, and is the text that the server made, to the byte, though the page was loaded anew several times."""
    p.fresh(max_tokens=1500, seed=7)
    p.endless()
    p.ask(STORY)
    p.growing()
    for _ in range(3):
        before = len(p.answer())
        p.reload()
        p.b.wait(lambda: p.streaming() and len(p.answer()) > before, "more of the answer")
        assert len(kept_text(p)["content"]) > 0 and p.b.count(".message") == 2
    stream = kept_text(p)["stream"]
    text = p.complete()
    message = kept_text(p)
    assert "cut off" in p.b.text(ANSWER + " .figures") and p.b.text(ANSWER + " .figures").startswith("1500 tokens"), message
    assert "stream" not in message and "state" not in message, message
    lines = p.server.get("/v1/streams/" + stream).body.decode().split("\n")
    made = [json.loads(line[6:])["choices"] for line in lines if line.startswith("data: {")]
    assert "".join(c[0]["delta"].get("content", "") for c in made if c) == message["content"] and text
    p.reload()
    assert p.answer() == text and not p.streaming()
    p.idle()
    complaints = p.complaints()
    assert complaints == [], complaints


@test
def an_event_source_reads_a_stream(p):
    """The browser's own reader: it takes each event once, comes back after the end, and is told that there is nothing more."""
    p.fresh()
    got = p.b.js_async("""const body = { messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 40, ignore_eos: true, seed: 1, stream: true, resume: true };
        const reply = await fetch('v1/chat/completions', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
        await reply.body.cancel();
        const source = new EventSource('v1/streams/' + reply.headers.get('X-Stream-Id') + '?starting_after=1'), got = [];
        source.onmessage = (event) => got.push([Number(event.lastEventId), event.data]);
        await new Promise((resolve) => (source.onerror = () => source.readyState === EventSource.CLOSED && resolve()));
        return got;""")
    assert [i for i, _ in got] == list(range(2, len(got) + 2)) and got[-1][1] == "[DONE]" and len(got) > 20, got


@test
def stop_works_after_a_reload(p):
    p.fresh(max_tokens=3000)
    p.endless()
    p.ask(STORY)
    p.growing()
    p.reload()
    p.growing()
    p.b.click("#stop")
    text = p.complete()
    p.idle()
    assert text and "stopped" in p.b.text(ANSWER + " .figures")
    p.reload()
    assert p.answer() == text and not p.streaming() and "stopped" in p.b.text(ANSWER + " .figures")


@test
def two_tabs_show_one_answer(p):
    p.fresh(max_tokens=3000)
    p.endless()
    p.ask(STORY)
    p.growing()
    address = p.b.js("return location.href")
    with second_tab(p) as (first, second):
        p.b.open(address)
        p.growing()
        assert p.server.busy_slots() == 1
        before = len(p.answer())
        p.b.wait(lambda: len(p.answer()) > before, "more of the answer, in the second tab")
        p.b.click("#stop")
        text = p.complete()
        p.idle()
        p.b.switch(first)
        p.b.wait(lambda: not p.streaming(), "the end in the first tab")
        assert "stopped" in p.b.text(ANSWER + " .figures") and p.answer()[:100] == text[:100]


@test
def another_chat_meanwhile(p):
    p.fresh(max_tokens=400, seed=8)
    p.endless()
    p.ask(STORY)
    p.growing()
    address = p.b.js("return location.hash")
    p.b.click("#new-chat")
    p.b.wait(lambda: p.b.count(".message") == 0 and not p.streaming(), "a new chat")
    p.b.js("location.hash = arguments[0]", address)
    p.b.wait(lambda: p.b.count(".message") == 2, "the first one")
    text = p.complete()
    assert len(text) > 100 and p.b.text(ANSWER + " .figures").startswith("400 tokens"), p.b.text(ANSWER + " .figures")


@test
def edit_and_regenerate(p):
    p.fresh(max_tokens=24, temperature=0)
    p.ask("Name a colour.")
    first = p.complete()
    p.ask("Name a number.")
    p.complete()
    p.b.click(ANSWER + " .actions button")
    p.b.wait(lambda: p.b.count(".message") == 4, "the answer again")
    p.complete()
    p.b.click(".message.user .actions button")
    assert p.b.js("return document.activeElement.value") == "Name a colour."
    p.b.keys(ESCAPE)
    assert p.b.count(".editor") == 0 and p.b.count(".message") == 4
    p.b.click(".message.user .actions button")
    p.b.js("document.activeElement.select()")
    p.b.type(".editor textarea", "Count to three." + ENTER)
    second = p.complete()
    assert p.b.count(".message") == 2 and p.b.text(".message.user .plain-text") == "Count to three."
    # Greedy: the first question asked anew gets the first answer anew.
    p.b.click(".message.user .actions button")
    p.b.js("document.activeElement.select()")
    p.b.type(".editor textarea", "Name a colour." + ENTER)
    assert p.complete() == first and second != first


@test
def former_versions_are_kept(p):
    """What an edit or another answer replaces stays, with all that followed it, and comes back by the arrows."""
    p.fresh(max_tokens=12, temperature=0)
    p.ask("Name a colour.")
    first = p.complete()
    p.b.click(ANSWER + " .actions button")
    p.complete()
    p.ask("And a number.")
    p.complete()
    versions = lambda: [e for e in p.b.js("return [...document.querySelectorAll('.versions:not([hidden]) .version-number')].map((e) => e.textContent)")]
    assert versions() == ["2 / 2"] and p.b.count(".message") == 4
    p.b.click("[aria-label='Former version']:enabled")
    p.b.wait(lambda: p.b.count(".message") == 2, "the first answer alone")
    assert versions() == ["1 / 2"] and p.answer() == first
    p.b.click(".message.user .actions button")
    p.b.js("document.activeElement.select()")
    p.b.type(".editor textarea", "Name an animal." + ENTER)
    p.b.wait(lambda: p.b.count(".message") == 2 and not p.streaming(), "the edited question")
    animal = p.complete()
    assert versions() == ["2 / 2"], versions()
    p.reload()
    assert versions() == ["2 / 2"] and p.answer() == animal
    p.b.click("[aria-label='Former version']:enabled")
    p.b.wait(lambda: p.b.text(".message.user .plain-text") == "Name a colour.", "the first question")
    assert versions() == ["1 / 2", "1 / 2"], versions()
    p.b.js("document.querySelectorAll(\"[aria-label='Later version']:enabled\")[1].click()")
    p.b.wait(lambda: p.b.count(".message") == 4, "the second answer, and what followed it")
    # One that failed is not kept.
    p.b.js("""const real = window.fetch;
        window.fetch = (url, ...more) => {
          if (!String(url).includes('completions')) return real(url, ...more);
          window.fetch = real;
          return Promise.resolve(new Response('', {status: 500, statusText: 'Oops'}));
        }""")
    p.ask("Fail.")
    p.b.wait(lambda: "Oops" in (p.b.text(ANSWER + " .error") or ""), "the failure")
    p.b.click(ANSWER + " .actions button")
    p.b.wait(lambda: p.answer() and not p.streaming(), "the answer")
    assert versions() == ["1 / 2", "2 / 2"], versions()


# ---- The list of chats

def keep(p, n, **more):
    """Puts n chats into the browser: 1 with one word, 2 with two, …"""
    chats = [dict({"id": f"{i:04x}", "title": f"Chat {i}", "at": i, "messages": [
        {"role": "user", "content": " ".join(["word"] * i) + f" of {i}"}, {"role": "assistant", "content": f"Answer {i}.", "finish": "stop"}]}, **more)
        for i in range(1, n + 1)]
    p.b.js("for (const chat of arguments[0]) localStorage.setItem('weir.chat.' + chat.id, JSON.stringify(chat))", chats)
    p.reload()
    p.live()


def listed(p):
    return p.b.js("return [...document.querySelectorAll('#chat-list .chat-open span')].map((e) => e.textContent)")


@test
def no_chat_is_deleted_but_by_hand(p):
    p.fresh(max_tokens=8)
    keep(p, 60)
    assert listed(p) == [f"Chat {i}" for i in range(60, 0, -1)]
    p.ask("Hello!")
    p.complete()
    p.b.wait(lambda: len(listed(p)) == 61 and listed(p)[0] == "Hello!", "the new chat on top")
    # Delete, and undo: of another chat, and of the one that is shown.
    for title in ("Chat 60", "Hello!"):
        p.b.js("document.querySelector(arguments[0]).focus()", f"[aria-label='Delete “{title}”']")
        p.b.keys(ENTER)
        p.b.wait(lambda: title not in listed(p), "the shorter list")
        assert f"Deleted “{title}”" in p.b.text("#notice")
        p.b.click("#notice button")
        p.b.wait(lambda: title in listed(p), "the chat again")
    p.b.wait(lambda: p.b.count(".message") == 2, "the shown chat again")
    assert len(listed(p)) == 61 and not p.b.js("return document.getElementById('notice').checkVisibility()")
    # A search finds words in titles and texts, all of them, in any order.
    for words, found in (("chat 17", ["Chat 17"]), ("57. answer", ["Chat 57"]), ("nowhere", [])):
        p.b.js("const e = document.getElementById('find-chat'); e.value = ''; e.focus()")
        p.b.type("#find-chat", words)
        p.b.wait(lambda: listed(p) == found, words)
    assert "No chat" in p.b.text("#chats-note")
    p.b.js("const e = document.getElementById('find-chat'); e.value = ''; e.dispatchEvent(new Event('input'))")
    # Another title stays, and moves nothing.
    p.b.js("document.querySelector(arguments[0]).click()", "[aria-label='Rename “Hello!”']")
    p.b.js("document.activeElement.value = ''")
    p.b.type(".chat-title", "Greetings <b>" + ENTER)
    p.b.wait(lambda: listed(p)[0] == "Greetings <b>", "the new title")
    p.ask("And again.")
    p.complete()
    p.reload()
    assert listed(p)[:2] == ["Greetings <b>", "Chat 60"], listed(p)[:2]


@test
def a_full_store_says_so(p):
    p.fresh(max_tokens=8)
    keep(p, 3)
    p.b.js("""let text = 'x'.repeat(1 << 20);
        for (let i = 0; text.length > 16; ) { try { localStorage.setItem('ballast' + i, text); i++; } catch { text = text.slice(text.length / 2); } }""")
    p.ask("Hello!")
    assert p.complete()
    assert "no room" in p.b.text("#notice"), p.b.text("#notice")
    assert len(listed(p)) == 3  # none had to go
    p.b.js("for (const key of Object.keys(localStorage)) if (key.startsWith('ballast')) localStorage.removeItem(key)")
    p.ask("And again.")
    p.complete()
    assert len(listed(p)) == 4 and not p.b.js("return document.getElementById('notice').checkVisibility()")


@test
def chats_as_files(p):
    """Exported chats can be imported, as a whole from JSON, their texts from Markdown; other files are refused."""
    p.fresh(max_tokens=8)
    wild = "## You <!-- user -->\n\\## Model <!-- assistant -->\ntext"
    keep(p, 2, messages=[{"role": "user", "content": wild}, {
        "role": "assistant", "content": "second", "reasoning": "hm", "stats": {"tokens": 3}, "calls": [{"id": "1", "name": "f", "arguments": "{}"}],
        "versions": {"before": [[{"role": "assistant", "content": "first"}]], "after": []}}])
    p.b.js("location.hash = 'chat=0002'")
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")
    p.b.js("window.files = []; const real = URL.createObjectURL; URL.createObjectURL = (blob) => (window.files.push(blob), real(blob))")
    for button in ("#export-json", "#export-all", "#export-markdown"):
        p.b.click(button)
    p.b.wait(lambda: p.b.js("return window.files.length") == 3, "the files")
    one, all_chats, markdown = p.b.js_async("return Promise.all(window.files.map((file) => file.text()))")
    assert [c["id"] for c in json.loads(all_chats)["chats"]] == ["0002", "0001"] and len(json.loads(one)["chats"]) == 1
    folder = os.path.join(OUT, "files")
    os.makedirs(folder, exist_ok=True)

    def bring(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
        p.b.js("document.getElementById('notice').textContent = ''")
        p.b.type("#import-file", os.path.join(folder, name))
        return p.b.wait(lambda: p.b.text("#notice"), "the page's word")

    kept = """return Object.keys(localStorage).filter((k) => k.startsWith('weir.chat.')).map((k) => JSON.parse(localStorage.getItem(k)))"""
    was = p.b.js(kept)
    p.b.js("localStorage.clear()")
    assert "Imported 2 chats" in bring("all.json", all_chats)
    strip = lambda chats: sorted(({k: v for k, v in c.items() if k not in ("id", "named")} for c in chats), key=lambda c: c["title"])
    assert strip(p.b.js(kept)) == strip(was), (p.b.js(kept), was)
    p.b.js("localStorage.clear()")
    assert "Imported 1 chat." in bring("one.md", markdown)
    chat, = p.b.js(kept)
    assert chat["title"] == "Chat 2" and [m["role"] for m in chat["messages"]] == ["user", "assistant"], chat
    assert chat["messages"][0]["content"] == wild and chat["messages"][1]["content"].startswith("second"), chat
    for name, text in (("no.json", '{"a": 1}'), ("broken.json", "{"), ("no.md", "# Nothing\n\nsaid"), ("none.json", '{"format": "weir chats", "chats": []}')):
        assert "was not imported" in bring(name, text), name
    # What is here already, by its id or by its content, is not doubled; of two states of one chat the later one stays.
    p.b.js("localStorage.clear()")
    assert bring("all.json", all_chats).startswith("Imported 2 chats.")
    assert bring("all.json", all_chats).startswith("Imported 0 chats, 2 here already.")
    assert bring("one.json", one).startswith("Imported 0 chats, 1 here already.")
    assert bring("one.md", markdown).startswith("Imported 0 chats, 1 here already.")
    others = json.loads(all_chats)
    for i, chat in enumerate(others["chats"]):
        chat["id"] = f"ff{i}"  # of another browser
    assert bring("others.json", json.dumps(others)).startswith("Imported 0 chats, 2 here already.")
    assert len(p.b.js(kept)) == 2
    p.b.js("location.hash = 'chat=0'")
    p.b.js("location.hash = 'chat=0002'")
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")
    others = json.loads(one)
    others["chats"][0]["messages"].append({"role": "user", "content": "later"})
    others["chats"][0]["at"] -= 1
    assert bring("earlier.json", json.dumps(others)).startswith("Imported 0 chats, 1 here already.") and p.b.count(".message") == 2
    others["chats"][0]["at"] += 1e6
    assert bring("later.json", json.dumps(others)).startswith("Imported 0 chats, 1 renewed.")
    p.b.wait(lambda: p.b.count(".message") == 3, "the later state of the chat that is shown")
    assert len(p.b.js(kept)) == 2
    # Markdown holds no spaces at the end of a text, and one line of a title.
    p.b.js("localStorage.clear(); localStorage.setItem('weir.chat.abc', arguments[0])", json.dumps({"id": "abc", "title": "two\nlines", "at": 1, "messages": [
        {"role": "user", "content": "two\nlines"}, {"role": "assistant", "content": "One. \n"}]}))
    assert bring("two.md", "# two\nlines\n\n## You <!-- user -->\n\ntwo\nlines\n\n## Model <!-- assistant -->\n\nOne. \n\n").startswith("Imported 0 chats, 1 here already.")
    # The same text behind another system message is another chat.
    same = {"title": "t", "at": 1, "messages": [{"role": "user", "content": "?"}]}
    assert bring("systems.json", json.dumps({"format": "weir chats", "chats": [{**same, "id": "a1", "system": "Be brief."}, {**same, "id": "a2"}, {**same, "id": "a3"}]})
                 ).startswith("Imported 2 chats, 1 here already.")
    # A wicked file brings text, in the types that the page knows, or nothing.
    p.b.js("localStorage.clear()")
    bring("wicked.json", json.dumps({"format": "weir chats", "chats": [None, 1, {"title": {}, "at": "x", "messages": [
        1, {"role": "system", "content": "no"}, {"role": "user", "content": {"a": 1}, "stream": "1", "state": "open", "versions": 3},
        {"role": "assistant", "content": HOSTILE, "calls": [{}, {"name": HOSTILE}], "stats": "x"}]}]}))
    p.b.click("#chat-list .chat-open")
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")
    spotless(p)
    # Times that no clock has, and ids of other types.
    p.b.js("localStorage.clear()")
    bring("times.json", json.dumps({"format": "weir chats", "chats": [{"id": i, "title": f"t{i}", "at": at, "messages": [{"role": "user", "content": f"{i}"}]}
                                                                      for i, at in ((1, 1e300), (["abc"], -1e300))]}))
    p.reload()
    p.live()
    assert sorted(listed(p)) == ["t1", "t['abc']"] and p.b.js(kept) and "weir.chat.abc" not in p.b.js("return Object.keys(localStorage)"), p.b.js(kept)
    complaints = p.complaints()
    assert complaints == [], complaints


@test
def who_only_looks_at_a_chat_leaves_its_time(p):
    """Of two states of a chat an import keeps the later one."""
    p.fresh()
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps({"id": "abc", "title": "t", "at": 1, "messages": [
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "One.", "finish": "stop"}]}))
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")
    p.reload()
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat after a reload")
    assert p.b.js("return JSON.parse(localStorage.getItem('weir.chat.abc')).at") == 1


@test
def text_files_go_with_a_message(p):
    """By the button, by a drop and by a paste; the model reads them before the message, and they stay folded."""
    p.fresh(max_tokens=8)
    p.b.js("""window.sent = []; const real = window.fetch;
        window.fetch = (path, options) => { if (options?.body && path.endsWith('completions')) window.sent.push(JSON.parse(options.body)); return real(path, options); }""")
    folder = os.path.join(OUT, "files")
    os.makedirs(folder, exist_ok=True)
    for name, data in (("notes.md", b"one\r\n```\ntwo\n```\n"), ("picture.bin", b"\x89PNG\0\xff"), ("large.txt", b"a" * ((1 << 20) + 1))):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    chips = lambda: p.b.js("return [...document.querySelectorAll('#attached span')].map((e) => e.textContent)")
    p.b.type("#attach-file", os.path.join(folder, "notes.md"))
    p.b.wait(lambda: chips() == ["notes.md"], "the file")
    for name, why in (("picture.bin", "not UTF-8 text"), ("large.txt", "larger than 1 MiB")):
        p.b.type("#attach-file", os.path.join(folder, name))
        p.b.wait(lambda: why in p.b.text("#notice"), why)
    give = """const data = new DataTransfer(); data.items.add(new File([arguments[2]], arguments[1], { type: 'text/plain' }));
        document.getElementById(arguments[3]).dispatchEvent(arguments[0] === 'paste' ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })
          : new DragEvent(arguments[0], { dataTransfer: data, bubbles: true, cancelable: true }))"""
    p.b.js(give, "dragover", "dropped.py", "x = 1", "log")
    assert p.b.count(".dropping") == 1
    p.b.js(give, "drop", "dropped.py", "x = 1", "log")
    p.b.js(give, "paste", "<b>.txt", HOSTILE, "text")
    p.b.wait(lambda: chips() == ["notes.md", "dropped.py", "<b>.txt"] and p.b.count(".dropping") == 0, "three files")
    p.b.click("#attached [aria-label='Remove dropped.py']")
    p.ask("What is this?")
    p.complete()
    assert chips() == [] and p.b.js("return [...document.querySelectorAll('.file summary')].map((e) => e.textContent)") == ["notes.md", "<b>.txt"]
    sent = p.b.js("return window.sent")[0]["messages"][-1]["content"]
    assert sent == f"notes.md:\n````\none\n```\ntwo\n```\n````\n\n<b>.txt:\n```\n{HOSTILE}\n```\n\nWhat is this?", sent
    p.b.click(".file:nth-child(2) summary")
    assert p.b.text(".file:nth-child(2) pre") == HOSTILE
    spotless(p)
    # An edit keeps them, and so does a reload.
    p.b.click(".message.user .actions button")
    p.b.type(".editor textarea", " Really?" + ENTER)
    p.complete()
    assert p.b.js("return window.sent")[1]["messages"][-1]["content"] == sent + " Really?"
    p.reload()
    assert p.b.count(".file") == 2


@test
def system_prompt_and_sampling_are_sent(p):
    p.fresh()
    p.b.click("#open-settings")
    p.b.type("#set-system", "You are a parrot.")
    p.b.type("#set-temperature", "0")
    p.b.type("#set-max_tokens", "7")
    p.b.type("#set-stop", "first\n\nsecond")
    p.b.keys(ESCAPE)
    assert not p.b.js("return document.getElementById('settings').open")
    p.reload()
    p.live()
    p.b.js("""window.sent = []; const real = window.fetch;
        window.fetch = (path, options) => { if (options?.body) window.sent.push(JSON.parse(options.body)); return real(path, options); }""")
    p.ask("Hello!")
    p.complete()
    sent = p.b.js("return window.sent")[0]
    assert sent["messages"] == [{"role": "system", "content": "You are a parrot."}, {"role": "user", "content": "Hello!"}], sent
    assert sent["temperature"] == 0 and sent["max_tokens"] == 7 and sent["stop"] == ["first", "second"] and sent["stream"] is True, sent
    assert "top_p" not in sent and sent["model"] == p.b.text("#model")
    figures = p.b.text(ANSWER + " .figures")
    assert figures.startswith("7 tokens") and "cut off" in figures, figures
    # A setting that the server refuses: its words, and the chat goes on.
    p.b.js("localStorage.setItem('weir.settings', JSON.stringify({temperature: -7, max_tokens: 4}))")
    p.reload()
    p.ask("Again?")
    p.b.wait(lambda: not p.streaming() and "temperature" in (p.b.text(ANSWER + " .error") or ""), "the refusal")
    p.b.js("localStorage.setItem('weir.settings', JSON.stringify({max_tokens: 4}))")
    p.reload()
    p.b.click(ANSWER + " .actions button")
    assert p.complete() and p.b.count(".message") == 4


def watch_requests(p):
    p.b.js("""window.sent = []; const real = window.fetch;
        window.fetch = (path, options) => { if (options?.body && path.endsWith('completions')) window.sent.push(JSON.parse(options.body)); return real(path, options); }""")


def close_settings(p):
    p.b.keys(ESCAPE)
    assert not p.b.js("return document.getElementById('settings').open")


@test
def settings_show_the_servers_values(p):
    p.fresh()
    server = p.server.get("/props").json["default_generation_settings"]["params"]
    p.b.click("#open-settings")
    shown = lambda name: p.b.js("return document.getElementById('set-' + arguments[0]).placeholder", name)
    p.b.wait(lambda: shown("temperature") == str(server["temperature"]), "the temperature")
    assert shown("top_k") == str(server["top_k"]) and shown("max_tokens") == "no limit" and shown("seed") == "random" and shown("priority") == "0"
    assert p.b.js("return [...document.querySelectorAll('#fields input[type=number]')].every((e) => e.placeholder)")
    close_settings(p)


@test
def each_chat_has_its_system_prompt(p):
    p.fresh(max_tokens=4)
    prompt = lambda: p.b.js("document.getElementById('open-settings').click(); const text = document.getElementById('set-system').value;"
                            "document.getElementById('settings').close(); return text")
    p.b.click("#open-settings")
    p.b.type("#set-system", "You are a parrot.")
    close_settings(p)
    p.ask("Hello!")
    p.complete()
    first = p.b.js("return location.hash")
    p.b.click("#new-chat")
    p.b.wait(lambda: p.b.count(".message") == 0, "a new chat")
    assert prompt() == ""
    p.b.click("#open-settings")
    p.b.type("#set-system", "You are a fish.")
    p.b.click("#system-for-all")
    close_settings(p)
    p.b.click("#new-chat")
    watch_requests(p)
    p.ask("Hello!")
    p.complete()
    assert p.b.js("return window.sent")[0]["messages"][0] == {"role": "system", "content": "You are a fish."}
    p.b.js("location.hash = arguments[0]", first)
    p.b.wait(lambda: prompt() == "You are a parrot.", "the first chat's prompt")


@test
def presets_are_kept(p):
    p.fresh(max_tokens=4)
    p.b.click("#open-settings")
    p.b.type("#set-system", "You are a poet.")
    p.b.type("#set-temperature", "1.5")
    p.b.type("#preset-name", "Poet <b>" + ENTER)
    assert p.b.js("return document.getElementById('settings').open")
    p.b.click("#reset-settings")
    assert p.b.js("return document.getElementById('set-temperature').value + document.getElementById('set-system').value") == ""
    close_settings(p)
    p.reload()
    p.b.click("#open-settings")
    p.b.js("const e = document.getElementById('preset'); e.value = 'Poet <b>'; e.dispatchEvent(new Event('change'))")
    p.shoot("presets")
    close_settings(p)
    watch_requests(p)
    p.ask("Hello!")
    p.complete()
    sent, = p.b.js("return window.sent")
    assert sent["temperature"] == 1.5 and sent["max_tokens"] == 4 and sent["messages"][0]["content"] == "You are a poet.", sent
    p.b.click("#open-settings")
    p.b.js("const e = document.getElementById('preset'); e.value = 'Poet <b>'; e.dispatchEvent(new Event('change'))")
    p.b.click("#delete-preset")
    assert p.b.js("return document.getElementById('preset').options.length") == 1
    close_settings(p)


@test
def several_models_are_a_choice(p):
    p.fresh()
    assert not p.b.js("return document.getElementById('models').checkVisibility()")
    with open(os.path.join(OUT, "models-server.log"), "w") as log, start("--alias", "one", "--alias", "two", log=log) as server:
        page = Page(p.b, server)
        page.fresh(max_tokens=4)
        p.b.wait(lambda: p.b.js("return [...document.getElementById('models').options].map((e) => e.value)") == ["one", "two"], "both names")
        p.b.js("const e = document.getElementById('models'); e.value = 'two'; e.dispatchEvent(new Event('change'))")
        p.reload()
        page.live()
        p.b.wait(lambda: p.b.js("return document.getElementById('models').value") == "two", "the choice")
        watch_requests(p)
        page.ask("Hello!")
        assert page.complete() and p.b.js("return window.sent")[0]["model"] == "two"
        p.b.screen(360, 740)
        p.b.wait(lambda: p.b.js("return innerWidth === 360"), "the narrow screen")
        widths = p.b.js("return [document.documentElement.scrollWidth, document.getElementById('models').getBoundingClientRect().width]")
        assert widths[0] <= 360 and widths[1] >= 160, widths  # beside the server's state
        assert p.b.js("const e = document.getElementById('link'); return e.scrollWidth <= e.clientWidth"), "the server's state is cut"
        p.shoot("models")


@test
def events_in_any_pieces(p):
    """The reader of Server-Sent Events gives the same events wherever the bytes are cut."""
    p.fresh()
    source = "\ufeff: hello\r\ndata: one\n\nevent: tick\rdata: {\"a\":1}\r\rdata:two\ndata: thrée \U0001f41f\r\n\r\nid: 3\nretry: 9\ndata\n\nevent: x\n\ndata: cut off"
    meant = [["message", "one"], ["tick", '{"a":1}'], ["message", "two\nthrée \U0001f41f"], ["message", ""]]
    wrong = p.b.js_async("""const { events } = await import("./sse.js");
        const bytes = new TextEncoder().encode(args[0]), wrong = [];
        for (let i = 0; i <= bytes.length; i++) {
          for (const j of [i, Math.min(bytes.length, i + 1), bytes.length]) {
            const got = [];
            const body = new ReadableStream({ start(c) { for (const [a, b] of [[0, i], [i, j], [j, bytes.length]]) c.enqueue(bytes.slice(a, b)); c.close(); } });
            for await (const { event, data } of events({ body })) got.push([event, data]);
            if (JSON.stringify(got) !== args[1]) wrong.push([i, j, got]);
          }
        }
        return wrong.slice(0, 3);""", source, json.dumps(meant, ensure_ascii=False, separators=(",", ":")))
    assert not wrong, wrong


# ---- Reasoning, tools

@test
def reasoning_is_folded(p):
    p.fresh()
    kept = {"id": "abc", "title": "t", "at": 1, "messages": [{"role": "user", "content": "?"}, {
        "role": "assistant", "content": "Answer.", "reasoning": "I **think**.", "finish": "stop", "stats": {"tokens": 9, "decodeMs": 80, "ttftMs": 20, "reasoningMs": 2500}}]}
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.wait(lambda: p.b.count(".message") == 2, "the chat")
    assert p.b.text(".reasoning summary") == "Reasoning, 2.5 s" and not p.b.js("return document.querySelector('.reasoning').open")
    p.b.click(".reasoning summary")
    p.b.wait(lambda: p.b.text(".thoughts strong") == "think", "the reasoning")
    assert p.b.text(ANSWER + " .figures").startswith("9 tokens · 100 tok/s · first after 20 ms")


@test
def reasoning_can_be_ended(p):
    path = os.path.join(OUT, "think.jinja")
    with open(path, "w") as f:
        f.write("""{%- for m in messages %}{%- if m.role == 'assistant' and m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}""")
    with open(os.path.join(OUT, "think-server.log"), "w") as log, start("--chat-template-file", path, "-c", "8192", log=log) as server:
        page = Page(p.b, server)
        page.fresh(max_tokens=8000)
        page.endless()
        page.ask(STORY)
        more = ANSWER + " > button"
        p.b.wait(lambda: p.b.text(".reasoning summary") == "Reasoning…" and not p.b.js(f"return document.querySelector('{more}').hidden"), "the reasoning")
        assert page.answer() == "" and p.b.text(more) == "Answer now"
        p.b.click(more)
        page.growing()
        assert p.b.js(f"return document.querySelector('{more}').hidden")
        p.b.click("#stop")
        page.complete()


TOOL = {"type": "function", "function": {"name": "weather", "description": "the weather of a town", "parameters": {
    "type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": False}}}


@test
def tool_calls_are_shown_and_answered(p):
    p.fresh(tools=json.dumps([TOOL]), tool_choice="required", max_tokens=200, seed=5)
    p.ask("How is the weather in Ulm?")
    p.complete()
    assert p.b.text(".call b") == "weather"
    assert json.loads(p.b.text(".call pre code"))["town"] in ("Ulm", "Bonn")
    p.b.type(".call-answer textarea", "sunny, 20 degrees")
    p.b.click(".call-answer button")
    p.complete()
    assert p.b.count(".message") == 4 and p.b.text(".message.tool .plain-text") == "sunny, 20 degrees"
    assert p.b.count(".call-answer:not([hidden])") == p.b.count(ANSWER + " .call")
    p.reload()
    assert p.b.text(".call b") == "weather" and p.b.count(".message") == 4


if __name__ == "__main__":
    main("chat")
