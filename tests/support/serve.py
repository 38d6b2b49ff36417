"""A running `weir serve`, and a client so plain that it can also do wrong."""
# SPDX-License-Identifier: Apache-2.0
import atexit
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from checks import PATIENCE, check_reports, environment, finish, leave_out

# Headers of a request in which nothing may be without effect.
STRICT = ("X-Weir-Strict: 1",)

# Who ends the test ends its servers too.
running = set()


@atexit.register
def end_all():
    for server in list(running):
        server.process.kill()
        server.wait()  # and tell what a sanitizer reported


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def need_server(weir):
    """Ends the test as skipped where the program has no server."""
    if "without llhttp" in subprocess.run([weir, "serve", "--port", "70000"], capture_output=True, text=True, env=environment()).stderr:
        print("skipped: this weir was built without llhttp")
        sys.exit(77)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Connection:
    """One connection; requests one after the other. room: unread bytes that the kernel may keep; source: the client's own address."""

    def __init__(self, server, timeout=300, kind=None, room=None, source=None):
        kind = kind or server.kind
        self.sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        self.sock.settimeout(timeout)
        if room:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect(server.unix if kind == "unix" else ("127.0.0.1", server.port))
        if kind != "unix":
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == "tls":
            context = ssl.create_default_context(cafile=server.cert)
            context.check_hostname = False
            self.sock = context.wrap_socket(self.sock)
        self.buffer = b""

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode())

    def request(self, method, path, body=None, headers=(), key=None):
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        if key is not None:
            lines.append(f"Authorization: Bearer {key}")
        self.send("\r\n".join(lines + list(headers)).encode() + b"\r\n\r\n" + data)

    def hurry(self):
        """The kernel keeps more from now on. With a few KiB each window waits for a delayed acknowledgement: 10 KB/s."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def more(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.more():
                raise ConnectionError("closed: " + repr(self.buffer[:500]))
        data, self.buffer = self.buffer.split(mark, 1)
        return data

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self.more():
                raise ConnectionError("closed: " + repr(self.buffer[:500]))
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            assert name.lower() not in headers or name == "Vary", line
            headers[name.lower()] = value.strip()
        return int(lines[0].split(" ", 2)[1]), headers

    def chunks(self):
        while True:
            size = int(self.until(b"\r\n"), 16)
            data = self.exactly(size)
            assert self.exactly(2) == b"\r\n"
            if size == 0:
                return
            yield data

    def reply(self, head_only=False):
        status, headers = self.head()
        if head_only or status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = b"".join(self.chunks())
        else:
            body = self.exactly(int(headers["content-length"]))
        return Reply(status, headers, body)

    def events(self):
        """Data of events as they come, comments as ":…"."""
        rest = b""
        for data in self.chunks():
            rest += data
            while b"\n\n" in rest:
                event, rest = rest.split(b"\n\n", 1)
                event = event.decode()
                yield event if event.startswith(":") else "\n".join(line[6:] for line in event.split("\n") if line.startswith("data: "))
        assert rest == b"", rest

    def closed(self):
        """Whether the other side closes, after whatever else it sends."""
        try:
            while self.more():
                pass
            return True
        except socket.timeout:
            return False
        except OSError:
            return True

    def close(self):
        self.sock.close()


class Kept:
    """Requests one after the other on a connection, and on a new one after a reply that closes it. A connection that ends without a reply fails."""

    def __init__(self, server):
        self.server, self.connection = server, server.connect()

    def post(self, path, body, **more):
        self.connection.request("POST", path, body, **more)
        reply = self.connection.reply()
        if reply.headers.get("connection", "").lower() == "close":
            self.connection.close()
            self.connection = self.server.connect()
        return reply

    def close(self):
        self.connection.close()


class Server:
    """`weir serve` on a free port of the loopback interface; `words` are further options. log: a file that gets its output too;
    limits: what is set with resource.setrlimit; model None: the words name models. Also a context manager. With wait=False it may still be loading."""

    def __init__(self, weir, *words, model="fake:", kind="tcp", unix=None, cert=None, env=None, patience=PATIENCE, log=None, limits=(), wait=True):
        self.weir, self.words, self.model, self.env, self.log_file, self.limits = weir, words, model, env, log, limits
        self.kind, self.unix, self.cert, self.patience = kind, unix, cert, patience
        self.port = 0
        self.start(wait)

    def start(self, wait=True):
        """Once more, after stop: at the same port."""
        self.lines, self.address, self.said = [], "", ""
        self.ready = threading.Event()
        # A text that was served before would come by drafts, in fewer events and too quickly to be cancelled.
        words = self.words if "--lookup-memory" in self.words else ("--lookup-memory", "0", *self.words)
        model = [] if self.model is None else ["-m", self.model]
        self.process = subprocess.Popen([self.weir, "serve", *model, "--port", str(self.port), *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.env or environment(), preexec_fn=self.limit if self.limits else None)
        running.add(self)
        self.reader = threading.Thread(target=self.read_log, args=(self.process.stderr,), daemon=True)
        self.reader.start()
        if wait and (not self.ready.wait(self.patience) or not self.address):
            raise RuntimeError("\n".join(map(str, self.lines)))

    def limit(self):
        import resource
        for what, value in self.limits:
            resource.setrlimit(what, (value, value))

    def read_log(self, stream):
        for line in stream:
            if self.log_file:
                self.log_file.write(line.decode(errors="replace"))
                self.log_file.flush()
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"event": "text", "message": line.decode(errors="replace")}
            self.lines.append(entry)
            self.said += entry["message"] if entry.get("event") in ("text", "options") else ""
            if entry.get("event") == "ready":
                self.address = entry["message"].rsplit(" at ", 1)[1]
                port = re.search(r":(\d+)$", self.address)
                self.port = int(port.group(1)) if port else 0
                self.ready.set()
        self.ready.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def connect(self, **more):
        return Connection(self, **more)

    def ask(self, method, path, body=None, source=None, **more):
        # A large body takes long to write, and the server waits for a request's head for ten seconds only.
        body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connect(source=source)
        try:
            connection.request(method, path, body, **more)
            return connection.reply(head_only=method == "HEAD")
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body, **more):
        return self.ask("POST", path, body, **more)

    def stream(self, path, body, **more):
        """The events of a stream without [DONE], which must come last; comments left out."""
        connection = self.connect()
        connection.request("POST", path, dict(body, stream=True), **more)
        status, headers = connection.head()
        if status != 200:
            raise AssertionError((status, connection.exactly(int(headers["content-length"]))))
        events = [e for e in connection.events() if not e.startswith(":")]
        connection.close()
        assert events[-1] == "[DONE]", events
        return [json.loads(e) for e in events[:-1]]

    def named_events(self, path, body):
        """Names and data of all events of a dialect whose events have names, which are their types; comments left out."""
        connection = self.connect()
        connection.request("POST", path, dict(body, stream=True))
        status, _ = connection.head()
        data = b"".join(connection.chunks()).decode()
        connection.close()
        assert status == 200, data
        events = [event.split("\n") for event in data.split("\n\n") if event and not event.startswith(":")]
        assert all(len(e) == 2 and e[0].startswith("event: ") and e[1].startswith("data: ") for e in events), events
        pairs = [(e[0][7:], json.loads(e[1][6:])) for e in events]
        assert all(name == data["type"] for name, data in pairs), pairs
        return pairs

    def end_without_llama(self, reply):
        """Ends the test after the checks so far where the reply says that this build lacks llama.cpp, which tools and schemas need."""
        if b"has no llama.cpp" in reply.body:
            leave_out("this weir was built without llama.cpp, which tools and schemas need: the rest is left out")
            self.stop()
            finish()

    def metrics(self, **more):
        values = {}
        for line in self.get("/metrics", **more).body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def wait_for(self, condition, **more):
        """The metrics, as soon as the condition holds for them; the last ones when it never does."""
        end = time.monotonic() + self.patience
        while True:
            metrics = self.metrics(**more)
            if condition(metrics) or time.monotonic() > end:
                return metrics
            time.sleep(0.01)

    def is_idle(self, **more):
        """True as soon as no slot is busy, false if one still is in the end: a slot is busy for a moment after its answer's end is sent."""
        end = time.monotonic() + self.patience
        while self.busy_slots(**more) != 0:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def busy_slots(self, **more):
        return sum(slot["state"] != "idle" for slot in self.get("/slots", **more).json)

    # What the kernel knows of the process; Linux.

    def resident(self):
        """Bytes."""
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak(self):
        """Bytes, the most that were ever resident."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) << 10

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu(self, name="weir-http"):
        """Seconds that the threads of this name have run."""
        ticks = 0
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            try:
                with open(f"/proc/{self.process.pid}/task/{task}/stat") as f:
                    head, tail = f.read().rsplit(")", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended since the folder was read
            if head.split("(", 1)[1] == name:
                ticks += sum(map(int, tail.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def log(self, condition):
        """The log's first line for which the condition holds, waited for."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            for line in list(self.lines):
                if condition(line):
                    return line
            time.sleep(0.01)
        return None

    def stop(self, sign=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.wait()

    def wait(self):
        try:
            return self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            running.discard(self)
            self.reader.join(10)
            check_reports(self.said)
            self.said = ""
