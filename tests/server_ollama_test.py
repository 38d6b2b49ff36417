"""weir serve as clients of Ollama's API know it, on the fake model, whose text depends on every token of the prompt: requests mean what the
same requests for chat completions mean, a stream is lines in Ollama's order, and what is not honoured is refused by name."""
# SPDX-License-Identifier: Apache-2.0
import datetime
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, TEXT, OLLAMA, GENERATE, EMBED = "/v1/chat/completions", "/v1/completions", "/api/chat", "/api/generate", "/api/embed"
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
SHORT = {"options": {"num_predict": 8, "temperature": 0}, "stream": False}
CHAT_SHORT = {"max_tokens": 8, "temperature": 0}
TOWN = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": n, "description": "what it is", "parameters": TOWN}} for n in ("weather", "clock")]
COUNTS = ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"]

need_server(WEIR)
server = Server(WEIR, "--alias", "tiny", "--alias", "second:1b", "--embeddings", "-np", "2", model="fake:fim=1")


def lines(path, body, of=None):
    """The objects of a stream, which has one in each line."""
    connection = (of or server).connect()
    connection.request("POST", path, body)
    status, headers = connection.head()
    data = b"".join(connection.chunks())
    connection.close()
    assert status == 200 and headers["content-type"] == "application/x-ndjson" and data.endswith(b"\n"), (status, headers, data)
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def plain(answer):
    """Without the parts that differ each time."""
    return {k: v for k, v in answer.items() if k not in ("created_at", *COUNTS)}


# ---- Logprobs: OpenAI's entries, beside the message

for how, body, chat in (("alone", {"logprobs": True}, {"logprobs": True}), ("with the likeliest", {"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3})):
    wanted = server.post(CHAT, {**HELLO, **CHAT_SHORT, **chat}).json["choices"][0]["logprobs"]["content"]
    mine = server.post(OLLAMA, {**HELLO, **SHORT, **body}).json
    check(f"logprobs {how}", len(wanted) > 0 and mine["logprobs"] == wanted and "".join(e["token"] for e in wanted).startswith(mine["message"]["content"]), mine, wanted)
    parts = lines(OLLAMA, {**HELLO, **SHORT, **body, "stream": True})
    check(f"logprobs {how}, in a stream", [e for part in parts for e in part.get("logprobs", [])] == wanted and sum("logprobs" in part for part in parts) > 1, parts, wanted)
    mine = server.post(GENERATE, {"prompt": "hello", **SHORT, **body}).json
    check(f"logprobs {how}, of a prompt", mine["logprobs"] == wanted, mine, wanted)
    mine = server.post(GENERATE, {"prompt": "hello", "raw": True, **SHORT, **body}).json
    check(f"logprobs {how}, of a raw one", len(mine["logprobs"]) == mine["eval_count"] and all(len(e["top_logprobs"]) == body.get("top_logprobs", 0) for e in mine["logprobs"]), mine)
for body in ({}, {"logprobs": False}, {"top_logprobs": 3}):
    check(f"no logprobs: {body}", "logprobs" not in server.post(OLLAMA, {**HELLO, **SHORT, **body}).json)

# ---- What a request means

called = [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": n, "arguments": {"town": "Ulm"}}} for n in ("weather", "clock")]}]
chat_called = [{"role": "assistant", "content": None, "tool_calls": [
    {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": {"town": "Ulm"}}} for i, n in enumerate(("weather", "clock"))]}]
for name, body, chat in [
        ("a message", {}, {}), ("the model's name with a tag", {"model": "tiny:latest"}, {}), ("a name that has a tag", {"model": "second:1b"}, {}), ("no name", {"model": None}, {}),
        ("a system message", {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}, {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}),
        ("thinking of before", {"messages": [*HELLO["messages"], {"role": "assistant", "thinking": "hm", "content": "Hi."}, *HELLO["messages"]]},
         {"messages": [*HELLO["messages"], {"role": "assistant", "reasoning_content": "hm", "content": "Hi."}, *HELLO["messages"]]}),
        ("calls without ids, results by the tool's name", {"messages": [*HELLO["messages"], *called, {"role": "tool", "tool_name": "clock", "content": "noon"}, {"role": "tool", "content": "sunny"}]},
         {"messages": [*HELLO["messages"], *chat_called, {"role": "tool", "tool_call_id": "call00001", "content": "noon"}, {"role": "tool", "tool_call_id": "call00000", "content": "sunny"}]}),
        ("sampling", {"options": {"num_predict": 8, "temperature": 1, "seed": 7, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 32,
                                  "presence_penalty": 0.5, "frequency_penalty": 0.5, "mirostat": 0, "mirostat_tau": 4, "mirostat_eta": 0.2}}, {"temperature": 1, "seed": 7}),
        ("notes", {"keep_alive": "-1", "format": "", "truncate": False, "think": False}, {"reasoning_effort": "none"}), ("effort", {"think": "low"}, {"reasoning_effort": "low"}),
        ("all tokens that there is room for", {"options": {"num_predict": -2, "temperature": 0, "stop": ["e", "a", "i", "o"], "repeat_last_n": -1, "num_ctx": 64}}, {"max_tokens": None, "stop": ["e", "a", "i", "o"]})]:
    mine, other = server.post(OLLAMA, {**HELLO, **SHORT, **body}), server.post(CHAT, {**HELLO, **CHAT_SHORT, "model": "tiny", **chat})
    same = mine.status == other.status == 200 and mine.json["message"] == {"role": "assistant", "content": other.json["choices"][0]["message"]["content"]}
    check(f"{name}: as chat completions", same and "x-weir-relaxed" not in mine.headers, mine.headers, mine.body, other.body)
    usage = other.json["usage"]
    check(f"{name}: its tokens", [mine.json[k] for k in ("prompt_eval_count", "eval_count")] == [usage["prompt_tokens"], usage["completion_tokens"]], mine.body, usage)

# ---- Whole answers and streams: golden sequences

answer = server.post(OLLAMA, {**HELLO, **SHORT}).json
text = answer["message"]["content"]
check("a whole answer", plain(answer) == {"model": "tiny", "message": {"role": "assistant", "content": text}, "done": True, "done_reason": "length"}, answer)
check("its times are whole nanoseconds", all(isinstance(answer[k], int) and answer[k] >= 0 for k in COUNTS) and
      answer["total_duration"] >= answer["prompt_eval_duration"] + answer["eval_duration"] > 0 and answer["eval_count"] == 8, answer)
made = datetime.datetime.strptime(answer["created_at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
check("and when", abs((datetime.datetime.now(datetime.timezone.utc) - made).total_seconds()) < 3600, answer)
stream = lines(OLLAMA, {**HELLO, "options": SHORT["options"]})  # a stream is what they send if nothing is said
check("a stream: the texts, then the counts", [plain(e) for e in stream[:-1]] == [
    {"model": "tiny", "message": {"role": "assistant", "content": e["message"]["content"]}, "done": False} for e in stream[:-1]] and
    plain(stream[-1]) == {"model": "tiny", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "length"}, stream)
check("a stream says the same", "".join(e["message"]["content"] for e in stream) == text and all(k in stream[-1] for k in COUNTS), stream, text)
stopped = server.post(OLLAMA, {**HELLO, **SHORT, "options": {"temperature": 0, "num_predict": 20, "stop": text[3:5]}}).json
check("a stop text", (stopped["done_reason"], stopped["message"]["content"]) == ("stop", text[:text.index(text[3:5])]), stopped, text)
for path, body, member in ((OLLAMA, {"messages": []}, "message"), (GENERATE, {}, "response"), (GENERATE, {"prompt": ""}, "response")):
    for more, relaxed in (({}, None), ({"keep_alive": -1}, None), ({"keep_alive": 0}, "keep_alive"), ({"keep_alive": "1h2.5m"}, "keep_alive")):
        loaded = server.post(path, {"model": "tiny", **body, **more})
        check(f"{path} without a prompt: the model stays loaded, {more}", plain(loaded.json) == {"model": "tiny", member: {"role": "assistant", "content": ""} if path == OLLAMA else "", "done": True, "done_reason": "load"} and
              loaded.headers["content-type"] == "application/x-ndjson" and loaded.headers.get("x-weir-relaxed") == relaxed, loaded.headers, loaded.body)

# ---- Generate

asked = {"model": "tiny", "prompt": "hello"}
for name, body, path, wanted in [
        ("a prompt is a user's message", {}, CHAT, HELLO),
        ("with a system message", {"system": "Be brief."}, CHAT, {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}),
        ("raw: no template", {"raw": True}, TEXT, {"prompt": "hello"}), ("the text between two others", {"suffix": "world"}, TEXT, {"prompt": "hello", "suffix": "world"})]:
    whole, other = server.post(GENERATE, {**asked, **SHORT, **body}), server.post(path, {**CHAT_SHORT, **wanted}).json["choices"][0]
    expected = other["message"]["content"] if path == CHAT else other["text"]
    check(f"{name}", plain(whole.json) == {"model": "tiny", "response": expected, "done": True, "done_reason": "length"}, whole.body, other)
    stream = lines(GENERATE, {**asked, **body, "options": SHORT["options"]})
    check(f"{name}, streamed", "".join(e["response"] for e in stream) == expected and [e["done"] for e in stream] == [False] * (len(stream) - 1) + [True] and
          set(stream[0]) == {"model", "created_at", "response", "done"}, stream)

# ---- Embeddings

vectors = [d["embedding"] for d in server.post("/v1/embeddings", {"input": ["one", "two"]}).json["data"]]
reply = server.post(EMBED, {"model": "tiny:latest", "input": ["one", "two"], "keep_alive": 5, "options": {"num_ctx": 100}})
check("embed", reply.json["embeddings"] == vectors and reply.json["model"] == "tiny" and reply.json["prompt_eval_count"] == 8 and reply.json["total_duration"] > 0, reply.body, vectors)
check("embed: options that have no effect", set(reply.headers["x-weir-relaxed"].split("; ")) == {"options.num_ctx", "keep_alive"}, reply.headers)
check("embed one text", server.post(EMBED, {"model": "tiny", "input": "two"}).json["embeddings"] == vectors[1:])
check("the older path", server.post("/api/embeddings", {"model": "tiny", "prompt": "two"}).json == {"embedding": vectors[1]})
cut = server.post(EMBED, {"input": "two", "dimensions": 4}).json["embeddings"][0]
scale = math.sqrt(sum(v * v for v in vectors[1][:4]))
check("fewer dimensions, of length 1", len(cut) == 4 and all(abs(a - b / scale) < 1e-6 for a, b in zip(cut, vectors[1])), cut)
check("more than there are", server.post(EMBED, {"input": "two", "dimensions": 99}).json["embeddings"] == vectors[1:])
most = server.post(EMBED, {"input": "x" * 20000, "truncate": False})
limit = int(most.json["error"].rsplit(" ", 1)[1])
check("too long: refused if it is not to be cut", most.status == 400 and most.json["param"] == "input[0]" and 0 < limit < 20000, most.body)
reply = server.post(EMBED, {"input": ["x" * 20000, "x" * (limit - 1)]}).json
check("and cut otherwise", reply["prompt_eval_count"] == 2 * limit and reply["embeddings"][0] == reply["embeddings"][1], reply["prompt_eval_count"], limit)

# ---- Models

tags = server.get("/api/tags").json["models"]
check("tags", [(m["name"], m["model"]) for m in tags] == [("tiny:latest", "tiny:latest"), ("second:1b", "second:1b")] and
      all(set(m) == {"name", "model", "size", "digest", "details", "modified_at"} and len(m["digest"]) == 64 and m["details"]["format"] == "gguf" for m in tags) and
      tags[0]["digest"] != tags[1]["digest"], tags)
ps = server.get("/api/ps").json["models"]
check("ps", len(ps) == 1 and ps[0]["name"] == "tiny:latest" and ps[0]["context_length"] == 4096 and ps[0]["digest"] == tags[0]["digest"] and ps[0]["expires_at"].startswith("9999"), ps)
show = server.post("/api/show", {"model": "tiny:latest", "verbose": True})
family = show.json["details"]["family"]
check("show", show.json["model_info"]["general.architecture"] == family and show.json["model_info"][family + ".context_length"] == 4096 and
      {"completion", "tools", "insert", "embedding"} <= set(show.json["capabilities"]) and "vision" not in show.json["capabilities"] and show.json["template"], show.body)
check("show, as older clients ask", {k: v for k, v in server.post("/api/show", {"name": "tiny"}).json.items()} == show.json)
version = server.get("/api/version").json
check("version: Ollama's, and weir's own", tuple(map(int, version["version"].split("."))) > (0, 6, 4) and version["weir"], version)

# ---- Refusals


def refused(name, reply, status, field, word=""):
    body = reply.json
    check(f"{name}: {status}, {field}", reply.status == status and set(body) == {"error", "param", "code"} and isinstance(body["error"], str) and
          body["param"] == field and word in body["error"], reply.status, reply.body)


for name, body, field, *word in [
        ("messages of another type", {"messages": 5}, "messages"), ("a message of another type", {"messages": ["x"]}, "messages[0]"),
        ("a role", {"messages": [{"role": "developer", "content": "x"}]}, "messages[0].role"), ("content", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ("a member of a message", {"messages": [{"role": "user", "content": "x", "colour": "red"}]}, "messages[0].colour"),
        ("an image", {"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "messages[0].images[0]", "--mmproj"),
        ("images that are none", {"messages": [{"role": "user", "content": "x", "images": [5]}]}, "messages[0].images[0]"),
        ("a call without a name", {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": {}}}]}]}, "messages[0].tool_calls[0]"),
        *[("format", {"format": form}, "format") for form in ("yaml", "JSON", 5, True, [])],
        *[(f"a schema of the type {kind}", {"format": {"type": kind}}, "format.type", '"json"') for kind in ("json_object", "json_schema", "text", "")], ("think", {"think": "hard"}, "think"), *[(f"keep_alive {value}", {"keep_alive": value}, "keep_alive") for value in ([], "abc", "", "5x", "-", "1.2.3s", "0s5", "5mm", "9" * 40)], ("stream", {"stream": "yes"}, "stream"),
        ("options", {"options": 5}, "options"), ("an unknown option", {"options": {"colour": 1}}, "options.colour"), ("a temperature", {"options": {"temperature": -1}}, "options.temperature", "from 0"),
        ("num_predict", {"options": {"num_predict": -3}}, "options.num_predict"), ("top_k", {"options": {"top_k": 0.5}}, "options.top_k"), ("stop", {"options": {"stop": [5]}}, "options.stop"),
        ("tfs_z", {"options": {"tfs_z": 0.5}}, "options.tfs_z"), ("an option as a field", {"temperature": 0.5}, "temperature"), ("and by its full name", {"options.temperature": 0.5}, "options.temperature"),
        ("a template", {"template": "x"}, "template", "raw"), ("truncation", {"truncate": True}, "truncate"), ("logprobs", {"logprobs": 3}, "logprobs", "true or false"), ("top_logprobs", {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
        ("a prompt", {"prompt": "x"}, "prompt"), ("a long conversation", {"messages": [{"role": "user", "content": "word " * 5000}]}, "messages", "tokens")]:
    refused(name, server.post(OLLAMA, {**HELLO, **body}, headers=STRICT), 400, field, *word)
for name, body, field, *word in [
        ("format", {"format": "xml"}, "format"), ("a schema's type", {"format": {"type": "json_object"}}, "format.type"), ("a schema's type, no prompt", {"prompt": "", "format": {"type": "dict"}}, "format.type"),
        ("a prompt of another type", {"prompt": ["x"]}, "prompt"), ("a system message of another type", {"system": 5}, "system"), ("raw", {"raw": 1}, "raw"), ("suffix", {"suffix": 5}, "suffix"),
        ("a context", {"context": [1]}, "context", OLLAMA), ("an image", {"images": ["AAAA"]}, "images[0]", "--mmproj"), ("an image, raw", {"images": ["AAAA"], "raw": True}, "images"),
        ("messages", {"messages": []}, "messages"), ("a long prompt", {"prompt": "word " * 5000}, "prompt", "tokens"), ("a long raw prompt", {"prompt": "word " * 5000, "raw": True}, "prompt", "tokens")]:
    refused("generate: " + name, server.post(GENERATE, {**asked, **body}, headers=STRICT), 400, field, *word)
for name, body, field in [("no input", {}, "input"), ("an empty text", {"input": ["a", ""]}, "input[1]"), ("ids", {"input": [[1, 2]]}, "input[0]"), ("a number", {"input": 5}, "input"), ("dimensions", {"input": "a", "dimensions": 0}, "dimensions"),
                          ("options", {"input": "a", "options": []}, "options"), ("an unknown option", {"input": "a", "options": {"colour": 1}}, "options.colour"), ("a prompt", {"prompt": "a"}, "prompt")]:
    refused("embed: " + name, server.post(EMBED, body, headers=STRICT), 400, field)
refused("the older path: no prompt", server.post("/api/embeddings", {"model": "tiny"}), 400, "prompt")
for path, body in ((OLLAMA, HELLO), (GENERATE, asked), (EMBED, {"input": "a"}), ("/api/show", {})):
    refused(path + ": another model", server.post(path, {**body, "model": "llama3.2:latest"}), 404, "model", "no model")
for what in ("push", "create", "copy", "blobs/sha256:0"):
    refused(what, server.post("/api/" + what, {"model": "tiny"}), 501, None, "weir pull")
refused("delete", server.ask("DELETE", "/api/delete", {"model": "tiny"}), 501, None, "weir pull")
refused("delete, without a body", server.ask("DELETE", "/api/delete"), 501, None, "weir pull")
refused("another path with DELETE", server.ask("DELETE", "/api/tags"), 405, None, "GET")
for reply in (server.get("/api/none"), server.post("/api/none", {}), server.get("/api"), server.get("/api/tags/x")):
    refused("nothing there", reply, 404, None, "there is nothing at")
reply = server.post(OLLAMA, {**HELLO, **SHORT, "options": {**SHORT["options"], "num_ctx": 99999, "num_gpu": 1, "num_thread": 4, "use_mmap": True}})
check("what the server decides is reported", reply.status == 200 and set(reply.headers["x-weir-relaxed"].split("; ")) == {"options.num_ctx", "options.num_gpu", "options.num_thread", "options.use_mmap"}, reply.headers)

# ---- What needs llama.cpp: tools and forms

asks = {**HELLO, "tools": TOOLS, "options": {"num_predict": 300, "temperature": 0}, "stream": False}
form = server.post(OLLAMA, {**asks, "tools": None, "format": TOWN})
if form.status == 200 or b"has no llama.cpp" not in form.body:
    check("a schema", json.loads(form.json["message"]["content"])["town"] in ("Ulm", "Bonn") and form.json["done_reason"] == "stop", form.body)
    check("any object", isinstance(json.loads(server.post(GENERATE, {**asked, "format": "json", "stream": False, "options": {"num_predict": 400, "temperature": 1, "seed": 3}}).json["response"] or "{}"), dict))
    reply = server.post(OLLAMA, {**asks, "tools": None, "format": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True}})
    check("what of a schema is not enforced is reported", reply.headers.get("x-weir-relaxed") == "format: uniqueItems", reply.headers, reply.body)
    forced = {**asks, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    whole = server.post(OLLAMA, forced).json
    [call] = whole["message"]["tool_calls"]
    check("a call: arguments are an object", whole["message"]["content"] == "" and call["id"] and call["function"]["arguments"]["town"] in ("Ulm", "Bonn") and
          {k: v for k, v in call["function"].items() if k != "arguments"} == {"index": 0, "name": "weather"} and whole["done_reason"] == "stop", whole)
    stream = lines(OLLAMA, {**forced, "stream": True})
    check("a call, streamed: one line, once it is complete", [plain(e) for e in stream] == [
        {"model": "tiny", "message": {"role": "assistant", "content": "", "tool_calls": [{**call, "id": stream[0]["message"]["tool_calls"][0]["id"]}]}, "done": False},
        {"model": "tiny", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}], stream, call)
    back = server.post(OLLAMA, {**asks, "messages": [*HELLO["messages"], whole["message"], {"role": "tool", "tool_name": "weather", "content": "sunny"}], "options": {"num_predict": 8}})
    check("an answer is taken back as a message", back.status == 200, back.body)
    cut = server.post(OLLAMA, {**forced, "options": {"num_predict": 3}}).json
    check("a call that is cut", cut["done_reason"] == "length" and not cut["message"].get("tool_calls"), cut)
    pieces = lines(OLLAMA, {**forced, "options": {"num_predict": 3}, "stream": True})
    check("the same, streamed", pieces[-1]["done_reason"] == "length" and not any(piece["message"].get("tool_calls") for piece in pieces), pieces)
    refused("a tool's name", server.post(OLLAMA, {**asks, "tools": [{"type": "function", "function": {"name": "a b"}}]}), 400, "tools[0].function.name")
server.stop()
finish()
