"""--cors in headless Chromium: pages of other origins ask `weir serve` as the official JavaScript client does, whole and streamed, and pages that
may not ask get nothing."""
# SPDX-License-Identifier: Apache-2.0
import http.server
import os
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
    """An empty page of another origin."""

    def do_GET(self):
        body = b"<!doctype html><title>elsewhere</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
    print(f"{results['passed']} passed, {results['failed']} failed")
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
