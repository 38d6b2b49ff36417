"""weir serve --prefix-key, --prefix-peer: cached prompts that servers fetch from each other, and from peers that are slow, broken or lie."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from authority import Authority  # noqa: E402
from checks import PATIENCE, check, environment, run_tests  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
KEY = "a-key-of-the-fleet"
PATH = "/v1/prefixes"
PROMPT = "".join(chr(ord("a") + i * i % 26) for i in range(900))


def start(*words, **more):
    return Server(WEIR, "-np", "2", "-c", "2048", "--prefix-key", KEY, "--prefix-timeout", "600", "--work-timeout", "1200", *words, **more)


def hint(server):
    return [f"X-Weir-Prefix-From: {server if isinstance(server, str) else server.url}"]


def ask(server, prompt=PROMPT, peer=None, **more):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    key = more.pop("key", None)
    reply = server.post("/v1/completions", {**body, **more}, headers=hint(peer) if peer else (), key=key)
    check("answered", reply.status == 200, reply.body)
    usage = reply.json["usage"]
    return reply.json["choices"][0]["text"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def ends(server, end, **more):
    return server.metrics(**more)[f'weir_prefix_fetches_total{{end="{end}"}}']


class Peer:
    """Another server, which answers everything with a function of the connection."""

    def __init__(self, answer):
        self.asked, self.left = [], threading.Event()
        self.answer = answer
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            threading.Thread(target=self.talk, args=(self.socket.accept()[0],), daemon=True).start()

    def talk(self, sock):
        with sock:
            try:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += sock.recv(65536)
                head, rest = data.split(b"\r\n\r\n", 1)
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                while len(rest) < length:
                    rest += sock.recv(65536)
                self.asked.append((head.decode(), rest))
                self.answer(sock)
            except OSError:
                self.left.set()


def says(body, length=None, status="200 OK", more=""):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n{more}\r\n".encode()
    return lambda sock: sock.sendall(head + body)


def silent(sock):
    if sock.recv(1) == b"":
        raise OSError


def test_the_rest_alone_is_computed():
    need_server(WEIR)
    with start() as first, start("--prefix-peer", f"127.0.0.1:{first.port}") as second:
        text, n, cached = ask(first)
        check("computed there", cached == 0)
        got = ask(second, peer=first)
        check("the same text, of a prompt that came from there", got == (text, n, n - 1), got)
        check("one token was computed", second.metrics()["weir_prompt_tokens_total"] == 1)
        again = ask(second, peer=first)
        check("what is here is not fetched again", again == (text, n, n - 1) and ends(second, "known") == 1 and ends(second, "fetched") == 1)
        turn = PROMPT + text + "And then?"
        alone, n, cached = ask(first, turn)
        with start("--prefix-peer", first.url) as third:
            check("a longer one", ask(third, turn, first) == (alone, n, n - 1))
        other = PROMPT[:500] + "Z" * 300
        alone, n, _ = ask(first, other)
        with start("--prefix-peer", first.url + "/") as third:
            more = PROMPT[:400] + "Y" * 100
            text, n, cached = ask(third, more, first)
            computed = third.metrics()["weir_prompt_tokens_total"]
            check("the beginning of one", cached in (400, 401) and computed == n - cached, cached, computed, n)
            check("its text is the computed one", ask(first, more)[0] == text)
            line = third.log(lambda l: l.get("prefix") == "fetched")
            check("the log says so", line and line["path"] == "/v1/completions", third.lines)
        given, got = first.metrics(), second.metrics()
        check("counted", given["weir_prefix_given_total"] == 3 and given["weir_prefix_given_bytes_total"] > got["weir_prefix_fetched_bytes_total"] > 0, given)


def test_longer_contexts_than_the_peers():
    with Server(WEIR, "-np", "2", "-c", "1024", "--prefix-key", KEY) as first, start("--prefix-peer", first.url) as second:
        ask(first)
        got = ask(second, PROMPT + "b" * 500, first)
        check("a prompt that is too long there has its beginning from there", got[1] > 1024 and got[2] in (900, 901), got)


def test_all_dialects():
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Hello"}]
    with start() as first, start("--prefix-peer", first.url) as second:
        for path, body in (("/v1/chat/completions", {"messages": messages}), ("/v1/messages", {"messages": messages[1:], "system": "m" + PROMPT}),
                           ("/v1/responses", {"input": messages[1:], "instructions": "r" + PROMPT}), ("/api/chat", {"messages": [{"role": "system", "content": "o" + PROMPT}] + messages[1:], "stream": False})):
            size = {"max_output_tokens": 16} if "responses" in path else {"options": {"num_predict": 4}} if "api" in path else {"max_tokens": 4}
            before = second.metrics()["weir_prompt_tokens_total"]
            check(f"{path} there", first.post(path, {**body, **size}).status == 200)
            check(f"{path} here", second.post(path, {**body, **size}, headers=hint(first)).status == 200)
            check(f"{path}: one token computed", second.metrics()["weir_prompt_tokens_total"] - before == 1, second.lines[-3:])
        check("all were fetched", ends(second, "fetched") == 4)


def test_salts_and_keys_are_apart():
    with start() as first, start("--prefix-peer", first.url) as second:
        text, n, _ = ask(first, cache_salt="a")
        check("not without the salt", ask(second, peer=first) == (text, n, 0))
        check("nor with another one", ask(second, peer=first, cache_salt="b") == (text, n, 0) and ends(second, "absent") == 2)
        check("with the same", ask(second, peer=first, cache_salt="a") == (text, n, n - 1) and ends(second, "fetched") == 1)
        open_text, n, _ = ask(first, PROMPT[::-1])
        check("nor what has none under a salt", ask(second, PROMPT[::-1], first, cache_salt="a") == (open_text, n, 0))
    with start("--api-key", "one", "--api-key", "two") as first, start("--prefix-peer", first.url, "--api-key", "one", "--api-key", "two") as second:
        text, n, _ = ask(first, key="one")
        check("of another key", ask(second, peer=first, key="two") == (text, n, 0))
        check("of the same", ask(second, peer=first, key="one") == (text, n, n - 1))
        tokens = list(PROMPT.encode())
        for key in (None, "one", KEY + "x", KEY[:-1]):
            reply = first.post(PATH, {"tokens": tokens}, key=key)
            check(f"the endpoint has a key of its own, not {key}", reply.status == 401 and reply.error["code"] == "invalid_prefix_key", reply.body)
        check("which is no client's", first.post("/v1/completions", {"prompt": "x"}, key=KEY).status == 401)


def mix(h):
    h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) % 2**64
    h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) % 2**64
    return h ^ h >> 33


def block_id(tokens):
    """The id of the last block, as events have it."""
    parent = 0
    for at in range(0, len(tokens), 16):
        data = struct.pack("<16i", *tokens[at:at + 16])
        h = parent ^ (len(data) * 0x9E3779B97F4A7C15) % 2**64
        for word in struct.unpack("<8Q", data):
            h = ((h ^ word) * 0xFF51AFD7ED558CCD) % 2**64
            h ^= h >> 32
        parent = mix(h) or 1
    return parent


def test_by_the_id_of_a_block():
    with start() as server:
        ask(server), ask(server, "s" + PROMPT, cache_salt="x")
        tokens = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        for n in (16, 160, 896):
            reply = server.get(f"{PATH}/{block_id(tokens[:n])}", key=KEY)
            check(f"a block and all before it: {n} tokens", reply.status == 200 and reply.body[64:64 + 4 * n] == struct.pack(f"<{n}i", *tokens[:n]), reply.status)
            check("their number is in the head", struct.unpack_from("<I", reply.body, 12)[0] == n)
        salted = server.post("/tokenize", {"content": "s" + PROMPT, "add_special": True}).json["tokens"]
        check("never of a salted prompt", server.get(f"{PATH}/{block_id(salted[:160])}", key=KEY).status == 404)
        check("nor without the key", server.get(f"{PATH}/{block_id(tokens[:16])}").status == 401)


def test_the_endpoint():
    with start() as server, Server(WEIR) as off:
        ask(server)
        tokens = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        reply = server.post(PATH, {"tokens": tokens}, key=KEY)
        check("a prefix", reply.status == 200 and reply.body.startswith(b"weirsnap") and reply.headers["content-type"] == "application/octet-stream", reply.headers)
        check("twice the same", server.post(PATH, {"tokens": tokens, "more_than": len(tokens) - 1}, key=KEY).body == reply.body)
        for body, status, field in (({}, 400, "tokens"), ({"tokens": "x"}, 400, "tokens"), ({"tokens": [1.5]}, 400, "tokens[0]"), ({"tokens": [-1]}, 400, "tokens"), ({"tokens": []}, 400, "tokens"),
                                    ({"tokens": [1] * 5000}, 404, None), ({"tokens": [1 << 30]}, 400, "tokens"), ({"tokens": [1], "more": 1}, 400, "more"), ({"tokens": [1], "more_than": -1}, 400, "more_than"),
                                    ({"tokens": [1], "salt": 5}, 400, "salt"), ({"tokens": [1], "salt": "x" * 5000}, 400, None), (b"{", 400, None), ({"tokens": [1, 2, 3]}, 404, None),
                                    ({"tokens": tokens, "more_than": len(tokens)}, 404, None), ({"tokens": tokens, "salt": "x"}, 404, None)):
            reply = server.post(PATH, body, key=KEY, headers=STRICT)
            check(f"refused: {str(body)[:80]}", reply.status == status and (field is None or (reply.error["param"] or "").startswith(field.split("[")[0])), reply.status, reply.body)
        check("no key", server.post(PATH, {"tokens": tokens}).status == 401)
        reply = off.post(PATH, {"tokens": tokens}, key=KEY)
        check("off by default", reply.status == 403 and "--prefix-key" in reply.error["message"], reply.body)
        check("no metrics then", not [name for name in off.metrics() if "prefix_f" in name])
        for name in ("x", "", "-1", "1x", "99999999999999999999999"):
            check(f"no block: {name!r}", server.get(f"{PATH}/{name}", key=KEY).status in (400, 404, 405))
        check("an unknown block", server.get(f"{PATH}/12345", key=KEY).error["code"] == "prefix_not_cached")
    for words, option in ((("--prefix-key", "a b"), "--prefix-key"), (("--prefix-key", "x" * 256), "--prefix-key"), (("--prefix-peer", "a:1"), "--prefix-key"), (("--prefix-key", "k", "--prefix-peer", "host"), "--prefix-peer"),
                          (("--prefix-key", "k", "--prefix-peer", "ftp://a:1"), "--prefix-peer"), (("--prefix-key", "k", "--prefix-peer", "http://u:p@a:1"), "--prefix-peer"), (("--prefix-key", "k", "--prefix-peer", "a:1/x"), "--prefix-peer")):
        done = subprocess.run([WEIR, "serve", "-m", "fake:", "--port", "0", *words], capture_output=True, text=True, env=environment(), timeout=PATIENCE)
        check(f"{words} is refused", done.returncode == 2 and option in done.stderr, done)


def computes(name, second, peer, end, word, text, prompt=PROMPT, **more):
    """The request is computed, and log and metrics say why."""
    before = ends(second, end)
    got = ask(second, prompt, peer, **more)
    check(f"{name}: computed", got[0] == text and got[2] == 0, got)
    check(f"{name}: counted as {end}", ends(second, end) == before + 1, second.lines[-3:])
    check(f"{name}: logged", second.log(lambda l: l.get("event") == "prefix" and word in l.get("message", "")), second.lines[-4:])


def test_peers_that_do_not_help():
    with start() as first, start(model="fake:seed=7") as other, Server(WEIR, "--prefix-key", "another", "-c", "2048") as stranger, Server(WEIR, "-c", "2048") as off:
        text = ask(first)[0]
        tokens = first.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]
        good = first.post(PATH, {"tokens": tokens[:-1]}, key=KEY).body
        flipped = bytearray(good)
        flipped[-100] ^= 1
        newer = bytearray(good)
        newer[8] += 1
        ask(other), ask(stranger), ask(off)
        closed = socket.create_server(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        lying = tokens[:-1]
        lying[3] ^= 1

        def dies(sock):
            sock.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(good)}\r\n\r\n".encode() + good[:len(good) // 2])

        def slow(sock):
            sock.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(good)}\r\n\r\n".encode())
            for i in range(len(good)):
                sock.sendall(good[i:i + 1])
                time.sleep(0.05)

        redirects = says(b"", status="302 Found", more=f"Location: {first.url}{PATH}\r\n")
        cases = [
            ("a peer that is not listed", first.url.replace("127.0.0.1", "localhost"), "refused", "--prefix-peer"),
            ("no address", "nonsense", "refused", "--prefix-peer"), ("another path", first.url + "/v1/prefixes/5", "refused", "--prefix-peer"),
            ("a file", "file:///etc/passwd", "refused", "--prefix-peer"),
            ("nobody", nobody, "failed", "connect"), ("another key", stranger.url, "refused", "--prefix-key"), ("no key at all", off.url, "refused", "--prefix-key"),
            ("another model", other.url, "refused", "another model"),
            ("nothing", Peer(says(b"")).url, "failed", "complete"), ("garbage", Peer(says(b"x" * 100000)).url, "failed", "not a cached prompt"),
            ("a damaged one", Peer(says(bytes(flipped))).url, "failed", "checksum"),
            ("one of another version", Peer(says(bytes(newer))).url, "refused", "version"), ("a cut one", Peer(says(good[:-1])).url, "failed", "complete"),
            ("a longer one", Peer(says(good + b"x")).url, "failed", "longer"), ("one that dies", Peer(dies).url, "failed", ""),
            ("a redirect", Peer(redirects).url, "failed", "status"), ("an error", Peer(says(b"{}", status="500 Internal Server Error")).url, "failed", "status"),
            ("no HTTP", Peer(lambda sock: sock.sendall(b"hello\n")).url, "failed", ""), ("late", Peer(silent).url, "late", "--prefix-timeout"), ("slow", Peer(slow).url, "late", "--prefix-timeout"),
            ("busy", Peer(says(b"{}", status="503 Service Unavailable")).url, "busy", "busy"),
            ("endless", Peer(lambda sock: [sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + good)] + [sock.sendall(bytes(65536)) for _ in range(10000)]).url, "failed", "longer"),
        ]
        # Only the peer that is to be late gets little time: on a slow machine the others would be late, too.
        for late, seconds in ((False, "30"), (True, "1")):
            some = [case for case in cases if (case[2] == "late") == late]
            peers = [word for _, url, _, word in some if "127.0.0.1" in url and word != "--prefix-peer" for word in ("--prefix-peer", url)]
            with start("--prefix-timeout", seconds, *peers, "--cache-sequences", "0") as second:
                for name, url, end, word in some:
                    computes(name, second, url, end, word, text)
        with start("--prefix-peer", first.url, "--max-prefix", "1K") as second:
            computes("too large", second, first.url, "refused", "allowed", text)
        with start("--max-prefix", "1K") as small, start("--prefix-peer", small.url) as second:
            ask(small)
            computes("too large there", second, small.url, "refused", "--max-prefix", text)
            check("and the answer says so", small.post(PATH, {"tokens": tokens}, key=KEY).status == 413)
        with start("--prefix-peer", first.url, "--cache-memory", "0") as second:
            computes("no room here", second, first.url, "failed", "room", text)


def test_peers_with_a_certificate():
    if shutil.which("openssl") is None:
        print("note: no openssl, so https is left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        ours, other = Authority(folder), Authority(folder, "other")

        def serve(names):
            cert, key = ours.certificate(names)
            return start("--tls-cert", cert, "--tls-key", key, kind="tls", cert=ours.file)

        with serve("IP:127.0.0.1") as first, serve("DNS:elsewhere.example") as elsewhere:
            text, n, _ = ask(first)
            ask(elsewhere)
            there, wrong = (f"https://127.0.0.1:{server.port}" for server in (first, elsewhere))
            peers = ["--prefix-peer", there, "--prefix-peer", wrong]

            def asker(**variables):
                nothing = {name: "" for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")}
                return start(*peers, env=environment(**{**nothing, **variables}))

            for variable, value in (("SSL_CERT_FILE", ours.file), ("CURL_CA_BUNDLE", ours.file), ("SSL_CERT_DIR", ours.folder)):
                with asker(**{variable: value}) as second:
                    check(f"fetched over https, with {variable}", ask(second, peer=there) == (text, n, n - 1) and ends(second, "fetched") == 1, second.lines[-3:])
            with asker(SSL_CERT_FILE=ours.file) as second:
                computes("a certificate for another name", second, wrong, "failed", "SSL_CERT_FILE", text)
            for name, variables in (("an authority that nobody knows", {}), ("another authority", {"SSL_CERT_FILE": other.file})):
                with asker(**variables) as second:
                    computes(name, second, there, "failed", "SSL_CERT_FILE", text)


def test_clients_that_leave_and_many_at_once():
    peer = Peer(silent)
    with start("--prefix-peer", peer.url, "--prefix-timeout", "30", "--drain", "1") as server:
        connection = server.connect()
        connection.request("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 4}, headers=hint(peer.url))
        while not peer.asked:
            time.sleep(0.01)
        head, body = peer.asked[0]
        check("what is asked", head.startswith(f"POST {PATH} ") and f"Authorization: Bearer {KEY}" in head and b'"tokens":[' in body, head)
        connection.close()
        check("the fetch ends with the client", peer.left.wait(PATIENCE))
        got = server.wait_for(lambda m: m["weir_http_live"] == 1)
        check("nothing was computed", got["weir_submitted_total"] == 0 and got["weir_http_left_total"] == 1, got)
        crowd = [server.connect() for _ in range(6)]
        for i, one in enumerate(crowd):
            one.request("POST", "/v1/completions", {"prompt": PROMPT + str(i), "max_tokens": 4}, headers=hint(peer.url))
        while len(peer.asked) < 3:
            time.sleep(0.01)
        check("others are served meanwhile", ask(server, "Hello there")[1] > 0)
        time.sleep(0.3)
        check("two fetches at once", len(peer.asked) == 3, len(peer.asked))
        check("a server that stops ends them", server.stop() == 0)


run_tests(globals())
