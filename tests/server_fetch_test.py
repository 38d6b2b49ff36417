"""weir serve --media-host: images that messages name by URL, from hosts that mean well and from hosts that do not."""
# SPDX-License-Identifier: Apache-2.0
import gzip
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from authority import Authority  # noqa: E402
from checks import PATIENCE, check, environment, finish  # noqa: E402
from media import image_part, noisy_png, png, text64, text_part, wav  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT = "/v1/chat/completions"
URL = "messages[0].content[0].image_url.url"
need_server(WEIR)


class Host:
    """Answers a path by a function of the connection. paths: the requested ones; left: connections that the other side closed."""

    def __init__(self, context=None):
        self.paths, self.left, self.context, self.answers = [], threading.Semaphore(0), context, {}
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.talk, args=(self.socket.accept()[0],), daemon=True).start()

    def talk(self, sock):
        try:
            if self.context:
                sock = self.context.wrap_socket(sock, server_side=True)
            head = b""
            while b"\r\n\r\n" not in head:
                data = sock.recv(4096)
                if not data:
                    return
                head += data
            path = head.split(b" ", 2)[1].decode()
            self.paths.append((path, head.decode("latin-1")))
            self.answers[path](sock)
        except OSError:
            self.left.release()
        finally:
            sock.close()

    def url(self, path, host="127.0.0.1"):
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{path}"

    def serves(self, path, data, status="200 OK", headers=(), length=None):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data) if length is None else length}", *headers]
        self.answers[path] = lambda sock: sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    def redirects(self, path, to):
        self.serves(path, b"elsewhere", "302 Found", [f"Location: {to}"])


def silent(sock):
    """Nothing comes, until the other side leaves."""
    if sock.recv(1) == b"":
        raise OSError


def drip(sock):
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        sock.sendall(b"\x89")
        time.sleep(0.02)


def endless(sock):
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        sock.sendall(bytes(65536))


def endless_head(sock):
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        sock.sendall(b"X-More: " + b"a" * 60000 + b"\r\n")


def endless_redirect(sock):
    sock.sendall(b"HTTP/1.1 302 Found\r\nLocation: /image\r\n\r\n")
    while True:
        sock.sendall(bytes(65536))


host, other = Host(), Host()
image = png()
host.serves("/image", image, headers=["Content-Type: image/png"])
host.serves("/text", b"<html>not an image</html>", headers=["Content-Type: image/png"])
host.serves("/misnamed", image, headers=["Content-Type: text/html"])
host.serves("/sound", wav())
host.serves("/empty", b"")
host.serves("/gone", b"no such image", "404 Not Found")
host.serves("/cut", image[:-40], length=len(image))
host.serves("/half", image[:100])
host.serves("/bomb", gzip.compress(bytes(50 << 20)), headers=["Content-Encoding: gzip", "Content-Type: image/png"])
host.serves("/pixels", png(8, 8, size=(16000, 16000)))
host.serves("/large", noisy_png(800, 600, 1))
host.serves("/announced", b"x", length=1 << 40)
host.redirects("/here", "/image")
host.redirects("/there", other.url("/image"))
host.redirects("/local", "http://localhost:%d/image" % host.port)
host.redirects("/file", "file:///etc/passwd")
host.redirects("/loop", "/loop")
host.redirects("/1", "/2")
host.redirects("/2", "/3")
host.redirects("/3", "/image")
for name, answer in (("/silent", silent), ("/drip", drip), ("/endless", endless), ("/endless-head", endless_head), ("/endless-redirect", endless_redirect)):
    host.answers[name] = answer
other.serves("/image", image)


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def body(*parts, **more):
    return dict({"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 4, "temperature": 0}, **more)


def refused(name, reply, status=400, code="invalid_value", word="", field=URL):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: {status}, {code}", (reply.status, error.get("param"), error.get("code")) == (status, field, code) and word in error.get("message", ""), reply.status, reply.body[:600])


def start(*words, **more):
    return Server(WEIR, "--mmproj", "fake:sounds=0", "-np", "4", "-c", "2048", *words, **more)


# ---- Off unless asked for, and only entries that mean something

with start() as server:
    refused("no host is allowed", server.post(CHAT, body(part(host.url("/image")))), code="unsupported_value", word="fetches nothing")
    check("and nobody was asked", host.paths == [], host.paths)
for entry in ("", "http://example.com", "example.com/path", "a b", "example.com:0", "example.com:99999", "[127.0.0.1]", "*.", "user@example.com"):
    done = subprocess.run([WEIR, "serve", "-m", "fake:", "--port", "0", "--media-host", entry], capture_output=True, text=True, env=environment(), timeout=PATIENCE)
    check(f"--media-host {entry!r} is refused", done.returncode == 2 and "--media-host" in done.stderr, done)

# ---- What is allowed

address = f"127.0.0.1:{host.port}"
with start("--media-host", address, "--media-host", "images.invalid", "--max-body", "1M") as server:
    def fetch(path):
        return server.post(CHAT, body(part(host.url(path)), text_part("What?")))

    def tokens(reply):
        return reply.json["usage"]["prompt_tokens"] if reply.status == 200 else reply.body

    same = server.post(CHAT, body(image_part(image), text_part("What?"))).json
    reply = fetch("/image")
    check("an image by URL is the same as in the message", reply.status == 200 and reply.json["choices"] == same["choices"] and tokens(reply) == same["usage"]["prompt_tokens"], reply.body)
    check("and comes from the cache", reply.json["usage"]["prompt_tokens_details"]["cached_tokens"] >= tokens(reply) - 2, reply.body)
    head = host.paths[-1][1].lower()
    check("its host learns nothing of the request", "user-agent: weir/" in head and "referer" not in head and "authorization" not in head and "cookie" not in head, head)
    check("as some clients write it", server.post(CHAT, body({"type": "image_url", "image_url": host.url("/image")}, text_part("What?"))).json["choices"] == same["choices"])
    reply = server.post("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": host.url("/image")}}, {"type": "text", "text": "What?"}]}], "max_tokens": 4})
    check("Anthropic's source of type url", reply.status == 200 and reply.json["usage"]["input_tokens"] + reply.json["usage"].get("cache_read_input_tokens", 0) == same["usage"]["prompt_tokens"], reply.body)
    reply = server.post("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": host.url("/image")}, {"type": "input_text", "text": "What?"}]}], "max_output_tokens": 4})
    check("Responses' image_url", reply.status == 200 and reply.json["usage"]["input_tokens"] == same["usage"]["prompt_tokens"], reply.body)
    check("a stream", len(server.stream(CHAT, body(part(host.url("/image")), text_part("What?")))) > 1)
    check("the content decides, not its type", tokens(fetch("/misnamed")) == same["usage"]["prompt_tokens"])
    two = server.post(CHAT, body(part(host.url("/image")), image_part(png(seed=1)), part(host.url("/image"))))
    check("several, beside images in the message", two.status == 200 and two.json["usage"]["prompt_tokens_details"]["image_tokens"] == 3 * same["usage"]["prompt_tokens_details"]["image_tokens"], two.body)
    for path in ("/here", "/1"):
        check(f"redirects within the list: {path}", tokens(fetch(path)) == same["usage"]["prompt_tokens"])

    # ---- What is not

    n = len(host.paths) + len(other.paths)
    for name, url, code, word in (
            ("another port", other.url("/image"), "unsupported_value", "--media-host"), ("the default port", "http://127.0.0.1/image", "unsupported_value", "--media-host"),
            ("another name", host.url("/image", "localhost"), "unsupported_value", "--media-host"), ("as a number", host.url("/image", "2130706434"), "unsupported_value", "--media-host"),
            ("another address", host.url("/image", "127.0.0.2"), "unsupported_value", "--media-host"), ("IPv6", host.url("/image", "[::1]"), "unsupported_value", "[::1]:"),
            ("a user", host.url("/image", "me@127.0.0.1"), "invalid_value", "user"), ("a disguise", f"http://{address}@127.0.0.2:{host.port}/image", "invalid_value", "user"),
            ("a subdomain", host.url("/image", "127.0.0.1.example.com"), "unsupported_value", "--media-host"), ("no port", "http://127.0.0.1:/image", "unsupported_value", "--media-host"),
            ("no host", "http:///image", "unsupported_value", "--media-host"), ("no number", "http://127.0.0.1:abc/image", "invalid_value", "http"),
            ("a file", "file:///etc/passwd", "unsupported_value", "data: URL"), ("FTP", "ftp://127.0.0.1/image", "unsupported_value", "data: URL"),
            ("a line in it", host.url("/image\r\nX: y"), "invalid_value", "http"), ("a long one", host.url("/" + "a" * 3000), "invalid_value", "2,047")):
        refused(name, server.post(CHAT, body(part(url))), code=code, word=word)
    escaped = str(body(part("URL"))).replace("'", '"').replace("URL", host.url("/image").replace("http", "\\u0068ttp"))
    refused("its first letters escaped", server.post(CHAT, escaped.encode()), word="without escapes")
    check("nobody was asked for these", len(host.paths) + len(other.paths) == n, host.paths[n:], other.paths)
    refused("a host that does not exist", server.post(CHAT, body(part("http://images.invalid/x.png"))), word="cannot be fetched")
    refused("17 URLs", server.post(CHAT, body(*[part(host.url("/image"))] * 17)), code="unsupported_value", word="16", field="messages[0].content[16].image_url.url")
    message = server.post("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": other.url("/image")}}]}], "max_tokens": 4}).error["message"]
    check("Anthropic's: another host", message.startswith("messages[0].content[0] is at 127.0.0.1:"), message)
    for name, path, status, code, word in (
            ("a text", "/text", 400, "invalid_value", "none of these"), ("a sound", "/sound", 400, "invalid_value", "image"), ("nothing", "/empty", 400, "invalid_value", "none of these"),
            ("an error", "/gone", 400, "invalid_value", "status 404"), ("cut off", "/cut", 400, "invalid_value", "cannot be fetched"), ("a half", "/half", 400, "invalid_value", "cannot be read"),
            ("compressed", "/bomb", 400, "invalid_value", "none of these"), ("too many pixels", "/pixels", 400, "invalid_value", "allowed"),
            ("too large", "/large", 413, "media_too_large", "--max-body"), ("announced as too large", "/announced", 413, "media_too_large", "--max-body"),
            ("without an end", "/endless", 413, "media_too_large", "--max-body"), ("a head without an end", "/endless-head", 400, "invalid_value", "cannot be fetched"),
            ("a redirect without an end", "/endless-redirect", 413, "media_too_large", "--max-body"),
            ("a redirect to another host", "/there", 400, "unsupported_value", "redirects to"), ("to another name", "/local", 400, "unsupported_value", "redirects to localhost"),
            ("to a file", "/file", 400, "invalid_value", "http"), ("in circles", "/loop", 400, "invalid_value", "status 302")):
        n = len(other.paths)
        refused(name, fetch(path), status, code, word)
        check(f"{name}: nobody else was asked", len(other.paths) == n, other.paths)
    host.serves("/part", noisy_png(400, 300, 2))
    refused("small ones that are too large together", server.post(CHAT, body(*[part(host.url("/part"))] * 3)), 413, "media_too_large", "--max-body", field="messages[0].content[2].image_url.url")

    # ---- Slow hosts

    # A slow machine may give some of those that wait a turn, and may answer a text after a slow host: then all is tried again.
    for _ in range(5):
        results, codes, first = [], [], []
        slow = [threading.Thread(target=lambda path=path: results.append(fetch(path))) for path in ("/drip", "/silent") * 4]
        n = len(host.paths)
        for thread in slow:
            thread.start()
        while len(host.paths) < n + len(slow):
            time.sleep(0.01)
        waiting = [server.connect() for _ in range(12)]
        for connection in waiting:
            connection.request("POST", CHAT, body(part(host.url("/silent"))))
        for _ in range(5):
            check("texts and images in messages are answered", server.post(CHAT, body(image_part(image), text_part("What?"))).json["choices"] == same["choices"])
            first.append(not results)
        for text in ("see http://example.com", "http://example.com, please"):
            check(f"who only mentions a URL is answered: {text}", server.post(CHAT, body(text_part(text))).status == 200)
        for thread in slow:
            thread.join()
        for reply in results:
            refused("too slow", reply, word="took too long")
        for connection in waiting:
            error = connection.reply().error
            codes.append(error["code"] if "took too long" not in error["message"] else "slow")
            connection.close()
        if any(first) and "too_many_media" in codes:
            break
    check("and do not wait", any(first), first)
    check("who waited too long comes again", "too_many_media" in codes and set(codes) <= {"too_many_media", "slow"}, codes)

    # ---- Clients that leave

    def ends_early():
        """A fetch whose client leaves, before the ten seconds that each has."""
        while host.left.acquire(timeout=0):
            pass
        n = len([p for p, _ in host.paths if p == "/silent"])
        connection = server.connect()
        connection.request("POST", CHAT, body(part(host.url("/silent"))))
        while len([p for p, _ in host.paths if p == "/silent"]) == n:
            time.sleep(0.01)
        connection.close()
        return host.left.acquire(timeout=9)
    check("the fetch ends with its client", any(ends_early() for _ in range(3)))  # a slow machine may take longer once
    connection = server.connect()
    n = len(host.paths)
    connection.request("POST", CHAT, body(part(host.url("/silent"))))
    while len(host.paths) == n:
        time.sleep(0.01)
    server.process.terminate()
    connection.close()
    check("a drain waits for no client that has left", server.wait() == 0, server.process.returncode, server.lines[-5:])

# ---- By name

name = f"localhost:{host.port}"
with start("--media-host", name) as server:
    refused("a name whose address is not public", server.post(CHAT, body(part(host.url("/image", "localhost")))), code="unsupported_value", word="not public")
with start("--media-host", "*") as server:
    refused("any host does not mean any port", server.post(CHAT, body(part(host.url("/image")))), code="unsupported_value", word="--media-host")
with start("--media-host", f"*:{host.port}") as server:
    refused("nor addresses that are not public", server.post(CHAT, body(part(host.url("/image")))), code="unsupported_value", word="not public")
    refused("in any form", server.post(CHAT, body(part(host.url("/image", "0x7f.1")))), code="unsupported_value", word="not public")
    refused("as IPv6", server.post(CHAT, body(part(host.url("/image", "[::ffff:127.0.0.1]")))), code="unsupported_value", word="not public")
with start("--media-host", name, "--media-host", address, env=dict(environment(), http_proxy=other.url("/"), ALL_PROXY=other.url("/"))) as server:
    n = len(other.paths)
    check("a name and its address; no proxy is asked", server.post(CHAT, body(part(host.url("/image", "localhost")))).status == 200 and len(other.paths) == n, other.paths[n:])
    check("upper case", server.post(CHAT, body(part(host.url("/image", "LOCALHOST")))).status == 200)
    check("an upper case scheme", server.post(CHAT, body(part(host.url("/image").replace("http:", "HTTP:")))).status == 200)

# ---- HTTPS

with tempfile.TemporaryDirectory() as folder:
    authority = Authority(folder)
    safe = Host(authority.server())
    safe.serves("/image", image)
    with start("--media-host", f"127.0.0.1:{safe.port}", env=dict(environment(), CURL_CA_BUNDLE=authority.file)) as server:
        check("HTTPS", server.post(CHAT, body(part(safe.url("/image")))).status == 200)
    with start("--media-host", f"127.0.0.1:{safe.port}") as server:
        refused("a certificate of nobody", server.post(CHAT, body(part(safe.url("/image")))), word="cannot be fetched")

finish()
