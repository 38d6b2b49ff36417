"""weir ps and weir top beside a weir serve on the fake model: output, JSON, keys, Unix sockets, TLS, servers that go, come back or
are none; and in tmux at several sizes."""
# SPDX-License-Identifier: Apache-2.0
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from serve import Server  # noqa: E402
from tmux import PATIENCE, Tmux, environment, last, missing, scratch  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
SLOW = "fake:tick_us=20000,n_ctx_train=1000000"  # so that a request runs as long as a test looks at it
ENDLESS = {"prompt": "once upon a time", "max_tokens": 15000, "ignore_eos": True}


def weir(*words, **env):
    return subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(**env), timeout=PATIENCE, stdin=subprocess.DEVNULL)


def expect(name, done, code, *parts):
    said = done.stdout + done.stderr
    return check(name, done.returncode == code and all(p in said for p in parts) and "Sanitizer" not in said, f"exit {done.returncode}, expected {code}", said,
                 [p for p in parts if p not in said])


def serve(*words, model=SLOW, **more):
    return Server(WEIR, *words, model=model, env=environment(), **more)


class Load:
    """Streams that run until they are closed; each is seen to have begun."""

    def __init__(self, server, n, **more):
        self.connections = []
        for _ in range(n):
            connection = server.connect(**more)
            connection.request("POST", "/v1/completions", dict(ENDLESS, stream=True))
            self.connections.append(connection)

    def close(self):
        for connection in self.connections:
            connection.close()


class Another:
    """A server that answers everything alike, and is no weir serve."""

    def __init__(self, status, kind, body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


# ---- weir ps ----

def test_ps():
    server = serve("-np", "3", "-c", "20000")
    try:
        done = weir("ps", "--url", server.address)
        expect("ps of a server that has done nothing", done, 0, "0 running, 0 waiting; 3 slots", " of ", "0 requests", server.address)
        check("no table, no styles", "priority" not in done.stdout and "\x1b" not in done.stdout and "\1" not in done.stdout and done.stderr == "", done)
        load = Load(server, 5)
        server.wait_for(lambda m: m["weir_slots_generating"] == 3 and m["weir_queue_depth"] == 2)
        done = weir("ps", "--url", server.address + "/")
        expect("ps of a busy one", done, 0, "3 running (0 reading, 3 writing), 2 waiting; 3 slots", "5 requests")
        check("a line for each slot", sum("generating" in line for line in done.stdout.splitlines()) == 3 and "priority" in done.stdout, done.stdout)
        json_done = weir("ps", "--url", server.address, "--json")
        told = json.loads(json_done.stdout)
        metrics, slots = server.metrics(), server.get("/slots").json
        check("JSON has what /slots and /metrics tell", told["queue"] == metrics["weir_queue_depth"] and told["kv"]["size"] == metrics["weir_kv_cells"] and
              told["total"]["submitted"] == 5 and 0 < told["total"]["generated_tokens"] <= metrics["weir_generated_tokens_total"] and
              told["total"]["finished"]["cancelled"] == 0 and 0 < told["total"]["busy_seconds"] <= metrics["weir_busy_seconds_total"] + 1e-3 and  # six digits are told
              [(s["id"], s["state"], s["prompt"]) for s in told["slots"]] == [(s["id"], s["state"], s["prompt"]) for s in slots] and
              all(0 < s["generated"] <= t["generated"] for s, t in zip(told["slots"], slots)), told, slots)
        check("what one look cannot tell is left out", not {"rates", "ticks", "ttft_ms", "itl_ms", "tpot_ms"} & set(told), told)
        load.close()
        done = weir("ps", WEIR_URL=server.address)
        expect("the address from the environment", done, 0, "3 slots")
        config = os.path.join(scratch.name, "config")
        with open(config, "w") as file:
            file.write(f"url = {server.address}\n")
        expect("and from the config file", weir("ps", WEIR_CONFIG=config), 0, "3 slots")
        for proxy in ("http_proxy", "ALL_PROXY"):
            expect(proxy + " is not used", weir("ps", "--url", server.address, **{proxy: "http://127.0.0.1:1"}), 0, "3 slots")
    finally:
        server.stop()
    expect("ps of a server that has gone", weir("ps", "--url", server.address), 1, server.address, "cannot connect")
    expect("ps and no server at all", weir("ps", "--url", "http://127.0.0.1:1"), 1, "cannot connect")


def test_keys_and_sockets():
    socket = os.path.join(scratch.name, "weir.sock")
    server = serve("--api-key", "secret", "--unix", socket)
    try:
        for command in ("ps", "top"):
            expect(command + " without the key", weir(command, "--url", server.address), 4, "requires a key", "WEIR_API_KEY")
            expect(command + " with a wrong one", weir(command, "--url", server.address, "--api-key", "x"), 4, "requires a key")
        expect("with the key", weir("ps", "--url", server.address, "--api-key", "secret"), 0, "0 running")
        expect("with the key of the environment", weir("ps", "--url", server.address, WEIR_API_KEY="secret"), 0, "0 running")
        expect("over a Unix socket", weir("ps", "--url", "unix:" + socket, WEIR_API_KEY="secret"), 0, "0 running", "unix:" + socket)
        expect("a Unix socket that is none", weir("ps", "--url", "unix:" + socket + "x"), 1, "cannot connect")
    finally:
        server.stop()


def test_tls():
    key, cert = os.path.join(scratch.name, "key.pem"), os.path.join(scratch.name, "cert.pem")
    if shutil.which("openssl") is None:
        print("note: no openssl")
        return
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days",
                    "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = serve("--tls-cert", cert, "--tls-key", key)
    try:
        expect("a certificate that nobody knows", weir("ps", "--url", server.address), 4, "certificate")
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
            expect("trusted by " + name, weir("ps", "--url", server.address, **{name: cert}), 0, "0 running")
        expect("weir bench http trusts alike", weir("bench", "http", server.address, "-N", "2", "--concurrency", "1", "--gen", "4", "--json", SSL_CERT_FILE=cert), 0, '"answered":2')
        expect("or does not", weir("bench", "http", server.address, "-N", "2", "--concurrency", "1", "--gen", "4"), 4, "certificate")
    finally:
        server.stop()


def test_strangers():
    for name, server, code, part in (("a page", Another(200, "text/html", b"<html>"), 4, "not the event stream"), ("404", Another(404, "text/plain", b"none"), 4, "is that a weir serve?"),
                                     ("500", Another(500, "text/plain", b"\x1b[2Joops"), 1, "500"),
                                     ("503", Another(503, "application/json", b'{"error":{"message":"the model is being loaded"}}'), 1, "the model is being loaded"),
                                     ("other events", Another(200, "text/event-stream", b"data: {}\n\n"), 4, "not the event stream"),
                                     ("no JSON", Another(200, "text/event-stream", b"data: [[[\n\n"), 4, "not the event stream"),
                                     ("an end at once", Another(200, "text/event-stream", b""), 1, "the connection has ended")):
        try:
            done = weir("ps", "--url", server.url)
            expect("ps of a server that is none: " + name, done, code, part)
            check("  which does not play with the terminal", "\x1b" not in done.stderr, done.stderr)
        finally:
            server.close()
    hostile = {"ticks": [{"ms": -1}, 7, None, {"ms": 1e300}], "slots": [{"id": 1 << 62, "state": "\x1b[2Jx\1" * 50, "prompt": -5, "done": 9}, 3],
               "model": "\x1b]0;title\7\1" * 100, "kv": [], "cache": {"bytes": -1}, "rates": {"decode": "x"}, "queue": 1e99}
    server = Another(200, "text/event-stream", f"data: {json.dumps(hostile)}\n\n".encode())
    try:
        for words in (("ps",), ("ps", "--json")):
            done = weir(*words, "--url", server.url)
            check(f"{' '.join(words)} of a hostile one", done.returncode == 0 and not {"\x1b", "\1", "\7"} & set(done.stdout), done)
    finally:
        server.close()
    for words, code, part in ((("ps", "--url", "ftp://x"), 2, "unix:FILE"), (("top", "--url", "localhost:8080"), 2, "http://HOST"), (("ps", "x"), 2, "takes no x"),
                              (("top", "x"), 2, "takes no x"), (("ps", "--api-key", "a\nb"), 2, "line break"), (("top", "--ulr", "x"), 2, "--url")):
        expect("a mistake: " + " ".join(words)[:40], weir(*words), code, part)


# ---- weir top without a screen ----

def lines_of(process, n):
    return [process.stdout.readline() for _ in range(n)]


def test_top_in_a_pipe():
    server = serve("-np", "2", "-c", "20000")
    load = Load(server, 2)
    server.wait_for(lambda m: m["weir_slots_generating"] == 2)
    top = subprocess.Popen([WEIR, "top", "--url", server.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        events = [json.loads(line) for line in lines_of(top, 4)]
        check("each event is a line of JSON", all(len(e["slots"]) == 2 for e in events) and sum(len(e["ticks"]) for e in events) > 0, events)
        check("with rates", events[3]["rates"]["decode"] > 0, events)
        port = server.address.rsplit(":", 1)[1]
        load.close()
        server.stop(signal.SIGKILL)
        said = top.stderr.readline()
        check("a server that goes is told", server.address in said and "trying again" in said, said)
        server = serve("-np", "2", "--host", "127.0.0.1", "--port", port)
        said = top.stderr.readline()
        check("it is told when it is back", "it is back" in said, said)
        events = [json.loads(line) for line in lines_of(top, 40)]
        check("and events come again", any(e["slots"][0]["state"] == "idle" for e in events), events[-1])
        top.send_signal(signal.SIGINT)
        check("Ctrl-C ends it", top.wait(PATIENCE) == 130)
    finally:
        top.kill()
        server.stop()


def test_top_json():
    server = serve("-np", "2", "-c", "20000")
    load = Load(server, 1)
    top = subprocess.Popen([WEIR, "top", "--json", "--url", server.address], stdout=subprocess.PIPE, text=True, env=environment())
    try:
        check("the same with --json", all("slots" in json.loads(line) for line in lines_of(top, 3)))
        top.stdout.close()
        check("it ends when its reader leaves", top.wait(PATIENCE) == 0, top.returncode)
    finally:
        top.kill()
        load.close()
        server.stop()


def test_dumb():
    if missing():
        return
    server = serve("-np", "2", "-c", "20000")
    terminal = Tmux(80, 20, f"TERM=dumb {WEIR} top --url {server.address}")
    try:
        terminal.wait("a dumb terminal: lines", lambda s: '"slots":' in s)
        terminal.keys("C-c")
        terminal.wait("a dumb terminal: Ctrl-C ends it", lambda s: "ended with 130" in s and "as before" in s)
    finally:
        terminal.close()
        server.stop()


# ---- weir top on a screen ----

def has_screen():
    """Whether this weir was built with ncurses: else lines are printed in a terminal too."""
    terminal = Tmux(80, 24, f"{WEIR} top --url http://127.0.0.1:1")
    try:
        terminal.wait("top in a terminal, before there is a server", lambda s: "trying again" in s)
        there = "q quit" in terminal.screen()
        terminal.keys("C-c")
        terminal.wait("Ctrl-C ends it before there is a server", lambda s: "ended with 130" in s and "as before" in s)
        return there
    finally:
        terminal.close()


def send(server, what):
    """A signal to the weir top that watches this server."""
    found = subprocess.run(["pgrep", "-f", f"top --url {server.address}$"], capture_output=True, text=True).stdout.split()
    for pid in found:
        if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(WEIR):
            os.kill(int(pid), what)


def slot_is_shown(screen, slot):
    return any(line.startswith(f"{slot:4}  ") for line in screen.splitlines())


def rows_of(screen, word):
    return [line for line in screen.splitlines() if word in line]


def in_tmux(columns, rows):
    label = f"top at {columns}x{rows}: "
    server = serve("-np", "40", "-c", "20000", "--kv", "60000")
    load = Load(server, 3)
    terminal = Tmux(columns, rows, f"echo left as it was; {WEIR} top --url {server.address}")
    try:
        terminal.wait(label + "figures, slots, keys", lambda s: "weir top" in s and "3 running" in s and "tok/s written" in s and "first token" in s and
                      len(rows_of(s, "generating")) == 3 and "q quit" in last(s))
        terminal.wait(label + "latencies while answers run", lambda s: "3 running" in s and re.search(r"latency +first token [\d.]+ / [\d.]+ ms", s) and
                      re.search(r"per token [\d.]+ / [\d.]+ ms, between pieces [\d.]+ / [\d.]+ ms", s))
        terminal.wait(label + "rates, ticks and totals", lambda s: "ms, at most" in s and re.search(r"^ *so far +[\d,.]+", s, re.M) and " 0.0 tok/s written" not in s)
        check(label + "nothing is wider than the window", all(len(line) <= columns for line in terminal.screen().splitlines()), terminal.screen())
        if rows < 40:
            check(label + "not all slots have room", "slots 1 to " in last(terminal.screen()) and not slot_is_shown(terminal.screen(), 39), terminal.screen())
        terminal.keys("End")
        terminal.wait(label + "End shows the last slot", lambda s: slot_is_shown(s, 39))
        terminal.keys("Home")
        terminal.wait(label + "Home the first one", lambda s: slot_is_shown(s, 0))
        terminal.keys("Down")
        if rows < 40:
            terminal.wait(label + "Down goes on by one", lambda s: not slot_is_shown(s, 0) and slot_is_shown(s, 1))
        terminal.keys("i")
        terminal.wait(label + "i hides those that are idle", lambda s: not rows_of(s, "idle ") and len(rows_of(s, "generating")) == 3)
        terminal.keys("i")
        terminal.resize(60, 12)
        terminal.wait(label + "a smaller window", lambda s: "q quit" in last(s) and "3 running" in s and slot_is_shown(s, 0) and len(s.splitlines()) <= 12)
        terminal.resize(18, 4)
        terminal.wait(label + "a tiny one", lambda s: s.startswith("weir top") and len(s.splitlines()) <= 4)
        terminal.resize(columns, rows)
        terminal.wait(label + "and back", lambda s: "q quit" in last(s) and "first token" in s and len(rows_of(s, "generating")) == 3)
        load.close()
        terminal.wait(label + "requests that end", lambda s: "0 running" in s and "3 cancelled" in s)
        terminal.keys("C-z")
        terminal.wait(label + "Ctrl-Z leaves the screen", lambda s: "left as it was" in s and "q quit" not in s)
        send(server, signal.SIGCONT)
        terminal.wait(label + "and enters it again when it goes on", lambda s: "q quit" in last(s))
        terminal.keys("q")
        terminal.wait(label + "q ends it, and the screen is as before", lambda s: "left as it was" in s and "ended with 0" in s and "as before" in s and "q quit" not in s)
    finally:
        terminal.close()
        load.close()
        server.stop()


def test_tmux():
    if missing() or not has_screen():
        return
    for size in ((80, 24), (200, 50)):
        in_tmux(*size)


def test_server_that_goes():
    if missing():
        return
    server = serve("-np", "2", "-c", "20000")
    port = server.address.rsplit(":", 1)[1]
    terminal = Tmux(80, 24, f"NO_COLOR=1 {WEIR} top --url {server.address}")
    try:
        if not terminal.wait("without colours: it runs", lambda s: "0 running" in s):
            return
        if "q quit" not in terminal.screen():
            return
        check("without colours: none", "\x1b[3" not in terminal.screen(styled=True) and "\x1b[1m" not in terminal.screen(styled=True), terminal.screen(styled=True))
        server.stop(signal.SIGKILL)
        terminal.wait("a server that goes is told on the screen", lambda s: "trying again" in s and "0 running" in s)
        server = serve("-np", "5", "--host", "127.0.0.1", "--port", port)
        terminal.wait("and found again", lambda s: "trying again" not in s and "5 slots" in s)
        server.process.send_signal(signal.SIGSTOP)
        terminal.wait("one that stands still is told too", lambda s: "silent for" in s)
        server.process.send_signal(signal.SIGCONT)
        terminal.wait("until it goes on", lambda s: "silent for" not in s and "5 slots" in s)
        terminal.keys("C-c")
        terminal.wait("Ctrl-C restores the terminal", lambda s: "ended with 130" in s and "as before" in s and "q quit" not in s)
    finally:
        terminal.close()
        server.process.send_signal(signal.SIGCONT)
        server.stop()


def test_colours_and_deaths():
    """Signals that end the program while it has the screen."""
    if missing():
        return
    server = serve("-np", "2", "-c", "20000")
    load = Load(server, 1)
    try:
        for name, code in (("TERM", 143), ("HUP", 129), ("SEGV", 139)):
            terminal = Tmux(80, 24, f"ulimit -c 0; {WEIR} top --url {server.address}")
            try:
                terminal.wait(f"SIG{name}: it runs", lambda s: "1 running" in s)
                if "q quit" not in terminal.screen():
                    return
                if name == "TERM":
                    terminal.wait("colours, where they are wanted", lambda s: "\x1b[36m" in terminal.screen(styled=True))
                send(server, getattr(signal, "SIG" + name))
                terminal.wait(f"SIG{name}: the terminal is as before", lambda s: f"ended with {code}" in s and "as before" in s and "q quit" not in s)
            finally:
                terminal.close()
    finally:
        load.close()
        server.stop()


if __name__ == "__main__":
    if "without llhttp" in weir("serve", "-m", "fake:", "--port", "0", "--host", "x").stderr or "without libcurl" in weir("ps").stderr:
        print("skipped: this weir was built without llhttp or libcurl")
        sys.exit(77)
    run_tests(globals())
