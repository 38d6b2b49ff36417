"""weir serve --media-host '*': an image's URL reaches no address of the server's own machine, not even a public one, unless the operator
names that address. In a network of its own, whose loopback interface has public addresses."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from media import png  # noqa: E402
from network import SET_ADDRESS, enter  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT = "/v1/chat/completions"
FIRST, SECOND, PRIVATE, SIXTH = "1.2.3.4", "1.2.3.5", "10.77.0.1", "2606:4700:77::1"


def add_six(address):
    """OSError: the system has no IPv6."""
    with socket.socket(socket.AF_INET6) as s:
        fcntl.ioctl(s, SET_ADDRESS, struct.pack("16sIi", socket.inet_pton(socket.AF_INET6, address), 128, socket.if_nametoindex("lo")))


class Host:
    """Serves an image at every address of the machine; a path "/ADDRESS" leads to that address."""

    def __init__(self):
        self.n = 0
        try:
            self.socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError:
            self.socket = socket.create_server(("0.0.0.0", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            with self.socket.accept()[0] as sock:
                path = sock.recv(65536).split(b" ")[1].decode()
                self.n += 1
                if path == "/":
                    image = png()
                    sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(image) + image)
                else:
                    sock.sendall(f"HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: http://{path[1:]}:{self.port}/\r\n\r\n".encode())


def ask(server, url):
    return server.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}], "max_tokens": 2})


need_server(WEIR)
try:
    enter([FIRST, SECOND, PRIVATE])
except OSError as e:
    print(f"skipped: no network of its own: {e}")
    sys.exit(77)
try:
    add_six(SIXTH)
    six = [f"[{SIXTH}]"]
except OSError as e:
    print(f"without IPv6: {e}")
    six = []
host = Host()
words = ("--mmproj", "fake:sounds=0", "-c", "2048")
OWN = (FIRST, SECOND, "0x01020304", "16909060", "1.2.772", f"[::ffff:{FIRST}]", "[::ffff:102:304]", f"[64:ff9b::{FIRST}]", "[2002:102:304::1]", *six,
       PRIVATE, "127.0.0.1", "127.9.9.9", "0.0.0.0", "localhost", "[::1]", "[::]", "[fe80::1]", "224.0.0.1", "255.255.255.255", "[ff02::1]")
with Server(WEIR, *words, "--media-host", f"*:{host.port}") as server:
    for name in OWN:
        reply = ask(server, f"http://{name}:{host.port}/")
        check(f"{name}: not", reply.status == 400 and reply.error["code"] in ("unsupported_value", "invalid_value") and host.n == 0, reply.body, host.n)
    reply = ask(server, f"http://{FIRST}:{host.port}/")
    check("and why not", "this machine's" in reply.error["message"] and "--media-host" in reply.error["message"] and reply.error["param"].endswith("image_url.url"), reply.body)
with Server(WEIR, *words, "--media-host", f"*:{host.port}", "--media-host", f"{FIRST}:{host.port}") as server:
    reply = ask(server, f"http://{FIRST}:{host.port}/")
    check("an address that the operator names", reply.status == 200, reply.body)
    check("in another form, too", ask(server, f"http://0x01020304:{host.port}/").status == 200)
    n = host.n
    check("but no other one", ask(server, f"http://{SECOND}:{host.port}/").status == 400 and host.n == n)
    for name in OWN[1:]:
        if name not in ("0x01020304", "16909060", "1.2.772"):
            reply = ask(server, f"http://{FIRST}:{host.port}/{name}")
            check(f"nor by way of it: {name}", reply.status == 400, reply.body)
    check("which asks nobody else", host.n == n + len(OWN) - 4, host.n, n)
if six:
    with Server(WEIR, *words, "--media-host", f"{six[0]}:{host.port}") as server:
        check("an address of IPv6 that is named", ask(server, f"http://{six[0]}:{host.port}/").status == 200)
finish()
