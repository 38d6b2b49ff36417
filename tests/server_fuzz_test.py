"""weir serve on the fake model, asked in mutilated HTTP: it stays up, its answers are HTTP, and in the end it is idle and rests.
WEIR_FUZZ_SECONDS=N (10), WEIR_TEST_SEED=N."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish, seed  # noqa: E402
from media import image_part, png, sound_part, text64, wav  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SECONDS = float(os.environ.get("WEIR_FUZZ_SECONDS", "10"))
SEED = seed()
AT_ONCE = 8
MESSAGES = [{"role": "user", "content": "hello"}]
BODIES = [
    {"messages": MESSAGES, "max_tokens": 4}, {"messages": MESSAGES, "max_tokens": 40, "stream": True, "n": 2}, {"prompt": "x", "max_tokens": 3, "logprobs": 2},
    {"prompt": [[1, 2], [3]], "stream": True, "stop": ["a"]}, {"input": ["a", [1, 2]]}, {"content": "né"}, {"tokens": [1, 2, 300]},
    {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": "required"},
    {"messages": MESSAGES, "max_tokens": 60, "stream": True, "resume": True}, {"prompt": "x", "max_tokens": 60, "stream": True, "resume": True, "share": True, "temperature": 0},
    {"prompt": "x", "max_tokens": 20, "share": True, "temperature": 0}, {"fork": {"id": "cmpl-1", "index": 0, "at": 3}}, {"lora_name": "a", "lora_path": "../b"}, [{"id": 0, "scale": 1}],
    {"messages": [*MESSAGES, {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}]}]}],
     "system": [{"type": "text", "text": "x"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}, "max_tokens": 40, "stream": True},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "h"}]},
               {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "y"}], "instructions": "z",
     "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "tool_choice": "required", "max_output_tokens": 40, "stream": True},
    {"input": "x", "max_output_tokens": 9}, {"input": "x", "previous_response_id": "resp_x", "store": True}, {"input": [{"type": "item_reference", "id": "msg_x_0"}]},
    {"messages": [{"role": "user", "content": [image_part(png(8, 8)), {"type": "text", "text": "x"}, sound_part(wav(0.1))]}], "max_tokens": 9, "stream": True},
    {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text64(png(8, 8))}}]}], "max_tokens": 9},
    {"messages": [{"role": "user", "content": "x", "images": [text64(png(8, 8))]}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
                  {"role": "tool", "tool_name": "f", "content": "y"}], "tools": [{"type": "function", "function": {"name": "f"}}], "format": "json", "think": "low", "options": {"num_predict": 9}},
    {"prompt": "x", "system": "y", "images": [text64(png(8, 8))], "keep_alive": 0, "options": {"num_predict": 9, "stop": ["a"], "num_ctx": 5}}, {"prompt": "x", "raw": True, "options": {"num_predict": 9}},
    {"query": "x", "documents": ["y", {"text": "z"}], "top_n": 1, "return_documents": True}, {"input": ["x", "y"], "truncate": True, "dimensions": 3},
    {"prompt": "x", "n": 3, "best_of": 5, "echo": True, "max_tokens": 3}, {"messages": MESSAGES, "max_tokens": 1e308}, {"messages": MESSAGES, "seed": 10 ** 30}, {"messages": MESSAGES, "temperature": -1e-300}, {},
]
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/input_tokens", "/v1/responses/resp_x", "/v1/responses/resp_x/input_items?order=asc&limit=2&after=x", "/v1/embeddings", "/v1/rerank", "/v1/plan", "/v1/completions/render", "/v1/chat/completions/render", "/tokenize", "/detokenize", "/apply-template", "/v1/models", "/v1/models/x", "/metrics",
         "/slots", "/events", "/health", "/", "/../../etc/passwd", "/%2e%2e/%00", "//", "/v1//chat/completions", "/v1/chat/completions?a=b&c", "*", "http://x/health",
         "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show", "/api/tags", "/api/ps", "/api/pull", "/v1/chat/completions/control", "/v1/streams/x", "/v1/streams/x?starting_after=1", "/v1/streams/x/cancel", "/v1/streams/%ff", "/lora-adapters", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
         "/app.js", "/" + "a" * 300, "/" + "%41" * 2000]
METHODS = ["POST"] * 8 + ["GET"] * 4 + ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PRI", "get", "", "P" * 100]
FIELDS = ["Host: localhost", "Connection: close", "Connection: keep-alive", "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ", "Expect: 100-continue",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip",
          "Content-Type: application/json", "Authorization: Bearer x", "Authorization: Basic eDp5", "Origin: http://x", "Accept: */*", "Last-Event-ID: 2", "Last-Event-ID:  \xff", "Range: bytes=0-",
          "Cookie: " + "a=b; " * 500, "X: " + "y" * 20000, "X-Empty:", ": no name", "no colon", " folded", "Content-Length: 0", "Content-Length: 5", "Content-Length: -1", "Content-Length: 1e9",
          "Content-Length: 18446744073709551617", "Content-Length: 0x10", "Content-Length:\t7", "Content-Length: 67108864", "Host: a\0b", "Host: \xff\xfe", "If-None-Match: *"]
PIECES = [b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\r\n\r\n", b"\n\n", b"\r", b"\n", b" ", b"%", b"{", b"[" * 3000, b'{"a":' * 500, b'"' * 7, b"\\u0000", b"\\ud800", b"9" * 400,
          b"1e999", b"-0", b"HTTP/1.1", b"HTTP/2.0", b"0\r\n\r\n", b"ffffffff\r\n"]


def request(dice, tame):
    """tame: its head is nearly always right, so that more of them get behind it."""
    body = json.dumps(dice.choice(BODIES)).encode() if dice.random() < 0.8 else dice.randbytes(dice.randrange(200))
    if dice.random() < 0.3:
        body = mutate(dice, body)
    fields = [f.encode("latin-1") for f in dice.choices(FIELDS, k=dice.choice([0, 0, 0, 1] if tame else [0, 0, 1, 2, 5]))]
    if dice.random() < (0.98 if tame else 0.7):
        fields.append(b"Host: localhost")
    kind = dice.random() * (0.76 if tame else 1)
    if kind < 0.75:
        fields.append(b"Content-Length: %d" % (len(body) if dice.random() < 0.9 else dice.randrange(3 * len(body) + 2)))
    elif kind < 0.9:
        fields.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    dice.shuffle(fields)
    method = "POST" if tame and dice.random() < 0.9 else dice.choice(METHODS)
    version = b"HTTP/1.1" if tame else dice.choice([b"HTTP/1.1"] * 9 + [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"", b"HTTP/1.1 x"])
    end = b"\r\n" if tame else dice.choice([b"\r\n"] * 9 + [b"\n"])
    return b" ".join([method.encode(), dice.choice(PATHS).encode(), version]) + end + end.join(fields + [b"", b""]) + body


def mutate(dice, data):
    for _ in range(dice.choice([0, 1, 1, 2, 5])):
        at, length = dice.randrange(len(data) + 1), dice.choice([0, 1, 1, 4, 50])
        data = data[:at] + dice.choice([dice.choice(PIECES), dice.randbytes(dice.randrange(5)), data[at:at + length] * 2, b""]) + data[at + length:]
    return data


class Client:
    """Sends its bytes in pieces, and reads the answer, for a while."""

    def __init__(self, server, dice):
        tame = dice.random() < 0.5
        self.data = b"".join(request(dice, tame) for _ in range(dice.choice([1, 1, 1, 2, 4])))
        if dice.random() < (0.03 if tame else 0.4):
            self.data = mutate(dice, self.data)
        self.sent, self.seen, self.over = 0, b"", False
        self.step = dice.choice([1 << 20, 1 << 20, 1000, 7])
        self.until = time.monotonic() + dice.choice([0, 0.01, 0.05, 0.2])
        self.leave = dice.choice(["close", "reset", "half"])
        self.sock = socket.socket()
        self.sock.connect(("127.0.0.1", server.port))
        self.sock.setblocking(False)

    def fileno(self):
        return self.sock.fileno()

    def work(self, readable, writable):
        try:
            if writable and self.sent < len(self.data):
                self.sent += self.sock.send(self.data[self.sent:self.sent + self.step])
                if self.sent == len(self.data) and self.leave == "half":
                    self.sock.shutdown(socket.SHUT_WR)
            if readable:
                piece = self.sock.recv(65536)
                self.seen += piece
                self.over = not piece
        except BlockingIOError:
            pass
        except OSError:
            self.over = True
        if time.monotonic() > self.until:
            self.over = True

    def close(self):
        if self.leave == "reset":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


need_server(WEIR)
dice = random.Random(SEED)
server = Server(WEIR, "--embeddings", "--resume-grace", "1", "--resume-keep", "1", "--lora-dir", os.path.dirname(os.path.abspath(__file__)), "-np", "4", "-c", "512", model="fake:tick_us=500")
files, n, statuses, bad = server.files(), 0, {}, []
until = time.monotonic() + SECONDS
clients = []
while time.monotonic() < until and not bad and server.process.poll() is None:
    try:
        while len(clients) < AT_ONCE:
            clients.append(Client(server, dice))
            n += 1
    except OSError:
        break  # is it gone?
    waiting = [c for c in clients if c.sent < len(c.data)]
    readable, writable, _ = select.select(clients, waiting, [], 0.01)
    for c in list(clients):
        c.work(c in readable, c in writable)
        if not c.over:
            continue
        c.close()
        clients.remove(c)
        if c.seen:
            if c.seen == b"HTTP/1.1 ":
                continue  # an answer's beginning: whether it was still there
            match = re.match(rb"HTTP/1\.[01] (\d\d\d) ", c.seen)
            status = int(match.group(1)) if match else 0
            statuses[status] = statuses.get(status, 0) + 1
            if status == 0 or status == 500 or status > 505:
                bad.append((c.data, c.seen))
for c in clients:
    c.close()
print(f"      {n} connections; first answers by status: {dict(sorted(statuses.items()))}", flush=True)
time.sleep(0.2)
check("it is still there", server.process.poll() is None, server.process.poll(), *[line.get('message') for line in server.lines[-60:]])
if server.process.poll() is None:
    check("what it says is HTTP, and no failure of its own", not bad, *bad)
    metrics = server.wait_for(lambda m: m["weir_slots_prefilling"] + m["weir_slots_generating"] + m["weir_queue_depth"] == 0 and m["weir_http_live"] == 1)
    check("in the end it is idle", metrics["weir_slots_generating"] + metrics["weir_queue_depth"] == 0 and metrics["weir_http_live"] == 1, metrics)
    # A computation that is given up because its client has left fails too, and nobody is told.
    failed = [e for e in server.lines if e.get("status", 0) >= 500 and e["status"] not in (501, 505) and not e.get("left")]
    check("no failure of its own is told", not failed, *failed)
    closing = time.monotonic() + PATIENCE
    while server.files() > files and time.monotonic() < closing:
        time.sleep(0.1)
    check("no descriptor stays", server.files() <= files, server.files(), files)
    cpu = server.cpu()
    time.sleep(1)
    check("the service thread rests", server.cpu() - cpu < 0.2, server.cpu() - cpu)
    check("it answers", server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status == 200)
    code = server.stop()
    check("it ends with 0", code == 0, code)
finish()
