"""The files of the page as weir serve gives them: in which coding, to whom not again, and how much it takes until one can write a message.
Bytes and requests are counted; no time is."""
# SPDX-License-Identifier: Apache-2.0
import gzip
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check  # noqa: E402
from parts import part, run_parts  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
WEB = os.path.join(os.environ["WEIR_SOURCE_DIR"], "server", "page", "web")
MOST_BYTES, MOST_REQUESTS = 48000, 22  # until one can write a message: with those of 2026-11-29 that takes 9.7 s at 50 kbit/s (docs/adr/0119)
STATIC = re.compile(r'^(?:import|export)\b[^"]*?from "\./([\w/.-]+)";', re.M)
LAZY = re.compile(r'import\("\./([\w/.-]+)"\)')


def read(name):
    with open(os.path.join(WEB, name), "rb") as f:
        return f.read()


def served(name):
    """The file as it is given: of scripts, without lines that are comments, and without indentation."""
    if not name.endswith(".js"):
        return read(name)
    lines = [line.lstrip(b" ") for line in read(name).split(b"\n")]
    return b"\n".join(line for line in lines if not line.startswith(b"//"))


def path_of(name):
    return "/" if name == "index.html" else "/" + name


class Counted(Connection):
    """A connection that knows how many bytes came."""
    n_received = 0

    def more(self):
        before = len(self.buffer)
        came = super().more()
        self.n_received += len(self.buffer) - before
        return came


def fetch(server, path, *headers, method="GET"):
    """A reply, and how many bytes it took."""
    connection = Counted(server)
    connection.request(method, path, headers=headers)
    reply = connection.reply(method == "HEAD")
    connection.close()
    return reply, connection.n_received


def modules(name, found):
    """The module and those that it imports before it runs."""
    if name not in found and not name.startswith("lib/"):
        found.append(name)
        for other in STATIC.findall(read(name).decode()):
            modules(other, found)
    return found


@part
def codings():
    with Server(WEIR) as server:
        for name in sorted(os.listdir(WEB)):
            plain, _ = fetch(server, path_of(name))
            packed, _ = fetch(server, path_of(name), "Accept-Encoding: gzip, deflate, br")
            source = served(name)
            check(f"{name}: as it is for who names no coding", plain.body == source and "content-encoding" not in plain.headers, plain.headers)
            check(f"{name}: with gzip for who takes it", packed.headers.get("content-encoding") == "gzip" and gzip.decompress(packed.body) == source
                  and (len(packed.body) < len(source)), packed.headers)
            same = [h for h in plain.headers if h not in ("date", "x-request-id", "content-length", "etag")]
            check(f"{name}: both say that it depends", all(r.headers.get("vary") == "Accept-Encoding" for r in (plain, packed)), plain.headers, packed.headers)
            check(f"{name}: both have the same policy and type", all(plain.headers[h] == packed.headers.get(h) for h in same)
                  and "content-security-policy" in same, plain.headers, packed.headers)
        for given, packs in (("gzip", True), ("GZIP", True), ("br;q=1, gzip;q=0.001", True), ("*", True), ("identity, *;q=0.5", True), ("deflate,\tgzip ; q=0.5", True),
                             ("", False), ("br", False), ("gzip;q=0", False), ("gzip; q=0.000, *", False), ("*;q=0", False), ("gzi, gzipp, x-gzi", False), (",,;,", False),
                             ("identity", False), ("gzip;q=0 , br", False)):
            reply, _ = fetch(server, "/app.js", "Accept-Encoding: " + given)
            check(f"Accept-Encoding: {given!r}", (reply.headers.get("content-encoding") == "gzip") == packs
                  and (gzip.decompress(reply.body) if packs else reply.body) == served("app.js"), reply.headers)
        twice, _ = fetch(server, "/app.js", "Accept-Encoding: br", "Accept-Encoding: gzip")
        check("a list in two fields: any of both forms", twice.status == 200 and "content-encoding" not in twice.headers, twice.headers)
        head, _ = fetch(server, "/app.js", "Accept-Encoding: gzip", method="HEAD")
        get, _ = fetch(server, "/app.js", "Accept-Encoding: gzip")
        check("HEAD tells of the same", head.body == b"" and head.headers["content-length"] == str(len(get.body)) and head.headers.get("etag") == get.headers.get("etag"), head.headers)
        health, _ = fetch(server, "/health", "Accept-Encoding: gzip")
        check("other answers stay as they are", "content-encoding" not in health.headers and health.json["status"], health.headers)


@part
def tags():
    """Who has a file gets it no second time."""
    with Server(WEIR) as server:
        plain, _ = fetch(server, "/chat.js")
        packed, _ = fetch(server, "/chat.js", "Accept-Encoding: gzip")
        tag, other = str(plain.headers.get("etag")), str(packed.headers.get("etag"))
        check("each form has a tag of its own", "\"" in tag and "\"" in other and tag != other, tag, other)
        check("files have tags of their own", fetch(server, "/app.js")[0].headers.get("etag") != tag)
        for given, coding, status in ((tag, "br", 304), (other, "gzip", 304), ("W/" + tag, "br", 304), (f'"x", {other}', "gzip", 304), ("*", "gzip", 304),
                                      (other, "br", 200), (tag, "gzip", 200), ('"x"', "gzip", 200), ("", "gzip", 200), (str(tag)[1:-1], "br", 200), ('"' * 2000, "gzip", 200)):
            reply, _ = fetch(server, "/chat.js", "Accept-Encoding: " + coding, "If-None-Match: " + given)
            check(f"If-None-Match: {given[:40]} with {coding}: {status}", reply.status == status and (reply.body == b"") == (status == 304), reply.status, reply.headers)
            if status == 304:
                check("… which has the tag and the policy, and no length", reply.headers.get("etag") in (tag, other) and reply.headers.get("vary") == "Accept-Encoding"
                      and "content-security-policy" in reply.headers and "content-length" not in reply.headers, reply.headers)
        connection = Connection(server)
        for _ in range(3):
            connection.request("GET", "/chat.js", headers=("If-None-Match: " + tag,))
            check("the connection goes on", connection.reply().status == 304)
        connection.close()


@part
def until_it_works():
    """What a browser asks for before the message box works: the page, its style, and the modules that app.js imports before it runs."""
    page = read("index.html").decode()
    wanted = modules("app.js", [])
    named = re.findall(r'<link rel="modulepreload" href="([\w/.-]+)">', page)
    check("the page names at once all modules that it needs", sorted(named + ["app.js"]) == sorted(wanted), set(named) ^ set(wanted))
    check("no text of a script has a line's end in it", all(re.sub(rb"`\+?/g|\"`\"", b"", line).count(b"`") % 2 == 0 for m in os.listdir(WEB) if m.endswith(".js") for line in read(m).split(b"\n")))
    check("no library is among them", not [m for m in wanted if m.startswith("lib/") or m in ("markdown.js", "code.js", "formula.js")], wanted)
    lazy = [m for name in os.listdir(WEB) if name.endswith(".js") for m in LAZY.findall(read(name).decode())]
    check("what is loaded later is there", lazy and all(m.startswith("lib/") or os.path.exists(os.path.join(WEB, m)) for m in lazy), lazy)
    check("every module is loaded now or later", all(m in wanted or any(m in modules(late, []) for late in lazy if not late.startswith("lib/"))
                                                     for m in os.listdir(WEB) if m.endswith(".js")), wanted, lazy)
    with Server(WEIR) as server:
        paths = ["/", "/style.css", "/icon.svg", "/v1/models", *("/" + m for m in wanted)]
        total = sum(fetch(server, path, "Accept-Encoding: gzip, deflate, br, zstd")[1] for path in paths)
        check(f"{total} bytes with their heads: at most {MOST_BYTES}", total <= MOST_BYTES, total)
        check(f"{len(paths)} requests: at most {MOST_REQUESTS}", len(paths) <= MOST_REQUESTS, len(paths))


need_server(WEIR)
run_parts()
