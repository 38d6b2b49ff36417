"""Routers at the sockets of weir serve's KV events that do not read, are too many, or send nonsense. The first test prints what they cost."""
# SPDX-License-Identifier: Apache-2.0
import os
import random
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, effort, run_tests  # noqa: E402
from program import WEIR  # noqa: E402
from serve import Server, need_server  # noqa: E402
from zmtp import Router, frame  # noqa: E402

MIB = 1 << 20
N_SILENT = 30
N_PEERS = 64  # SERVE_KV_PEERS
N_VOCAB = 1 << 20
scratch = tempfile.TemporaryDirectory()
PUB, REPLAY = f"{scratch.name}/pub", f"{scratch.name}/replay"


def start(n_ctx=65536):
    return Server(WEIR, "-np", "1", "-c", str(n_ctx), "--kv-events", f"ipc://{PUB}", "--kv-events-replay", f"ipc://{REPLAY}",
                  model=f"fake:n_vocab={N_VOCAB},n_ctx_train={n_ctx}")


def fill(server, n_bytes, n=60000):
    """Publishes so much, by prompts that share nothing; each evicts the one before. What is kept then."""
    dice = random.Random(n_bytes)
    before = kept = server.metrics()["weir_kv_events_kept_bytes"]
    while kept < before + n_bytes:
        reply = server.post("/v1/completions", {"prompt": [dice.randrange(70000, N_VOCAB) for _ in range(n)], "max_tokens": 1, "ignore_eos": True})
        assert reply.status == 200, reply.body
        kept = server.wait_for(lambda m: m["weir_kv_events_kept_bytes"] > kept)["weir_kv_events_kept_bytes"]
    return kept


def read_replay(number=0):
    router = Router(REPLAY)
    messages = router.replay(number)
    router.close()
    return messages


def silent(path=REPLAY, kind=b"DEALER"):
    router = Router(path, kind, room=4096)
    if path == REPLAY:
        router.ask()
    else:
        router.subscribe()
    return router


def test_silent_routers():
    need_server(WEIR)
    with start() as server:
        kept = fill(server, effort(32, 8) * MIB)
        before, routers = server.resident(), []
        for _ in range(N_SILENT):
            routers += [silent(), silent(PUB, b"SUB")]
        got = server.wait_for(lambda m: m.get("weir_kv_events_replays_running") == N_SILENT)
        messages = read_replay()
        check("a router that reads gets all", [number for number, _ in messages] == list(range(len(messages))) and sum(len(p) for _, p in messages) > 0.98 * kept)
        after = server.resident()
        print(f"kept for replays {kept / MIB:.0f} MiB; resident without routers {before / MIB:.0f} MiB, with {N_SILENT} that do not read their replay "
              f"and {N_SILENT} silent subscribers {after / MIB:.0f} MiB: {after / before:.2f}")
        check("resident memory: at most 1.3 times", after <= 1.3 * before, (before, after))
        check("all are there", got.get("weir_kv_events_replays_running") == N_SILENT and got['weir_kv_events_connections{socket="events"}'] == N_SILENT, got)
        check("what is kept is counted", got["weir_kv_events_kept_bytes"] >= kept, got)
        check("a connection takes a few kilobytes", got["weir_kv_events_connection_bytes"] <= 2 * N_SILENT * 4096, got)
        fill(server, 4 * MIB)
        got = server.metrics()
        check("also when more is published", got["weir_kv_events_connection_bytes"] <= 2 * N_SILENT * 4096, got)
        for router in routers:
            router.close()
        got = server.wait_for(lambda m: m["weir_kv_events_connection_bytes"] == 0)
        check("nothing is left when they leave", got["weir_kv_events_connection_bytes"] == 0 and got["weir_kv_events_replays_running"] == 0, got)


def test_too_many():
    with start(4096) as server:
        for path, kind, name in ((REPLAY, b"DEALER", "replay"), (PUB, b"SUB", "events")):
            label = f'weir_kv_events_connections{{socket="{name}"}}'
            idle = [Router(path, kind, greet=False) for _ in range(N_PEERS + 20)]
            got = server.wait_for(lambda m: m[label] == N_PEERS)
            check(f"{name}: no more than {N_PEERS} connections", got[label] == N_PEERS, got)
            for router in idle:
                router.close()
            got = server.wait_for(lambda m: m[label] == 0)
            check(f"{name}: none is left", got[label] == 0, got)
        check("there is room again", read_replay() != [])


def test_nonsense():
    def refused(what, data, path=REPLAY, kind=b"DEALER", greet=True):
        router = Router(path, kind, greet=greet, timeout=PATIENCE)
        try:
            router.sock.sendall(data)
        except OSError:
            pass
        check(f"closed: {what}", router.closed())
        router.close()

    with start(4096) as server:
        fill(server, 1, 100)
        refused("no greeting", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(64), greet=False)
        refused("an older version", b"\xff" + bytes(8) + b"\x7f\x01" + bytes(64), greet=False)
        refused("security", b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32), greet=False)
        refused("a message before READY", b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32) + frame(b"x"), greet=False)
        refused("a long frame", frame(bytes(65536)))
        refused("a frame without end", b"\x02" + b"\xff" * 8)
        refused("unknown flags", b"\x80\x00")
        refused("too many subscriptions", b"".join(frame(b"\x01" + bytes(200)) for _ in range(100)), PUB, b"SUB")
        got = server.wait_for(lambda m: m["weir_kv_events_dropped_total"] == 8)
        check("they are counted", got["weir_kv_events_dropped_total"] == 8, got)

        router = Router(REPLAY)
        router.sock.sendall(frame(b"x", more=True) * 1000 + frame(b"12345678"))
        router.sock.sendall(frame(b"") + frame(b"x") + frame(b"", more=True) + frame(b"1234567") + frame(b"\4PING\0\0abc", command=True))
        flags, body = router.read_frame()
        check("other messages are ignored, and PING is answered", flags == 4 and body == b"\4PONGabc", body)
        check("and a replay comes", len(router.replay()) >= 2)

        router.sock.sendall((frame(b"", more=True) + frame(bytes(8))) * 200)
        replays = 0
        while replays < 200:
            replays += router.read()[2] == b"\xff" * 8
        check("one replay after the other", len(router.replay(1)) == len(router.replay()) - 1)
        router.close()


def test_subscribers():
    with start(4096) as server:
        while not read_replay():  # the first message, that the cache is empty, goes to whoever is there
            time.sleep(0.01)
        some, other, left = Router(PUB, b"SUB"), Router(PUB, b"SUB"), Router(PUB, b"SUB")
        some.subscribe()
        other.subscribe(b"nothing")
        left.subscribe()
        left.sock.sendall(frame(b"\x00kv@"))
        for router in (some, other, left):
            router.sock.sendall(frame(b"\4PING\0\0", command=True))
            check("it has subscribed", router.read_frame() == (4, b"\4PONG"))
        begun = len(read_replay())
        fill(server, 1, 100)
        messages = dict(read_replay(begun))
        seen = {}
        while len(seen) < len(messages):
            parts = some.read()
            seen[int.from_bytes(parts[1], "big")] = parts[2]
            messages = dict(read_replay(begun))
        check("there were some", len(messages) > 0)
        check("a subscriber gets what a replay has", seen == messages, (seen, messages))
        for name, router in (("another topic", other), ("no topic any more", left)):
            router.sock.sendall(frame(b"\4PING\0\0", command=True))
            check(f"{name}: nothing", router.read_frame() == (4, b"\4PONG"))


run_tests(globals())
