"""Cached prompts in a folder, and why a prompt was not cached, from outside: weir run, weir stream and weir serve on the fake model."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish  # noqa: E402
from serve import Server, environment  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
MODEL = "fake:n_ctx_train=4096"
CHAT = "/v1/chat/completions"
scratch = tempfile.TemporaryDirectory()
folder = os.path.join(scratch.name, "kept")
PROMPT = "A prompt that is long enough to be worth a file, and asked again"


def weir(*words, stdin=""):
    return subprocess.run([WEIR, *words], input=stdin, capture_output=True, text=True, env=environment(), timeout=PATIENCE)


def run(*words):
    done = weir("run", "-m", MODEL, "-p", PROMPT, "-n", "4", "--temp", "0", "--json", *words)
    return json.loads(done.stdout) if done.returncode == 0 else done


# ---- weir run

cold = run("--cache-dir", folder)
check("the first time all is computed", cold["usage"]["cached_tokens"] == 0, cold)
check("the folder is for its owner alone", stat.S_IMODE(os.stat(folder).st_mode) == 0o700 and
      all(stat.S_IMODE(os.stat(os.path.join(folder, f)).st_mode) == 0o600 for f in os.listdir(folder)) and len(os.listdir(folder)) == 1,
      os.listdir(folder))
again = run("--cache-dir", folder, "--explain-cache")
check("another process computes the last token alone", again["usage"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1, again)
check("the text is the same", again["text"] == cold["text"] and again["tokens"] == cold["tokens"])
check("there is nothing to explain", again["cache"]["reason"] == "none", again["cache"])
check("nothing is written twice", len(os.listdir(folder)) == 1, os.listdir(folder))
os.chmod(folder, 0o755)
done = run("--cache-dir", folder)
check("a folder that others may read is refused", done.returncode != 0 and "--cache-dir" in done.stderr and "chmod 700" in done.stderr, done.stderr)
os.chmod(folder, 0o700)
for name in os.listdir(folder):
    with open(os.path.join(folder, name), "r+b") as file:
        file.seek(70)
        file.write(b"damaged")
broken = weir("run", "-m", MODEL, "-p", PROMPT, "-n", "4", "--temp", "0", "--json", "--cache-dir", folder)
check("a damaged file is ignored, and said so", broken.returncode == 0 and json.loads(broken.stdout)["usage"]["cached_tokens"] == 0 and
      "is ignored" in broken.stderr and json.loads(broken.stdout)["text"] == cold["text"], broken.stderr)
check("no such size", weir("run", "-m", MODEL, "-p", "x", "--cache-disk", "much").returncode == 2)

# ---- weir stream

two = {"model": MODEL, "max_tokens": 2, "temp": 0,
       "requests": [{"messages": [{"role": "system", "content": f"Be brief. It is 10:1{i} now."}, {"role": "user", "content": "What is a weir?"}]}
                    for i in range(2)]}
path = os.path.join(scratch.name, "two.json")
with open(path, "w", encoding="utf-8") as file:
    json.dump(two, file)
lines = [json.loads(line) for line in weir("stream", path, "--slots", "1", "--json", "--explain-cache").stdout.splitlines()]
told = {line["request"]: line["cache"] for line in lines if "cache" in line}
check("a cold one", told[0]["reason"] == "cold", told)
check("one that diverged", told[1]["reason"] == "diverged" and told[1]["message"] == 0 and
      told[1]["role"] == "system" and told[1]["in_message"] and "10:11" in told[1]["prompt"] and "10:10" in told[1]["cached"], told)



def reasons(kept, *words):
    done = weir("stream", path, "--slots", "1", "--json", "--explain-cache", "--cache-dir", os.path.join(scratch.name, kept), *words)
    return [json.loads(line)["cache"] for line in done.stdout.splitlines() if '"cache"' in line]


first, second = reasons("open"), reasons("open")
check("files may be others': no words of them", first[1]["reason"] == "diverged" and "10:11" in first[1]["prompt"] and "cached" not in first[1] and "line" not in first[1], first)
check("but another process finds them", [told["reason"] for told in second] == ["none", "none"], second)
check("under a salt they have words", "10:10" in reasons("salted", "--cache-salt", "3f1c")[1]["cached"])
text = weir("run", "-m", MODEL, "-p", PROMPT, "-n", "2", "--explain-cache").stderr
check("a line for people", "cache: no cached text has the same beginning" in text, text)

# ---- weir serve

def serve():
    kept = os.path.join(scratch.name, "served")
    ask = {"messages": [{"role": "system", "content": "Today is 2026-11-21. " + PROMPT}, {"role": "user", "content": "hello"}],
           "max_tokens": 4, "temperature": 0, "cache_salt": "3f1c"}

    def metrics(server):
        return dict(line.split() for line in server.get("/metrics").body.decode().splitlines() if line and line[0] != "#" and "{" not in line)

    def details(reply):
        return reply.json["usage"]["prompt_tokens_details"]

    server = Server(WEIR, "--cache-dir", kept, model=MODEL)
    first = server.post(CHAT, ask)
    check("no miss to tell of a cold prompt", details(first) == {"cached_tokens": 0}, first.body)
    later = json.loads(json.dumps(ask).replace("11-21", "11-22"))
    miss = details(server.post(CHAT, later)).get("miss", {})
    check("what diverged, and where", miss.get("reason") == "diverged" and miss.get("message") == 0 and
          miss.get("role") == "system" and "11-22" in miss.get("prompt", "") and "11-21" in miss.get("cached", "") and
          0 < miss.get("matched_tokens", 0) < 60, miss)
    line = server.log(lambda e: e["event"] == "request" and "miss" in str(e))
    check("the log tells it without a text", line is not None and line["choices"][0]["miss"] == {k: v for k, v in miss.items() if k not in ("prompt", "cached", "line")} and "line" in miss,
          line)
    while int(metrics(server)["weir_cache_files"]) < 2:  # while it runs on
        time.sleep(0.05)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    check("what is left behind is whole", all(f.endswith(".weirkv") for f in os.listdir(kept)), os.listdir(kept))

    server = Server(WEIR, "--cache-dir", kept, model=MODEL)
    check("files are found", int(metrics(server)["weir_cache_files"]) >= 1)
    second = server.post(CHAT, ask)
    check("a prompt survives a kill", details(second)["cached_tokens"] == second.json["usage"]["prompt_tokens"] - 1 and
          int(metrics(server)["weir_cache_restored_total"]) == 1, second.body)
    check("with the same answer", second.json["choices"][0]["message"] == first.json["choices"][0]["message"])
    check("it ends well", server.stop() == 0)


def faults():
    """Files of a machine whose clock differs, and a folder that goes while servers run."""
    kept = os.path.join(scratch.name, "faulty")

    def ask(server, prompt):
        reply = server.post("/v1/completions", {"prompt": prompt + PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True})
        assert reply.status == 200, reply.body
        return reply.json["choices"][0]["text"], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]

    with Server(WEIR, model=MODEL) as alone:
        texts = {prompt: ask(alone, prompt)[0] for prompt in "abcd"}
    with Server(WEIR, "--cache-dir", kept, model=MODEL) as first:
        for prompt in "ab":
            ask(first, prompt)
        first.wait_for(lambda m: m["weir_cache_files"] >= 2)
        days = 86400
        for name, when in zip(sorted(os.listdir(kept)), (0, time.time() + 365 * days)):
            os.utime(os.path.join(kept, name), (when, when))
        with Server(WEIR, "--cache-dir", kept, model=MODEL) as second:
            for prompt in "ab":
                text, cached = ask(second, prompt)
                check(f"{prompt}: a file of 1970, or of next year, is a hit", text == texts[prompt] and cached >= len(PROMPT), text, cached)
            shutil.rmtree(kept)
            for prompt in "abcd":
                check(f"{prompt}: the same answer without the folder", ask(second, prompt)[0] == texts[prompt] == ask(first, prompt)[0])
            said = second.log(lambda e: "cached prompts cannot be saved" in e.get("message", ""))
            check("the log says so", said is not None, second.lines[-5:])
            check("it ends well", second.stop() == 0)
        check("and so does the other", first.stop() == 0)


if "without llhttp" not in weir("serve", "--port", "70000").stderr:
    serve()
    faults()
finish()
