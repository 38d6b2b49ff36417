"""weir serve --record with the default model: a mixed load of concurrent requests, which weir record run computes again one by one, and compares
token by token and logprob by logprob; one changed byte is found."""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from program import WEIR, lines_of, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

MODEL = os.environ["WEIR_TEST_MODEL"]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]

need_server(WEIR)
parent = tempfile.mkdtemp()
folder = os.path.join(parent, "records")


def run(*words):
    return weir("record", "run", folder, *words, timeout=1200)


def chat(text, n=16, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": n, **more}


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}
load = [("/v1/chat/completions", chat(f"Tell me about {word}.", stream=word < "k")) for word in ("boats", "dams", "fish", "rivers", "weirs")]
load += [
    ("/v1/chat/completions", chat("Tell me about boats.", seed=11)),
    ("/v1/chat/completions", chat("Tell me about " + "rivers and weirs " * 60)),
    ("/v1/chat/completions", chat("Name a city.", n=8, logprobs=True, top_logprobs=3)),
    ("/v1/chat/completions", {**chat("Name a river."), "n": 3}),
    ("/v1/chat/completions", chat("What is the weather in Paris?", n=32, tools=TOOLS, tool_choice="required")),
    ("/v1/chat/completions", chat("A number, please.", n=24, response_format=SCHEMA)),
    ("/v1/chat/completions", chat("Be greedy.", temperature=0)),
    ("/v1/completions", {"prompt": ["Once upon a time", "Once upon a time"], "n": 2, "max_tokens": 12}),
    ("/v1/completions", {"prompt": "A weir is", "max_tokens": 16, "logprobs": 2, "seed": 3, "stop": ["water"]}),
    ("/v1/messages", chat("Hello!")),
    ("/v1/responses", {"input": "Hello!", "max_output_tokens": 12}),
    ("/api/chat", {"messages": [{"role": "user", "content": "Hello!"}], "options": {"num_predict": 12}}),
    ("/completion", {"prompt": "The sea", "n_predict": 12, "stream": True}),
]
# The options of the server are recorded: weir record run gets none of them.
server = Server(WEIR, "-np", "4", "-c", "2048", "--temp", "0.8", "--top-k", "30", "--system", "You answer in verse.", "--record", folder, model=MODEL)
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    replies = list(pool.map(lambda asked: server.post(*asked), load))
for (path, body), reply in zip(load, replies):
    check(f"{path} {str(body)[:60]}: 200", reply.status == 200, reply.status, reply.body)
server.stop()

done = run("--json")
lines = lines_of(done)
differ = [line for line in lines if line.get("result", "agrees") != "agrees"]
if lines and lines[-1].get("batch_invariant"):
    check("all agree", done.returncode == 0 and lines[-1]["agree"] == len(load), differ, done.stderr)
else:  # ggml's own kernels: a near-tie may end otherwise
    check("all are compared", lines and lines[-1]["agree"] + lines[-1]["differ"] == len(load), lines, done.stderr)
check("each with the same prompt", not any("prompt" in line["why"] for line in differ), differ)
other = run("--system", "You answer in prose.")
check("another system message: other prompts", other.returncode == 1 and "the prompt has other tokens" in other.stdout, other.stdout, other.stderr)

segment = os.path.join(folder, next(name for name in os.listdir(folder) if name.endswith(".weirrec")))
with open(segment, "r+b") as file:
    whole = file.read()
    at = whole.rindex(b'"tokens":[') + 10
    file.seek(at)
    file.write(bytes([whole[at] ^ 1]))
listed = weir("record", "list", folder)
check("a byte that has changed is found", "does not have its checksum" in listed.stderr and listed.stdout.count("no answer") == 1, listed.stdout, listed.stderr)
shutil.rmtree(parent)
finish()
