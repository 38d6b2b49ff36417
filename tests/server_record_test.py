"""weir serve --record and weir record: what is recorded and what is not, lists, erased records, damage, and answers that are computed again;
on the fake model, whose text depends on every token of the prompt and on the seed."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import resource
import shutil
import socket
import stat
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402
from program import WEIR, lines_of, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

need_server(WEIR)
parent = tempfile.mkdtemp()
folder = os.path.join(parent, "records")


def record(*words, **more):
    return weir("record", *words, env=environment(**more))


def rows(*words):
    return lines_of(record("list", folder, "--json", *words))


def bytes_of():
    return b"".join(open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder)))


def segments():
    return sorted(name for name in os.listdir(folder) if name.endswith(".weirrec"))


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 12, **more}


# ---- Recorded

server = Server(WEIR, "-np", "4", "--temp", "0.9", "--record", folder, "--api-key", "key-of-one", "--api-key", "key-of-two", "--operator-key", "boss")
requests = [
    ("/v1/chat/completions", chat("no seed"), "key-of-one"),
    ("/v1/chat/completions", chat("a seed", seed=7, stream=True), "key-of-one"),
    ("/v1/chat/completions", chat("scores", logprobs=True, top_logprobs=2, n=3, seed=1, ignore_eos=True), "key-of-one"),
    ("/v1/chat/completions", chat("to be erased"), "key-of-one"),
    ("/v1/completions", {"prompt": ["the same", "the same"], "n": 2, "max_tokens": 8, "ignore_eos": True}, "key-of-two"),
    ("/v1/completions", {"prompt": ["the same", "the same"], "n": 2, "max_tokens": 8, "ignore_eos": True, "seed": 3}, "key-of-two"),
    ("/completion", {"prompt": "native", "n_predict": 6}, "key-of-two"),
    ("/v1/messages", chat("of Anthropic"), "key-of-two"),
    ("/v1/responses", {"input": "of responses", "max_output_tokens": 6}, "key-of-two"),
    ("/api/chat", {"messages": [{"role": "user", "content": "of Ollama"}], "options": {"num_predict": 6}}, "key-of-two"),
    ("/v1/chat/completions", chat("salted", cache_salt="salt-of-one"), "key-of-one"),
    ("/v1/responses", {"input": "hosted", "max_output_tokens": 6, "tools": [{"type": "mcp", "server_label": "x", "server_url": "http://secret-address", "authorization": "secret-token", "headers": {"a": "secret-header"}}]}, "key-of-one"),
    ("/v1/responses", {"max_output_tokens": 6, "tools": [{"type": "namespace", "name": "n", "description": "of-n", "tools": [{"type": "mcp", "server_label": "in-n", "authorization": "secret-within"}]}],
                       "input": [{"role": "user", "content": "hosted within"}, {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search", "user_location": {"city": "secret-city"}}]}]}, "key-of-one"),
]
ids = []
for path, body, key in requests:
    reply = server.post(path, body, key=key)
    check(f"{path} {str(body)[:40]}: 200", reply.status == 200, reply.status, reply.body)
    ids.append(reply.headers["x-request-id"])
    if path == "/v1/completions":  # with a seed, both prompts use the same ones; without one, all four differ
        texts = {choice["text"] for choice in reply.json["choices"]}
        check("as many texts as seeds", len(texts) == (2 if "seed" in body else 4), reply.body)
for path, body in (("/v1/chat/completions", chat("opted-out-chat")), ("/v1/completions", {"prompt": "opted-out-text"}), ("/v1/messages", chat("opted-out-claude")), ("/v1/responses", {"input": "opted-out-responses"}),
                   ("/api/chat", {"messages": [{"role": "user", "content": "opted-out-ollama"}]}), ("/api/generate", {"prompt": "opted-out-ollama"}), ("/completion", {"prompt": "opted-out-native"})):
    reply = server.post(path, {**body, "store": False}, key="key-of-one")
    check(f"{path} with store: false: 200", reply.status == 200, reply.status, reply.body)
refused = server.post("/v1/chat/completions", {"messages": "refused-text"}, key="key-of-one")
check("refused", refused.status == 400, refused.status)
named = server.post("/v1/chat/completions", chat("named"), key="key-of-one", headers=("X-Request-Id: a-name",))
check("named", named.status == 200, named.status)
metrics = server.get("/metrics", key="boss").body
check("the metrics say that nothing was dropped", b"\nweir_records_dropped_total 0\n" in metrics and b"\nweir_records_total " in metrics, metrics[-500:])
busy = weir("serve", "--record", folder, "--port", "0")
check("a folder has one server", busy.returncode != 0 and "another server records" in busy.stderr, busy.returncode, busy.stderr)
server.stop()

check("modes", stat.S_IMODE(os.stat(folder).st_mode) == 0o700 and all(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600 for name in os.listdir(folder)))
listed = rows()
check("a record for each request", [row["id"] for row in listed[:len(ids)]] == ids and len(listed) == len(ids) + 1, listed)
check("its path, its end and its tokens", all(row["path"] == r[0] and (row["end"] == "end" or row["end"] == "length" and row["tokens"] > 0) for row, r in zip(listed, requests)), listed)
check("the id that the client gave", listed[-1]["request_id"] == "a-name", listed[-1])
everything = bytes_of()
for secret in ("key-of-one", "key-of-two", "boss", "salt-of-one", "secret-token", "secret-header", "secret-address", "secret-within", "secret-city", "opted-out", "refused-text", "Authorization", "Bearer"):
    check(f"{secret} is in no file", secret.encode() not in everything)
check("texts are", all(text in everything for text in (b"of Anthropic", b"salted", b"of-n", b"in-n", b"web_search")))
shown = json.loads(record("show", folder, ids[1], "--json").stdout)
check("shown with its body and its seed", shown["body"] == requests[1][1] and shown["request"]["seed"] == 7 and len(shown["answer"]["choices"][0]["tokens"]) == listed[1]["tokens"], shown)
check("found by the id that the client gave", json.loads(record("show", folder, "a-name", "--json").stdout)["id"] == listed[-1]["id"])
drawn = json.loads(record("show", folder, ids[0], "--json").stdout)["request"]
check("the seed that was drawn", drawn["drawn"] is True and 0 <= drawn["seed"] < 2**32 - 1, drawn)

# ---- Computed again

done = record("run", folder)
check("all agree", done.returncode == 0 and f"{len(listed)} of {len(listed)} records agree" in done.stdout, done.returncode, done.stdout, done.stderr)
elsewhere = record("run", folder, WEIR_TOP_K="1")
check("the environment does not change options that the server left as they are", elsewhere.returncode == 0, elsewhere.stdout, elsewhere.stderr)
one = record("run", folder, ids[0], "a-name", "--json")
check("those that are named", one.returncode == 0 and [line.get("id") for line in lines_of(one)] == [ids[0], listed[-1]["id"], None], one.stdout, one.stderr)
other = record("run", folder, ids[2], "--seed", "5", "--temp", "0.1", "--json")
first = json.loads(other.stdout.splitlines()[0]) if other.stdout else {}
check("another sampler: the first token that differs, with its logprobs", other.returncode == 1 and first["result"] == "differs" and first["first"]["recorded"] != first["first"]["now"] and first["first"]["recorded_logprob"] is not None
      and first["first"]["now_logprob"] is not None, other.stdout, other.stderr)
missing = record("run", folder, "0" * 32)
check("an unknown id", missing.returncode == 2 and "no record with the id" in missing.stderr, missing.returncode, missing.stderr)

# A token that another answer has: the checksums are right, and the comparison finds it.
whole = open(os.path.join(folder, segments()[0]), "rb").read()


def damaged(change, *words):
    """The folder's first segment with other bytes; weir record run FOLDER."""
    with open(os.path.join(folder, segments()[0]), "wb") as file:
        file.write(change)
    result = record("run", folder, *words)
    with open(os.path.join(folder, segments()[0]), "wb") as file:
        file.write(whole)
    return result


at = whole.index(b'"tokens":[') + 10
flipped = damaged(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
check("a byte that has changed is found", flipped.returncode == 1 and "does not have its checksum" in flipped.stderr and f"{len(listed) - 1} of {len(listed)} records agree" in flipped.stdout, flipped.stdout, flipped.stderr)
cut = damaged(whole[:-100])
check("an answer that is cut off", cut.returncode == 1 and "ends within" in cut.stderr and "has no answer" in cut.stdout, cut.stdout, cut.stderr)
alone = damaged(whole[:whole.index(b"WRFM", whole.index(b"WRFM") + 4)], "-m", os.path.join(parent, "absent.gguf"))
check("no model is loaded for a record without an answer", alone.returncode == 1 and "has no answer" in alone.stdout and "0 of 1 records agree, 1 were not compared" in alone.stdout, alone.stdout, alone.stderr)
old = damaged(whole[:8] + b"\x63" + whole[9:])
check("another version", old.returncode == 1 and "another version of weir" in old.stderr, old.stdout, old.stderr)
empty = damaged(b"")
check("no bytes", empty.returncode == 1 and "has no records" in empty.stderr, empty.stdout, empty.stderr)
file = os.path.join(parent, "file")
open(file, "w").close()
for words in (("list", file), ("list", os.path.join(parent, "absent")), ("run", file)):
    nothing = record(*words)
    check(f"{words[0]} {os.path.basename(words[1])}: an error", nothing.returncode == 1 and words[1] in nothing.stderr, nothing.returncode, nothing.stderr)
for words in ((), ("list",), ("shout", folder), ("show", folder), ("erase", folder)):
    wrong = record(*words)
    check(f"weir record {' '.join(words)[:10]}: usage", wrong.returncode == 2, wrong.returncode, wrong.stderr)
for words in (("--record", file), ("--record", os.path.join(parent, "a", "b")), ("--record", folder, "--record-days", "0"), ("--record", folder, "--record-size", "1K")):
    wrong = weir("serve", "--port", "0", *words)
    check(f"weir serve {' '.join(words)[-20:]}: refused", wrong.returncode != 0 and "--record" in wrong.stderr, wrong.returncode, wrong.stderr)

# ---- Answers that were cut off

leaving = os.path.join(parent, "leaving")
server = Server(WEIR, "-np", "1", "--record", leaving, model="fake:tick_us=50000")
left, queued = server.connect(), server.connect()
left.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "left"}], "stream": True})
left.head()
events = left.events()
for _ in range(8):
    next(events)
queued.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "queued"}], "stream": True})
server.wait_for(lambda m: m["weir_queue_depth"] == 1)
queued.close()
server.wait_for(lambda m: m["weir_queue_depth"] == 0)
left.close()
check("both were left", server.is_idle())
server.stop()
cut_off = lines_of(record("list", leaving, "--json"))
check("one with tokens, one without", [row["tokens"] > 1 for row in cut_off] == [True, False] and cut_off[1]["tokens"] == 0, cut_off)
done = record("run", leaving, "-m", "fake:", "--json")
again = lines_of(done)
check("the tokens that it had agree, and no token is not compared", done.returncode == 1 and [line.get("result") for line in again] == ["agrees", "skipped", None] and "before its first token" in again[1]["why"], done.stdout, done.stderr)
shorter = record("run", leaving, cut_off[0]["id"], "-m", "fake:", "-n", "1", "--json")
first = json.loads(shorter.stdout.splitlines()[0]) if shorter.stdout else {}
check("a new answer that ends before them differs", shorter.returncode == 1 and first["result"] == "differs" and (first["first"]["token"], first["first"]["now"]) == (1, -1), shorter.stdout, shorter.stderr)
broken = record("run", folder, ids[1], "-m", "fake:fail_pass=5", "--json")
first = json.loads(broken.stdout.splitlines()[0]) if broken.stdout else {}
check("a new answer that is cut off is not compared", broken.returncode == 1 and first["result"] == "skipped" and "was cut off now" in first["why"], broken.stdout, broken.stderr)

# ---- A recording from elsewhere

M64 = 2**64 - 1


def hash_of(seed, data):
    """weir__hash (src/base/hash.h)."""
    h = seed ^ len(data) * 0x9E3779B97F4A7C15 & M64
    for i in range(0, len(data), 8):
        h = (h ^ int.from_bytes(data[i:i + 8], "little")) * 0xFF51AFD7ED558CCD & M64
        h ^= h >> 32
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & M64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return h ^ h >> 33


def with_settings(*words):
    """The first record's segment, as if the server had had these options."""
    n_meta, n_body = (int.from_bytes(whole[at:at + 8], "little") for at in (24 + 8, 24 + 16))
    meta, body, rest = whole[104:104 + n_meta], whole[104 + n_meta:104 + n_meta + n_body], whole[104 + n_meta + n_body:]
    meta = json.dumps({**json.loads(meta), "settings": list(words)}).encode()
    word = int.from_bytes(whole[24:28], "little")
    head = whole[24:32] + len(meta).to_bytes(8, "little") + whole[40:88] + hash_of(hash_of(word, meta), body).to_bytes(8, "little")
    return whole[:24] + head + hash_of(word, head).to_bytes(8, "little") + meta + body + rest[:rest.index(b"WRFM", 4)]


same = damaged(with_settings("--model", "fake:", "--temp", "0.9"))
check("other options, the same answer", same.returncode == 0 and "1 of 1 records agree" in same.stdout, same.stdout, same.stderr)
with socket.create_server(("127.0.0.1", 0)) as hub:
    hub.setblocking(False)
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{hub.getsockname()[1]}"
    foreign = damaged(with_settings("--model", "hf:someone/model:Q8_0"))
    try:
        asked = bool(hub.accept())
    except BlockingIOError:
        asked = False
    del os.environ["HF_ENDPOINT"]
check("a recorded name downloads nothing", foreign.returncode != 0 and not asked, asked, foreign.stdout, foreign.stderr)

# ---- Options that are no UTF-8, which JSON cannot have

odd = os.path.join(parent, "odd")
server = Server(WEIR, "--drop-line", "\udcff", "--drop-line", "a line", "--record", odd)
check("answered", server.post("/v1/chat/completions", chat("odd")).status == 200)
server.stop()
[row] = lines_of(record("list", odd, "--json"))
words = json.loads(record("show", odd, row["id"], "--json").stdout)["request"]["settings"]
check("a value is left out with its option", [words[i:i + 2] for i, word in enumerate(words) if word == "--drop-line"] == [["--drop-line", "a line"]], words)
wrong = weir("serve", "-m", "/\udcff.gguf", "--port", "0", "--record", odd)
check("a model with such a path is not recorded", wrong.returncode == 2 and "--record" in wrong.stderr and "UTF-8" in wrong.stderr, wrong.returncode, wrong.stderr)

# ---- Erased


def erased_with(change, *names):
    """Erases in the folder with other bytes of its first segment; the result, and the bytes afterwards."""
    with open(os.path.join(folder, segments()[0]), "wb") as file:
        file.write(change)
    result, after = record("erase", folder, *names), bytes_of()
    with open(os.path.join(folder, segments()[0]), "wb") as file:
        file.write(whole)
    return result, after


def flip(at):
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]


text = whole.index(b"to be erased")
head = whole.rindex(b"WRFM", 0, text)
result, after = erased_with(flip(text), ids[3])
check("a record whose text is damaged is erased", result.returncode == 0 and "1 record was erased" in result.stderr and b"be erased" not in after, result.returncode, result.stderr)
result, after = erased_with(flip(head + 40), ids[3])
check("one whose head is damaged may be left: its answer is erased, and the place is named", result.returncode == 1 and "1 record was erased" in result.stderr and "were not erased" in result.stderr and b"to be erased" in after,
      result.returncode, result.stderr)
unknown = record("erase", folder, "0" * 32)
check("an unknown id is not erased", unknown.returncode == 2 and "no record with the id" in unknown.stderr and bytes_of().count(whole) == 1, unknown.returncode, unknown.stderr)
erased = record("erase", folder, ids[3])
check("one erased", erased.returncode == 0 and "1 record was erased" in erased.stderr and len(rows()) == len(listed) - 1, erased.stderr)
check("a key's", record("erase", folder, WEIR_API_KEY="key-of-two").returncode == 0)
left = rows()
check("the other key's are there", {row["id"] for row in left} == {i for i, r in zip(ids, requests) if r[2] == "key-of-one"} - {ids[3]} | {listed[-1]["id"]}, left)
check("nothing of them is left in the bytes", b"of Anthropic" not in bytes_of() and b"the same" not in bytes_of() and b"no seed" in bytes_of())
check("a key that asked nothing", "0 records were erased" in record("erase", folder, WEIR_API_KEY="nobody").stderr)
check("the rest agrees", record("run", folder).returncode == 0)

# ---- A second start adds to it, and a full disk ends no stream

server = Server(WEIR, "--record", folder)
check("a second start", server.post("/v1/chat/completions", chat("again")).status == 200)
server.stop()
check("has a segment of its own", len(segments()) == 2 and len(rows()) == len(left) + 1, segments())
server = Server(WEIR, "--record", os.path.join(parent, "full"), limits=[(resource.RLIMIT_FSIZE, 300)])
reply = server.post("/v1/chat/completions", chat("full", stream=True))
check("a full disk: the stream goes on", reply.status == 200 and b"[DONE]" in reply.body, reply.status, reply.body)
check("and the log says what is missing", server.log(lambda line: line.get("event") == "record" and "not written to" in line["message"]), server.lines)
server.stop()
shutil.rmtree(parent)
finish()
