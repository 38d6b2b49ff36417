"""--cors in headless Chromium: pages of other origins ask `weir serve` as the official JavaScript client does, whole and streamed, and pages that
may not ask get nothing, whatever means of the browser they use. Controls show that each of these means reads, or does something, where it may."""
# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import http.server
import os
import re
import sys
import tempfile
import threading

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, os.pardir, "support"))
from checks import check, results  # noqa: E402
from serve import Server  # noqa: E402
from webdriver import Browser, find_browser  # noqa: E402

# What the client sends with each request; a browser asks beforehand whether it may.
HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "X-Stainless-Arch": "unknown", "X-Stainless-Lang": "js",
           "X-Stainless-OS": "Unknown", "X-Stainless-Package-Version": "7.57.0", "X-Stainless-Retry-Count": "0", "X-Stainless-Runtime": "browser:chrome",
           "X-Stainless-Runtime-Version": "1.2.3", "X-Stainless-Timeout": "600", "X-Stainless-Helper-Method": "stream", "OpenAI-Organization": "o",
           "OpenAI-Project": "p", "Idempotency-Key": "stainless-node-retry-1"}
ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0}
FETCH = """
const [url, headers, body] = args;
let answer;
try {
    answer = await fetch(url, body === null ? {headers} : {method: 'POST', headers, body: JSON.stringify(body)});
} catch (e) {
    return {refused: String(e)};
}
const reader = answer.body.getReader(), decoder = new TextDecoder();
let text = '', pieces = 0;
for (let piece; !(piece = await reader.read()).done; pieces++) text += decoder.decode(piece.value, {stream: true});
return {status: answer.status, id: answer.headers.get('x-request-id'), stream: answer.headers.get('x-stream-id'), text, pieces};
"""


class Page(http.server.BaseHTTPRequestHandler):
    """A page, an image, a script, a style, events or a web socket, as the browser asks for it: all origins may read it. Notes what is asked."""

    asked = set()

    def answer(self):
        Page.asked.add(("HEAD" if self.command == "GET" else self.command, self.path))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        socket_key = self.headers.get("Sec-WebSocket-Key")
        wanted = "events" if self.headers.get("Accept") == "text/event-stream" else self.headers.get("Sec-Fetch-Dest")
        kind, body = {"image": ("image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'), "script": ("text/javascript", b"1"),
                      "style": ("text/css", b"a {}"), "events": ("text/event-stream", b"data: x\n\n")}.get(wanted, ("text/html", b"<!doctype html><title>elsewhere</title>elsewhere"))
        self.send_response(101 if socket_key else 200)
        if socket_key:
            accepted = hashlib.sha1((socket_key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": base64.b64encode(accepted).decode()}
        else:
            fields = {"Content-Type": kind, "Content-Length": len(body), "Access-Control-Allow-Origin": self.headers.get("Origin", "*"), "Access-Control-Allow-Credentials": "true",
                      "Access-Control-Allow-Headers": "content-type, x-a", "Access-Control-Allow-Methods": "DELETE, GET, HEAD, POST"}
        for name, value in fields.items():
            self.send_header(name, str(value))
        self.end_headers()
        if not socket_key and self.command != "HEAD":
            self.wfile.write(body)

    do_DELETE = do_GET = do_HEAD = do_OPTIONS = do_POST = answer

    def log_message(self, *_):
        pass


def origin():
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{pages.server_port}"


def tries(browser, server):
    """What a page of the present origin gets."""
    headers = dict(HEADERS, Authorization="Bearer k")
    whole = browser.js_async(FETCH, server.url + "/v1/chat/completions", headers, ASK)
    streamed = browser.js_async(FETCH, server.url + "/v1/chat/completions", headers, dict(ASK, stream=True, resume=True))
    keyed = browser.js_async(FETCH, server.url + "/v1/models", {"X-Api-Key": "k"}, None)
    return whole, streamed, keyed


# Each way of a page to reach a server: what it read, or null. A way that fails in itself, and not because the browser refuses, reads an error.
WAYS = """
const [url, way] = args, asks = JSON.stringify({model: 'one', messages: [{role: 'user', content: 'hello'}], max_tokens: 4}), chat = url + '/v1/chat/completions';
const read = async (path, options) => { const a = await fetch(path, options); return a.type === 'opaque' ? null : await a.text(); };
const waits = (set) => new Promise((done) => { set(done); setTimeout(() => done(null), 30000); });
const element = (kind, set) => waits((done) => {
    const e = document.createElement(kind);
    e.onload = () => { let text = 'loaded'; if (kind === 'iframe') { try { text = e.contentDocument.body.innerText || null; } catch { text = null; } } done(text); };
    e.onerror = () => done(null);
    set(e);
    document.body.append(e);
});
const form = (path, type, name, value) => waits((done) => {
    const frame = document.createElement('iframe'), f = document.createElement('form'), input = document.createElement('input');
    frame.name = 'to' + Math.random();
    document.body.append(frame);
    Object.assign(f, {action: path, method: 'post', enctype: type, target: frame.name});
    Object.assign(input, {name, value});
    f.append(input);
    document.body.append(f);
    frame.onload = () => { try { done(frame.contentDocument.body.innerText || null); } catch { done(null); } };
    f.submit();
});
const ways = {
    'a request in JSON': () => read(chat, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: asks}),
    'one as plain text, which no browser asks about': () => read(chat, {method: 'POST', headers: {'Content-Type': 'text/plain'}, body: asks}),
    'one without a type': () => read(chat, {method: 'POST', body: new Blob([asks])}),
    'one whose answer it does not want to read': () => read(chat, {method: 'POST', mode: 'no-cors', body: asks}),
    'one with cookies': () => read(chat, {method: 'POST', credentials: 'include', body: asks}),
    'one of another dialect': () => read(url + '/api/chat', {method: 'POST', mode: 'no-cors', body: asks}),
    'a stream of its own': () => read(chat, {method: 'POST', body: asks.replace('{', '{"stream": true, ')}),
    'GET /v1/models': () => read(url + '/v1/models'),
    'GET /slots': () => read(url + '/slots'),
    'GET /metrics': () => read(url + '/metrics'),
    'GET /props': () => read(url + '/props', {mode: 'no-cors'}),
    'HEAD /lora-adapters': () => read(url + '/lora-adapters', {method: 'HEAD', headers: {'X-A': 'b'}}),
    'DELETE of an answer': () => read(url + '/v1/responses/resp_1', {method: 'DELETE'}),
    'a model unloaded': () => read(url + '/v1/models/unload', {method: 'POST', mode: 'no-cors', body: '{"model": "one"}'}),
    'a model unloaded by a beacon': async () => { navigator.sendBeacon(url + '/v1/models/unload', '{"model": "one"}'); return null; },
    'scales of adapters': () => read(url + '/lora-adapters', {method: 'POST', body: '[]'}),
    '/events': () => waits((done) => { const e = new EventSource(url + '/events'); e.onopen = () => { e.close(); done('open'); }; e.onerror = () => { e.close(); done(null); }; }),
    'a form of plain text': () => form(chat, 'text/plain', asks.replace(/}$/, ', "x": "'), '"}'),
    'a form with parts': () => form(chat, 'multipart/form-data', 'messages', 'hello'),
    'a form': () => form(url + '/v1/models/unload', 'application/x-www-form-urlencoded', 'model', 'one'),
    'an image': () => element('img', (e) => e.src = url + '/v1/models'),
    'a script': () => element('script', (e) => e.src = url + '/lora-adapters'),
    'a style': () => element('link', (e) => { e.rel = 'stylesheet'; e.href = url + '/v1/models'; }),
    'a frame': () => element('iframe', (e) => e.src = url + '/'),
    'a frame of /slots': () => element('iframe', (e) => e.src = url + '/slots'),
    'a web socket': () => waits((done) => { const w = new WebSocket(url.replace('http', 'ws') + '/events'); w.onopen = () => done('open'); w.onerror = () => done(null); }),
};
if (way === null) return Object.keys(ways);
try { return await ways[way](); } catch (e) { return e instanceof TypeError && e.message === 'Failed to fetch' ? null : 'failed: ' + e; }
"""
# BEACON never reads anything, and BLIND has the ways that read nothing from a null origin. ASKS has those that make a server generate where they may.
BEACON = "a model unloaded by a beacon"
BLIND = {"one whose answer it does not want to read", "one of another dialect", "GET /props", "a model unloaded", "a form of plain text", "a form with parts", "a form", "a frame",
         "a frame of /slots", BEACON}
ASKS = {"a request in JSON", "one as plain text, which no browser asks about", "one without a type", "one whose answer it does not want to read", "one with cookies",
        "one of another dialect", "a stream of its own", "a form of plain text"}
SANDBOX = """
const frame = document.createElement('iframe');
frame.sandbox = 'allow-scripts allow-forms';
frame.srcdoc = `<body><script>onmessage = async (m) => { const args = m.data; parent.postMessage(await (async () => {${args[0]}})(), '*'); };<\\/script></body>`.replace('<\\\\/', '</');
await new Promise((done) => { frame.onload = done; document.body.append(frame); });
const said = new Promise((done) => onmessage = (m) => done(m.data));
frame.contentWindow.postMessage(args.slice(1), '*');
return await said;
"""


def serve(*words):
    """A server of a model that can be unloaded."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as models:
        models.write("[one]\nmodel = fake:\n")
        models.flush()
        return Server(os.environ["WEIR_BIN"], "--models", models.name, *words, model=None)


def work(server):
    """What changes if a request of a page is honoured: tokens, and models that are loaded."""
    metrics = server.get("/metrics").body.decode()
    return re.findall(r"^weir_(?:prompt|generated|generation|decoded|predicted)\w*tokens\w*_total.*$", metrics, re.M), server.get("/v1/models").json["data"][0]["state"]


def load(server):
    server.post("/v1/chat/completions", dict(ASK, model="one"))
    return work(server)


def does(server, act):
    before = load(server)
    act()
    server.wait_for(lambda _: work(server) != before)
    return work(server) != before


def is_there(server, method, path):
    reply = server.ask(method, path)
    return reply.status != 405 and not (reply.status == 404 and (method == "HEAD" or b"there is nothing at" in reply.body))


def prove(browser, page):
    """Every way works where it may, and asks for what a server has."""
    browser.open(page)
    ways = set(browser.js_async(WAYS, page, None))
    reads = {way: browser.js_async(WAYS, page, way) for way in ways}
    check("each way reads where it may", {way for way in ways if reads[way] is not None} == ways - {BEACON} and not any("failed: " in str(read) for read in reads.values()), reads)
    reads = {way: browser.js_async(SANDBOX, WAYS, page, way) for way in ways}
    check("and from a null origin", {way for way in ways if reads[way] is not None} == ways - BLIND and not any("failed: " in str(read) for read in reads.values()), reads)
    with serve("--cors", "*") as server:
        for way in sorted(ASKS):
            check(f"{way}: is honoured where it may", does(server, lambda way=way: browser.js_async(WAYS, server.url, way)))
            check(f"{way}: also from a null origin", does(server, lambda way=way: browser.js_async(SANDBOX, WAYS, server.url, way)))
    with serve() as server:
        asked = {(method, path) for method, path in Page.asked if method != "OPTIONS" and path != "/favicon.ico"}
        missing = {(method, path) for method, path in asked if not is_there(server, method, path)}
        check("and asks for what the server has", len(asked) >= 10 and not missing, asked, missing)
        browser.open(server.url + "/")
        for way in ("a model unloaded", BEACON):
            check(f"{way}: is honoured from the server's own page", does(server, lambda way=way: browser.js_async(WAYS, server.url, way)))


def attack(browser, name, words, page):
    """A page that may not ask tries all ways, as itself and as an origin that is null."""
    with serve(*words) as server:
        before = load(server)
        check_work = bool(before[0]) and before[1] == "loaded"
        browser.open(page)
        for way in browser.js_async(WAYS, server.url, None):
            got = browser.js_async(WAYS, server.url, way)
            check(f"{name}, {way}: the page reads nothing, and nothing is done", got is None and check_work and work(server) == before, got, before, work(server))
            got = browser.js_async(SANDBOX, WAYS, server.url, way)
            check(f"{name}, {way}: neither from a null origin", got is None and work(server) == before, got, before, work(server))


def main():
    if not find_browser():
        print("no browser: chromium and chromedriver are missing (scripts/deps.sh check installs them)")
        return 1
    may, may_not = origin(), origin()
    with tempfile.TemporaryFile("w") as log, Browser(log) as browser:
        for words in (["--cors", may], ["--cors", "*"]):
            with Server(os.environ["WEIR_BIN"], *words, "--api-key", "k") as server:
                browser.open(may)
                whole, streamed, keyed = tries(browser, server)
                check(f"{words}: a whole answer, and its id", whole.get("status") == 200 and '"chat.completion"' in whole["text"] and len(whole["id"]) == 32, whole)
                check(f"{words}: a stream", streamed.get("status") == 200 and streamed["text"].endswith("data: [DONE]\n\n") and streamed["stream"].startswith("chatcmpl-"), streamed)
                check(f"{words}: X-Api-Key", keyed.get("status") == 200 and '"list"' in keyed["text"], keyed)
                refusal = browser.js_async(FETCH, server.url + "/v1/chat/completions", dict(HEADERS, Authorization="Bearer other"), ASK)
                check(f"{words}: a page can read why it is refused", refusal.get("status") == 401 and "invalid_api_key" in refusal["text"], refusal)
                browser.open(may_not)
                others = tries(browser, server)
                good = all(o.get("status") == 200 for o in others) if "*" in words else all("refused" in o for o in others)
                check(f"{words}: a page of another origin", good, others)
        with Server(os.environ["WEIR_BIN"]) as server:
            browser.open(may)
            check("without --cors: none", all("refused" in o for o in tries(browser, server)))
        prove(browser, may)
        attack(browser, "without --cors", [], may)
        attack(browser, "a page that --cors does not name", ["--cors", may], may_not)
    print(f"{results['passed']} passed, {results['failed']} failed")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
