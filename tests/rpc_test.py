"""weir rpc: workers on loopback compute the layers of a tiny random model (scripts/tiny_gguf.py)."""
# SPDX-License-Identifier: Apache-2.0
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, environment, run_tests  # noqa: E402
from program import PATIENCE, WEIR, expect, weir  # noqa: E402
from serve import Server  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
scratch = tempfile.TemporaryDirectory()
MODEL = os.path.join(scratch.name, "model.gguf")
subprocess.run(["sh", f"{SOURCE}/tests/support/tiny.sh", MODEL, "tiny_gguf.py", "llama", "--layers", "4"], check=True)
PLAIN = environment(WEIR_KERNELS="off")  # ggml's own kernels, which workers have
ASK = {"prompt": "the tree", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker:
    """`weir rpc`, which answers once it is made. Also a context manager."""

    def __init__(self, port=0):
        end = time.monotonic() + PATIENCE
        self.process = None
        while True:
            if self.process is None or self.process.poll() is not None:  # another program may have taken the port meanwhile
                self.port = port or free_port()
                self.process = subprocess.Popen([WEIR, "rpc", "--listen", self.name, "-t", "1"], stdin=subprocess.DEVNULL,
                                                stderr=subprocess.DEVNULL, env=environment())
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                if self.process.poll() is None:
                    return
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.02)

    @property
    def name(self):
        return f"127.0.0.1:{self.port}"

    def end(self, sign=signal.SIGKILL):
        self.process.send_signal(sign)
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()


def text_of(server, model=None):
    reply = server.post("/v1/completions", dict(ASK, model=model) if model else ASK)
    return reply.json["choices"][0]["text"] if reply.status == 200 else reply.body.decode()


def run(*words):
    return weir("run", "-m", MODEL, "--raw", "-p", "the tree", "-n", "24", "--temp", "0", "--ignore-eos", "-t", "1", *words, env=PLAIN)


def test_text():
    alone = run()
    with Worker() as a, Worker() as b:
        both = f"{a.name},{b.name}"
        for words in ([], ["--tensor-split", "3,1"], ["-ngl", "2"], ["--device", "none"], ["-ctk", "f32", "-ctv", "f32"]):
            here = run(*[w for w in words if words[0] == "-ctk"])
            there = run("--rpc", both, *words)
            check(f"the text of one process: {words}", there.returncode == 0 and there.stdout == here.stdout != "",
                  there.stdout, here.stdout, there.stderr)
        expect("no such device", run("--rpc", both, "--split-mode", "none", "--main-gpu", "5"), 2, "--main-gpu is 5, and there are 2 devices; allowed: 0 to 1")
        expect("no rows on workers", run("--rpc", both, "--split-mode", "row"), 3, "--split-mode is row", "give layer")
        check("one after the other, a worker serves programs", run("--rpc", a.name).stdout == alone.stdout)
        check("both are still there", a.process.poll() is None and b.process.poll() is None)
        check("a signal ends a worker", a.end(signal.SIGTERM) in (143, -signal.SIGTERM) and b.end(signal.SIGINT) in (130, -signal.SIGINT))


def test_refused():
    for address in ("0.0.0.0:5000", "8.8.8.8:5000", "172.32.0.1:5000"):
        expect(f"no worker at {address}", weir("rpc", "--listen", address), 2, "listen", "insecure")
    for address in ("", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "localhost:1", "127.0.0.1:1x", ":1", "1:2:3"):
        expect(f"no address: {address}", weir("rpc", "--listen", address), 2, "listen")
    with Worker() as a:
        expect("a port in use", weir("rpc", "--listen", a.name), 1, "listen")
    expect("an unknown device", weir("rpc", "--listen", f"127.0.0.1:{free_port()}", "--device", "GPU99"), 2, "GPU99")
    gone = f"127.0.0.1:{free_port()}"
    expect("no worker there", run("--rpc", gone), 3, gone, "weir rpc")
    for names in ("nothing", "127.0.0.1:", ":50", "127.0.0.1:1,", "127.0.0.1:123456"):
        expect(f"no name: {names}", run("--rpc", names), 2, "rpc")
        expect(f"nor to serve with: {names}", weir("serve", "-m", MODEL, "--port", "0", "--rpc", names), 2, "--rpc", "HOST:PORT,…")
    with Server(WEIR, "--rpc", gone, model=MODEL) as server:
        check("what is missing, of which model", gone in text_of(server), text_of(server))


def test_name():
    """The default model's, which the server takes from its file."""
    if weir("info", "-m", "default").returncode == 0:
        with Server(WEIR, "--rpc", f"127.0.0.1:{free_port()}", model="default") as server:
            names = [model["id"] for model in server.get("/v1/models").json["data"]]
            check("the default model is called by its file", len(names) == 1 and names[0].endswith(".gguf"), names)
            check("as in what is missing", names[0] in server.post("/v1/completions", dict(ASK, model=names[0])).body.decode())


def stream_until_lost(server, end):
    """Calls end in the middle of a stream; returns the last event, which must be an error."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", dict(ASK, max_tokens=100000, stream=True))
    connection.head()
    events = iter(connection.events())
    for _ in range(3):
        last = next(events)
    end()
    said = [last, *events]
    connection.close()
    return said[-2] if said[-1] == "[DONE]" else said[-1]


def test_lost():
    words = ("-c", "512", "-np", "2", "-t", "1", "--rpc-timeout", "30000")
    with Server(WEIR, *words, model=MODEL, env=PLAIN) as server:
        alone = text_of(server)
    with Worker() as a, Worker() as b:
        slow = environment(WEIR_KERNELS="off")
        with Server(WEIR, *words, "--rpc", f"{a.name},{b.name}", model=MODEL, env=slow) as server:
            check("the text of one process", text_of(server) == alone)
            last = stream_until_lost(server, b.end)
            check("a stream ends with an error that names the worker", b.name in last and "error" in last, last)
            check("the server lives", server.get("/health").status in (200, 503))
            missing = text_of(server)
            check("what is missing is said", b.name in missing and "error" in missing, missing)
            with Worker(b.port) as again:
                end = time.monotonic() + PATIENCE
                while (text := text_of(server)) != alone and time.monotonic() < end:
                    time.sleep(0.2)
                check("with the worker back, so is the model", text == alone, text)
                last = stream_until_lost(server, lambda: again.process.send_signal(signal.SIGSTOP))
                check("a worker that says nothing more is lost after the timeout", again.name in last and "error" in last, last)
                again.process.send_signal(signal.SIGCONT)
            check("it ends in order", server.stop() == 0)


def test_shared():
    """Two models on one worker, which forgets all graphs when a buffer of any model is freed."""
    folder = os.path.join(scratch.name, "models")
    os.mkdir(folder)
    for seed, name in enumerate("ab"):
        subprocess.run(["sh", f"{SOURCE}/tests/support/tiny.sh", f"{folder}/{name}.gguf", "tiny_gguf.py", "llama", "--layers", "4", "--seed", str(seed + 1)], check=True)
    with Worker() as worker, Server(WEIR, "--models-dir", folder, "-c", "512", "-np", "2", "-t", "1", "--rpc", worker.name, model=None, env=PLAIN) as server:
        alone = text_of(server, "a"), text_of(server, "b")
        connection = server.connect()
        connection.request("POST", "/v1/completions", dict(ASK, model="a", max_tokens=400, stream=True))
        connection.head()
        events = iter(connection.events())
        for _ in range(3):
            next(events)
        server.post("/v1/models/unload", {"model": "b"})
        other = text_of(server, "b")
        last = [*events][-2:]
        connection.close()
        check("a stream goes on while another model leaves its worker and comes back", "error" not in str(last) and '"length"' in last[0], last)
        check("and the texts are the same", (text_of(server, "a"), other) == alone)


def between(target, dice):
    """A port that forwards bytes to the target, and the answers with a change somewhere."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = dice.choice((0, 10, 100, 300, 1000, 10000))

    def pass_on(source, sink, garbles):
        nonlocal left
        try:
            while data := source.recv(65536):
                if garbles and len(data) > left:
                    if dice.random() < 0.3:
                        break
                    data = data[:left] + bytes(dice.choice((0, 255, dice.randrange(256))) for _ in data[left:])
                left = max(left - len(data), 0) if garbles else left
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        try:
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(target)
                threading.Thread(target=pass_on, args=(client, server, False), daemon=True).start()
                threading.Thread(target=pass_on, args=(server, client, True), daemon=True).start()
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    return listener


def test_garbage():
    with Worker() as a:
        for seed in range(effort(20, 5)):
            listener = between(("127.0.0.1", a.port), random.Random(seed))
            done = run("--rpc", f"127.0.0.1:{listener.getsockname()[1]}", "--rpc-timeout", "1000")
            listener.close()
            check(f"garbage from a worker ends no process: {seed}", done.returncode in (0, 3, 4, 1), done.returncode, done.stderr[-600:])
            if a.process.poll() is not None:  # it got addresses that were changed on their way
                a.__init__(a.port)


def test_silence():
    with Worker() as a:
        quiet = socket.create_connection(("127.0.0.1", a.port))
        done = run("--rpc", a.name, "--rpc-timeout", "30000")
        check("a client that says nothing is left after a while", done.returncode == 0, done.stderr)
        quiet.close()
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x0e" + b"\xff" * 64, b"\x0e" + (24).to_bytes(8, "little") + b"\0" * 24 + b"\x63"):
            with socket.create_connection(("127.0.0.1", a.port)) as s:
                s.sendall(words)
        check("and clients of other protocols", run("--rpc", a.name).returncode == 0 and a.process.poll() is None)


run_tests(globals())
