"""What the server's page says and does when the server is full, away or has another key, and when a chat is too long. Arguments: names of
tests, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import re
import subprocess

from page import ANSWER, ENTER, OUT, STORY, Page, Server, kept_text, main, start, test


def tiny(kind):
    """A small random model of a kind."""
    path = os.path.join(OUT, kind + ".gguf")
    subprocess.run(["sh", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "tiny.sh"), path, "tiny_gguf.py", kind], check=True)
    return path


def waits(p, words):
    """Until the answer that does not come yet shows the reason."""
    return p.b.wait(lambda: (lambda text: text if words in text else None)(p.b.text(ANSWER + " .waiting") or ""), words)


@contextlib.contextmanager
def small_server(p, *words):
    """A page of a server with one slot; the server's output is in a log of its own."""
    with open(os.path.join(OUT, "small-server.log"), "w") as log, start("-np", "1", *words, log=log) as server:
        page = Page(p.b, server)
        page.fresh(max_tokens=8)
        yield page


@contextlib.contextmanager
def requests(p, n):
    """n requests to the page's server, until the end of the block."""
    connections = []
    for i in range(n):
        connection = p.server.connect()
        connection.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": STORY}], "max_tokens": 3000, "ignore_eos": True, "stream": True})
        connections.append(connection)
        p.b.wait(lambda: waiting(p) == i, f"{i} requests that wait")
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def waiting(p):
    """How many requests the engine's pane says are in the queue while all slots are busy; -1: a slot is free."""
    return int(p.b.text("#queue").replace("–", "-1")) if re.match(r"(\d+) of \1 ", p.b.text("#link-text")) else -1


@test
def the_server_goes_and_comes_back(p):
    p.fresh(max_tokens=3000)
    p.endless()
    p.ask(STORY)
    p.growing()
    p.server.stop(9)  # in the middle of an answer
    p.b.wait(lambda: p.b.js("return document.getElementById('link').dataset.state") == "lost", "the page's word")
    waits(p, "cannot be reached. Trying again in ")
    assert p.answer() and p.streaming()
    p.shoot("server-away")
    p.b.click("#stop")
    p.b.wait(lambda: not p.streaming(), "the end of the answer")
    assert "stopped" in p.b.text(ANSWER + " .figures")
    # On a phone the longest state stands beside the model's name: the header keeps its two rows, and nothing in it overlaps.
    boxes = """const shown = [...document.querySelectorAll('.bar > *')].filter((e) => e.checkVisibility()).map((e) => e.getBoundingClientRect());
        const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        return [document.querySelector('.bar').clientHeight, shown.some((a, i) => shown.some((b, k) => i < k && overlap(a, b))), document.querySelector('#link-text').getClientRects().length]"""
    for width in (320, 390, 700):
        p.b.screen(width, 800)
        height, overlaps, lines = p.b.js(boxes)
        assert height < 84 and not overlaps and lines == 1, (width, height, overlaps, lines)
    p.b.screen(1280, 800)
    # What is asked while it is away is answered when it is back.
    p.b.js("const e = document.getElementById('set-max_tokens'); e.value = '20'; e.dispatchEvent(new Event('input'))")
    p.ask("Are you there?")
    waits(p, "cannot be reached. Trying again in ")
    p.server.start()
    p.live()
    assert p.complete() and p.b.count(".message") == 4
    p.b.log()  # the failed requests


@test
def a_server_that_was_restarted_says_so(p):
    p.fresh(max_tokens=3000)
    p.endless()
    p.ask(STORY)
    p.growing()
    p.server.stop(9)
    p.server.start()
    p.b.wait(lambda: not p.streaming(), "the end of the answer")
    assert "restarted" in p.b.text(ANSWER + " .error") and p.answer(), p.b.text(ANSWER + " .error")
    # It goes on where it ended.
    text = kept_text(p)["content"]
    p.b.js("const e = document.getElementById('set-max_tokens'); e.value = '30'; e.dispatchEvent(new Event('input'))")
    p.b.click(ANSWER + " > .actions > button:nth-child(2)")  # Continue
    p.b.wait(lambda: not p.streaming() and "cut off" in p.b.text(ANSWER + " .figures"), "the end")
    p.complete()
    more = kept_text(p)["content"]
    assert text and len(more) > len(text) and more.startswith(text) and p.b.count(".message") == 2, (text, more)
    # And when the page is loaded while the server is away.
    p.b.js("localStorage.setItem('weir.settings', '{\"max_tokens\": 3000}')")
    p.reload()
    p.live()
    p.endless()
    p.b.click(ANSWER + " .actions button")
    p.growing()
    p.b.open("about:blank")
    p.server.stop(9)
    p.server.start()
    p.b.open(p.server.url + "/")
    p.b.wait(lambda: p.b.count("#chat-list .chat-open"), "the list of chats")
    p.b.click("#chat-list .chat-open")
    p.b.wait(lambda: "restarted" in (p.b.text(ANSWER + " .error") or ""), "the server's word")
    assert p.answer() and not p.streaming()
    p.b.log()  # the failed requests


@test
def a_full_queue_counts_down(p):
    with small_server(p, "-c", "4096", "--queue", "1") as page, requests(page, 2) as others:
        page.ask("Hello!")
        first = waits(p, "queue is full. Trying again in ")
        p.shoot("queue-full")
        p.b.wait(lambda: (p.b.text(ANSWER + " .waiting") or first) != first, "the next second")
        assert page.streaming() and p.b.count(".error:not([hidden])") == 0
        copies = "return [...document.querySelectorAll(arguments[0] + ' > .actions button')].filter((b) => b.textContent === 'Copy').map((b) => b.hidden)"
        assert p.b.js(copies, ANSWER) == [True], "an empty answer cannot be copied"
        for connection in others:
            connection.close()
        assert page.complete() and p.b.count(".message") == 2 and p.b.js(copies, ANSWER) == [False]
        # Stop ends the waiting.
    with small_server(p, "-c", "4096", "--queue", "1") as page, requests(page, 2):
        page.ask("Hello!")
        waits(p, "queue is full")
        p.b.click("#stop")
        p.b.wait(lambda: not page.streaming(), "the end")
        assert "stopped" in p.b.text(ANSWER + " .figures")
    p.b.log()  # the refused requests


@test
def a_queued_request_says_how_many_are_ahead(p):
    with small_server(p, "-c", "4096") as page, requests(page, 3) as others:
        page.ask("Hello!")
        waits(p, "In the queue, 2 ahead of you")
        p.shoot("queued")
        others[0].close()
        waits(p, "In the queue, 1 ahead of you")
        others[1].close()
        waits(p, "Next in the queue")
        others[2].close()
        assert page.complete()


def long_chat(p, turns):
    kept = {"id": "abc", "title": "t", "at": 1, "messages": [m for i in range(turns) for m in (
        {"role": "user", "content": f"Tell me about number {i}. " + "It is a number. " * 8},
        {"role": "assistant", "content": f"The number {i} is one more than {i - 1}. " * 4, "finish": "stop"})]}
    p.b.js("localStorage.setItem('weir.chat.abc', arguments[0]); location.hash = 'chat=abc'", json.dumps(kept))
    p.b.wait(lambda: p.b.count(".message") == 2 * turns, "the chat")


@test
def a_chat_longer_than_the_context(p):
    with small_server(p, "-c", "512") as page:
        buttons = lambda: p.b.js("return [...document.querySelectorAll('.message:last-child .strong')].map((e) => e.textContent)")
        long_chat(page, 12)
        page.ask("And now?")
        p.b.wait(lambda: "longer than the model's context" in (p.b.text(ANSWER + " .error") or ""), "the page's word")
        assert re.search(r"This chat .* the prompt has \d\d+ tokens, and there is room for 512 ", p.b.text(ANSWER + " .error")), p.b.text(ANSWER + " .error")
        assert buttons() == ["Drop the oldest turns", "Start anew with a summary"]
        p.shoot("context-full")
        p.b.click(".message:last-child .strong")
        p.b.wait(lambda: page.answer() and not page.streaming(), "the answer")
        assert page.complete() and p.b.count(".message") == 26
        dropped = p.b.count(".message.dropped")
        assert 2 <= dropped < 24 and dropped % 2 == 0, dropped
        p.reload()
        assert p.b.count(".message.dropped") == dropped
        page.live()
        # Another chat instead, which begins with a summary.
        p.b.js("localStorage.clear(); localStorage.setItem('weir.settings', '{\"max_tokens\": 8}')")
        p.b.open("about:blank")
        p.b.open(page.server.url + "/")
        page.live()
        long_chat(page, 12)
        page.ask("And now?")
        p.b.wait(lambda: len(buttons()) == 2, "the offers")
        p.b.js("document.querySelectorAll('.message:last-child .strong')[1].click()")
        p.b.wait(lambda: p.b.count(".message") == 2, "the other chat", 120)
        assert page.complete()
        asked = p.b.text(".message.user .plain-text")
        assert asked.startswith("Summary of our chat so far:") and asked.endswith("And now?"), asked
        assert p.b.count("#chat-list li") == 2
        # A message that does not fit by itself.
        p.b.click("#new-chat")
        p.b.wait(lambda: p.b.count(".message") == 0, "a new chat")
        p.b.js("document.getElementById('text').value = 'word '.repeat(2000)")
        p.b.type("#text", ENTER)
        p.b.wait(lambda: buttons() == ["Shorten the message"], "the offer")
        error = p.b.text(ANSWER + " .error")
        assert re.search(r"This message .* the prompt has 2\d{3} tokens, and there is room for 512 ", error) and "--ctx" in error, error
        p.shoot("message-too-long")
        p.b.click(".message:last-child .strong")
        assert p.b.js("return document.activeElement.closest('.editor') && document.activeElement.value.length") == 10000
        p.b.js("document.activeElement.value = 'Hello!'")
        p.b.type(".editor textarea", ENTER)
        assert page.complete() and p.b.count(".message") == 2
        # One among others.
        p.b.js("document.getElementById('text').value = 'word '.repeat(2000)")
        p.b.type("#text", ENTER)
        p.b.wait(lambda: len(buttons()) == 2, "the offers")
        p.b.click(".message:last-child .strong")
        p.b.wait(lambda: "Not even the last message" in p.b.text(ANSWER + " .error") and buttons() == ["Shorten the message"], "why not, and what helps")
    p.b.log()  # the refused requests


@test
def a_key_is_asked_for(p):
    with open(os.path.join(OUT, "key-server.log"), "w") as log, start("--api-key", "s3cret", log=log) as server:
        p.b.screen(1280, 800)
        p.b.open(server.url + "/")
        p.b.wait(lambda: p.b.js("return document.getElementById('key').open"), "the question")
        assert not p.b.js("return document.getElementById('key-wrong').checkVisibility()")
        p.b.type("#key-value", "wrong" + ENTER)
        p.b.wait(lambda: p.b.js("return document.getElementById('key').open && document.getElementById('key-value').value === ''"), "the question again")
        assert p.b.js("return document.getElementById('key-wrong').checkVisibility()")
        p.b.type("#key-value", "s3cret" + ENTER)
        other = Page(p.b, server)
        other.live()
        p.b.js("localStorage.setItem('weir.settings', '{\"max_tokens\": 8}')")
        p.reload()
        other.live()
        other.ask("Hello!")
        assert other.complete()
        # The key is an ordinary one: slots, but no ticks and sums, and why.
        p.b.wait(lambda: "operator's key" in (p.b.text("#tick") or ""), "why there are no ticks")
        assert re.fullmatch(r"\d+ of \d+ slots", p.b.text("#link-text")) and p.b.text("#rate-decode") == "–" and " of " not in p.b.text("#kv-note")
        # A key that is no longer good: the question is asked again with the next one.
        p.b.js("sessionStorage.setItem('weir.key', 'old')")
        other.ask("And now?")
        p.b.wait(lambda: "does not accept" in (p.b.text(ANSWER + " .error") or ""), "the refusal")
        p.b.js("document.getElementById('key').close()")
        p.b.click(ANSWER + " .strong")
        p.b.type("#key-value", "s3cret" + ENTER)
        p.b.wait(lambda: p.answer(), "the answer")
        assert other.complete() and p.b.count(".message") == 4


@test
def a_model_that_is_not_loaded(p):
    models = os.path.join(OUT, "models.conf")
    with open(models, "w") as f:
        for i, name in enumerate(("one", "two")):
            f.write(f"[{name}]\nmodel = fake:seed={i},load_us=3000000\nctx = 512\nslots = 2\n")
        f.write(f"[ranker]\nmodel = {tiny('rank')}\n")
    with open(os.path.join(OUT, "models.log"), "w") as log, Server(os.environ["WEIR_BIN"], "--models", models, model=None, log=log) as server:
        page = Page(p.b, server)
        page.fresh(max_tokens=8)
        p.b.wait(lambda: p.b.text("#models option:last-child") == "two (not loaded)", "the states of the models")
        p.b.js("const models = document.getElementById('models'); models.value = 'two'; models.dispatchEvent(new Event('change'))")
        p.b.type("#text", "hello" + ENTER)
        waits(page, "Loading two, ")
        page.complete()
        p.b.wait(lambda: p.b.text("#models option:last-child") == "two", "that it is loaded")
        p.b.wait(lambda: p.b.text("#link-text").endswith("of 2 slots"), "the slots of the model that was chosen")
        assert p.b.text("#models option:first-child") == "one (not loaded)"
        p.b.wait(lambda: p.b.count("#models option") == 2, "that a model which ranks is no choice")
        assert not page.complaints(), page.complaints()


if __name__ == "__main__":
    main("trouble")
