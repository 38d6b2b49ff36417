"""weir serve, on the fake model: no address but loopback has more than half of the connections. In a network of its own."""
# SPDX-License-Identifier: Apache-2.0
import os
import resource
import select
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check  # noqa: E402
from network import enter  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SERVER, GREEDY, MODEST = "10.77.0.1", "10.77.0.2", "10.77.0.3"
FILES = 400
MOST = FILES - 80  # without what is for files and probes
GET = b"GET /slots HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n"


def connect(server, address):
    s = socket.create_connection((SERVER, server.port), 60, (address, 0))
    return s


def is_open(s):
    return not select.select([s], [], [], 0)[0]


def n_open(sockets):
    return sum(is_open(s) for s in sockets)


def settled(sockets, n):
    """How many are open, as soon as it is n."""
    until = time.monotonic() + PATIENCE
    while n_open(sockets) != n and time.monotonic() < until:
        time.sleep(0.02)
    return n_open(sockets)


def answered(s):
    s.sendall(GET)
    data = b""
    while b"\r\n\r\n" not in data:
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    return data.startswith(b"HTTP/1.1 200")


@part
def shares():
    server = Server(WEIR, "--host", "0.0.0.0", "--head-timeout", "600", "--no-log", limits=[(resource.RLIMIT_NOFILE, FILES)])
    crowd = [connect(server, GREEDY) for _ in range(MOST)]
    n = settled(crowd, MOST // 2)
    check("one address has half of all connections at most", n == MOST // 2, n, MOST)
    check("and those are the last that it made", n_open(crowd[:MOST // 2]) == 0 and n_open(crowd[MOST // 2:]) == MOST // 2)
    others = [connect(server, MODEST) for _ in range(20)]
    check("another one has room", all(answered(s) for s in others) and n_open(others) == 20)
    check("at nobody's cost", n_open(crowd) == MOST // 2, n_open(crowd))
    last = connect(server, GREEDY)
    check("the first one's next takes a place of its own", answered(last) and settled(crowd, MOST // 2 - 1) == MOST // 2 - 1 and n_open(others) == 20)
    for s in crowd + others + [last]:
        s.close()
    end(server)


@part
def proxies():
    """Loopback is where a proxy comes from, which speaks for many."""
    server = Server(WEIR, "--head-timeout", "600", "--no-log", limits=[(resource.RLIMIT_NOFILE, FILES)])
    crowd = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(MOST - 10)]
    check("it has all that there are", answered(crowd[-1]) and answered(crowd[0]) and n_open(crowd) == MOST - 10, n_open(crowd))
    for s in crowd:
        s.close()
    end(server)


need_server(WEIR)
try:
    enter([SERVER, GREEDY, MODEST])
except OSError as e:
    print(f"skipped: this system lets no process have a network of its own: {e}")
    sys.exit(77)
run_parts()
