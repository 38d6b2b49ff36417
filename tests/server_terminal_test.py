"""weir serve as the person sees it who starts it on a terminal: the banner, readable lines, JSON where it is asked for."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import PATIENCE  # noqa: E402
from serve import need_server  # noqa: E402
from terminal import Terminal  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)


def serve(*words):
    return Terminal([WEIR, "serve", "-m", "fake:", "--port", "0", *words], columns=200, rows=40, env=environment())


def post(base, path, body, key=None):
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if key:
        request.add_header("Authorization", "Bearer " + key)
    try:
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE).status
    except urllib.error.HTTPError as error:
        return error.code


def end(terminal):
    terminal.process.send_signal(signal.SIGINT)
    code = terminal.finish(PATIENCE)
    terminal.close()
    return code


def test_banner():
    terminal = serve("--alias", "tiny", "-np", "3", "-c", "1024")
    terminal.wait_for(lambda s: "Ctrl-C" in s.text(), PATIENCE)
    text = terminal.screen.text()
    address = re.search(r"http://127\.0\.0\.1:\d+", text)
    check("the banner: address, model, slots, context, keys, how to stop", address and '"tiny" in requests: a model without weights\n' in text and "3 requests at a time" in text and
          "1,024 tokens" in text and "none needed" in text and "Ctrl-C" in text, text)
    check("no JSON", '{"' not in text, text)
    status = post(address.group(), "/v1/completions", {"prompt": "x", "max_tokens": 3, "ignore_eos": True})
    check("a line for a request", status == 200 and terminal.wait_for(lambda s: re.search(
        r"^\d\d:\d\d:\d\d POST /v1/completions 200 in \d+ ms: prompt \d+ \(0 cached\), answer 3 \(length\)$", s.text(), re.M), PATIENCE), terminal.screen.text())
    status = post(address.group(), "/v1/%C2%9B\x7fnothing".replace("\x7f", "%7F"), {})
    check("a line for a refusal", status == 404 and terminal.wait_for(lambda s: " 404 in " in s.text(), PATIENCE), terminal.screen.text())
    check("a path that is no UTF-8 and has control characters", post(address.group(), "/v1/a%C2%9B31mb%9B32mc%FF", {}) == 404)
    check("its line has none of them", terminal.wait_for(lambda s: "POST /v1/a?31mb\ufffd32mc\ufffd 404 in " in s.text(), PATIENCE), terminal.screen.text())
    check("the terminal shows what it is sent and nothing else", terminal.screen.unknown == [], terminal.screen.unknown)
    terminal.process.send_signal(signal.SIGINT)
    code = terminal.finish(PATIENCE)
    check("it says how it ends", "draining" in terminal.screen.text() and "the server has ended" in terminal.screen.text(), terminal.screen.text())
    check("Ctrl-C ends it", code in (0, 130), code)
    terminal.close()
    terminal = serve("--alias", "*")
    terminal.wait_for(lambda s: "Ctrl-C" in s.text(), PATIENCE)
    check("--alias *: any name", "any name in requests: a model" in terminal.screen.text(), terminal.screen.text())
    end(terminal)


def test_keys():
    terminal = serve("--api-key", "secret")
    terminal.wait_for(lambda s: "Ctrl-C" in s.text(), PATIENCE)
    check("with a key the banner says that it is needed, not what it is", "Bearer KEY" in terminal.screen.text() and "secret" not in terminal.screen.text(),
          terminal.screen.text())
    end(terminal)
    terminal = serve("--host", "0.0.0.0")
    terminal.wait_for(lambda s: "Ctrl-C" in s.text(), PATIENCE)
    check("an open port without a key is a warning", "warning: " in terminal.screen.text() and "has no API key" in terminal.screen.text(), terminal.screen.text())
    end(terminal)


def test_json():
    terminal = serve("--log-json")
    seen = terminal.wait_for(lambda s: '"event":"ready"' in s.text(), PATIENCE)
    check("--log-json: JSON on a terminal, and no banner", seen and "Ctrl-C" not in terminal.screen.text(), terminal.screen.text())
    end(terminal)
    terminal = serve("-q")
    check("-q: nothing while it starts", not terminal.wait_for(lambda s: s.text().strip() != "", 1), terminal.screen.text())
    end(terminal)


if __name__ == "__main__":
    run_tests(globals())
