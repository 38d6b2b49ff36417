"""weir serve as clients of Anthropic's Messages API know it, on the fake model, whose text depends on every token of the prompt: requests mean
what the same requests for chat completions mean, events come in Anthropic's order, and what is not honoured is refused by name."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
TOWN = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": False}
CLOCK = {"type": "object", "properties": {}}
TOOLS = [{"name": "weather", "description": "the weather", "input_schema": TOWN}, {"name": "clock", "description": "the time", "input_schema": CLOCK}]
CHAT_TOOLS = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}} for t in TOOLS]


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


need_server(WEIR)
server = Server(WEIR, "--alias", "tiny", "-np", "2")

# ---- The list of models

VERSION = ["Anthropic-Version: 2023-06-01"]


def listed(query="", of=None, **more):
    return (of or server).get("/v1/models" + query, headers=VERSION, **more)


def check_model(name, model, id, n_ctx):
    check(name, model["type"] == "model" and model["id"] == model["display_name"] == id and model["max_input_tokens"] == model["max_tokens"] == n_ctx and
          model["lifecycle"] == "active" and model["created_at"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(server.get("/v1/models/tiny").json["created"])) and
          {"capabilities", "deprecated_at", "retires_at", "line"} <= set(model), model)


reply = listed()
check("models: one page", reply.status == 200 and set(reply.json) == {"data", "has_more", "first_id", "last_id"} and not reply.json["has_more"] and
      reply.json["first_id"] == reply.json["last_id"] == "tiny" and len(reply.json["data"]) == 1 and "request-id" in reply.headers, reply.body)
check_model("models: one of them", reply.json["data"][0], "tiny", 4096)
reply = listed("/tiny")
check_model("models: by its id", reply.json, "tiny", 4096)
reply = listed("/none")
check("models: there is none", reply.status == 404 and reply.json["type"] == "error" and reply.json["error"]["type"] == "not_found_error", reply.body)
plain = server.get("/v1/models").json
check("models: OpenAI's clients get theirs, with the context", plain["object"] == "list" and plain["data"][0]["context_length"] == plain["data"][0]["max_model_len"] == 4096, plain)
several = Server(WEIR, *[word for i in range(25) for word in ("--alias", f"m{i:02}")], "--alias", "ein name/ü")
ids = [m["id"] for m in several.get("/v1/models").json["data"]]
check("models: twenty are a page", len(ids) == 26 and [m["id"] for m in listed(of=several).json["data"]] == ids[:20] and listed(of=several).json["has_more"])
seen, query = [], "?limit=7"
while True:
    page = listed(query, of=several).json
    seen += [m["id"] for m in page["data"]]
    if not page["has_more"]:
        break
    query = "?limit=7&after_id=" + urllib.parse.quote(page["last_id"])
check("models: page by page", seen == ids and page["first_id"] == ids[21] and page["last_id"] == ids[-1], seen, ids)
page = listed(f"?limit=3&before_id={urllib.parse.quote(ids[10])}", of=several).json
check("models: those before", [m["id"] for m in page["data"]] == ids[7:10] and page["has_more"], page)
page = listed(f"?before_id={urllib.parse.quote(ids[2])}", of=several).json
check("models: the first ones", [m["id"] for m in page["data"]] == ids[:2] and not page["has_more"], page)
page = listed("?after_id=" + urllib.parse.quote(ids[-1]), of=several).json
check("models: none behind the last", page == {"data": [], "has_more": False, "first_id": None, "last_id": None}, page)
for query, field in (("?limit=0", "limit"), ("?limit=1001", "limit"), ("?limit=x", "limit"), ("?after_id=none", "after_id"), ("?before_id=none", "before_id"), ("?after_id=%zz", "after_id"),
                     (f"?after_id={ids[0]}&before_id={ids[0]}", "before_id")):
    reply = listed(query, of=several)
    check(f"models: {query}", reply.status == 400 and reply.json["type"] == "error" and reply.json["error"]["param"] == field, reply.body)
several.stop()
keyed = Server(WEIR, "--api-key", "s3cret")
reply = listed(of=keyed)
check("models: without a key, in Anthropic's form", reply.status == 401 and reply.json["error"]["type"] == "authentication_error", reply.body)
check("models: with it", listed(of=keyed, key="s3cret").status == 200)
keyed.stop()

# ---- What a request means

for name, body, chat in [
        ("a string", {}, {}),
        ("a text", {"messages": [{"role": "user", "content": text("hello")}]}, {}),
        ("a system text", {"system": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}),
        ("system texts, to be cached", {"system": [dict(part, cache_control={"type": "ephemeral"}) for part in text("Be", "brief.")]},
         {"messages": [{"role": "system", "content": text("Be", "brief.")}, *HELLO["messages"]]}),
        ("turns", {"messages": [{"role": "user", "content": text("a", "b")}, {"role": "assistant", "content": text("c")}, {"role": "user", "content": "d"}]},
         {"messages": [{"role": "user", "content": text("a", "b")}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]}),
        ("an answer that goes on", {"messages": [*HELLO["messages"], {"role": "assistant", "content": "Well"}]},
         {"messages": [*HELLO["messages"], {"role": "assistant", "content": "Well"}], "continue_final_message": True, "add_generation_prompt": False}),
        ("tools that may not be called", {"tools": TOOLS, "tool_choice": {"type": "none"}}, {"tools": CHAT_TOOLS, "tool_choice": "none"}),
        ("a call and its result", {"messages": [*HELLO["messages"], {"role": "assistant", "content": [*text("Wait."), {"type": "tool_use", "id": "1", "name": "weather", "input": {"town": "Ulm"}}]},
                                                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": text("sunny")}, *text("And now?")]}]},
         {"messages": [*HELLO["messages"], {"role": "assistant", "content": "Wait.", "tool_calls": [
             {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}}]},
             {"role": "tool", "tool_call_id": "1", "content": "sunny"}, {"role": "user", "content": "And now?"}]}),
        ("a result that is an error", {"messages": [*HELLO["messages"], {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "clock", "input": {}}]},
                                                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "broken"}]}]},
         {"messages": [*HELLO["messages"], {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "clock", "arguments": {}}}]},
                       {"role": "tool", "tool_call_id": "1", "content": text("Error:", "broken")}]}),
        ("thinking of before", {"messages": [*HELLO["messages"], {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, *text("Hi.")]}, *HELLO["messages"]]},
         {"messages": [*HELLO["messages"], {"role": "assistant", "reasoning_content": "hm", "content": "Hi."}, *HELLO["messages"]]}),
        ("sampling", {"temperature": 1, "seed": 7, "top_k": 40, "top_p": 0.9}, {"temperature": 1, "seed": 7, "top_k": 40, "top_p": 0.9}),
        ("notes", {"metadata": {"user_id": "x"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}, "thinking": {"type": "disabled"}, "model": "tiny",
                   "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, "output_config": {"effort": "low"}}, {})]:
    mine, other = server.post(MESSAGES, dict(HELLO, **body)), server.post(CHAT, dict(HELLO, **dict({"reasoning_effort": "none"}, **chat)))
    same = mine.status == other.status == 200 and mine.json["content"] == text(other.json["choices"][0]["message"]["content"])
    check(f"{name}: as chat completions", same, mine.body, other.body)
    usage, count = mine.json["usage"], server.post(COUNT, {k: v for k, v in dict(HELLO, **body).items() if k != "max_tokens"})
    n = other.json["usage"]["prompt_tokens"]
    check(f"{name}: its tokens", count.json == {"input_tokens": n} and usage["input_tokens"] + usage["cache_read_input_tokens"] == n, usage, count.body, n)

# ---- Whole answers

reply = server.post(MESSAGES, dict(HELLO, system="Something else."))
answer = reply.json
check("a whole answer", answer["id"].startswith("msg_") and (answer["type"], answer["role"], answer["model"], answer["stop_reason"], answer["stop_sequence"]) ==
      ("message", "assistant", "tiny", "max_tokens", None) and answer["usage"]["output_tokens"] == 8, answer)
again = server.post(MESSAGES, dict(HELLO, system="Something else.")).json["usage"]
check("what was cached", again["cache_read_input_tokens"] > 0 and again["input_tokens"] >= 1 and
      again["cache_read_input_tokens"] + again["input_tokens"] == answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"], again, answer)
server.end_without_llama(server.post(MESSAGES, dict(HELLO, tools=TOOLS, tool_choice={"type": "any"})))

# A call's numbers are written again as the model wrote them, the fake's tokens being bytes; so the prompt of the next turn begins with known tokens.
def called(value):
    return dict(HELLO, messages=[*HELLO["messages"], {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "clock", "input": {"x": value}}]},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "5"}]}])


with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
    template.write("{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}")
    template.flush()
    shows = Server(WEIR, "--alias", "tiny", "--chat-template-file", template.name)
base = shows.post(COUNT, called(0)).json["input_tokens"] - len("0")
for value, length in [(0.5, 3), (0.1, 3), (1.0, 3), (3.14159265358979, 16), (-0.30000000000000004, 20), (1e-07, 5), (1e+16, 5), (18446744073709551615, 20), (10**30, 31)]:
    count = shows.post(COUNT, called(value)).json["input_tokens"]
    check(f"{value!r} in a call has {length} tokens", count == base + length, count - base)
usage = [shows.post(MESSAGES, called([0.1, 18446744073709551615])).json["usage"] for _ in range(2)]
check("and the next turn computes one token of them", usage[1]["input_tokens"] == 1, usage)
shows.stop()
call = server.post(MESSAGES, dict(HELLO, max_tokens=300, tools=TOOLS, tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True})).json
block = call["content"][0]
check("a call", len(call["content"]) == 1 and call["stop_reason"] == "tool_use" and (block["type"], block["name"]) == ("tool_use", "weather") and block["id"] and
      block["input"]["town"] in ("Ulm", "Bonn"), call)
call = server.post(MESSAGES, dict(HELLO, max_tokens=3, tools=TOOLS, tool_choice={"type": "any"})).json
check("a call that is cut", call["stop_reason"] == "max_tokens" and all(b["type"] == "text" or b["input"] == {} for b in call["content"]), call)
form = server.post(MESSAGES, dict(HELLO, max_tokens=300, output_config={"format": {"type": "json_schema", "schema": TOWN}})).json
check("a form", json.loads(form["content"][0]["text"])["town"] in ("Ulm", "Bonn") and form["stop_reason"] == "end_turn", form)
plain = server.post(MESSAGES, dict(HELLO, max_tokens=20)).json["content"][0]["text"]
for stops in ([plain[4:7]], ["zzz", plain[4:7], "yyy"]):
    ended = server.post(MESSAGES, dict(HELLO, max_tokens=20, stop_sequences=stops)).json
    check(f"a stop sequence among {len(stops)}", (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", plain[4:7]) and
          ended["content"][0]["text"] == plain[:plain.index(plain[4:7])], ended, plain)

# ---- Events

events = server.named_events(MESSAGES, dict(HELLO, system="Something else."))
names = [name for name, _ in events]
check("the order of events", names[:2] == ["message_start", "content_block_start"] and names[-3:] == ["content_block_stop", "message_delta", "message_stop"] and
      set(names[2:-3]) == {"content_block_delta"}, names)
start, ended = events[0][1]["message"], events[-2][1]
check("the start", start["content"] == [] and start["stop_reason"] is None and (start["type"], start["role"], start["model"]) == ("message", "assistant", "tiny") and
      start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] == answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"], start)
check("the block", events[1][1] == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}} and
      events[-3][1] == {"type": "content_block_stop", "index": 0} and all(data["index"] == 0 and data["delta"]["type"] == "text_delta" for _, data in events[2:-3]), events)
check("the text", "".join(data["delta"]["text"] for _, data in events[2:-3]) == answer["content"][0]["text"], events, answer)
check("the end", ended["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None} and ended["usage"]["output_tokens"] == 8, ended)
events = server.named_events(MESSAGES, dict(HELLO, max_tokens=300, tools=TOOLS, tool_choice={"type": "tool", "name": "weather"}))
begin, deltas = events[1][1], [data for name, data in events if name == "content_block_delta"]
check("a call, streamed", begin["content_block"] == {"type": "tool_use", "id": begin["content_block"]["id"], "name": "weather", "input": {}} and
      all(data["delta"]["type"] == "input_json_delta" for data in deltas) and json.loads("".join(data["delta"]["partial_json"] for data in deltas)) == block["input"] and
      events[-2][1]["delta"]["stop_reason"] == "tool_use", events)
events = server.named_events(MESSAGES, dict(HELLO, max_tokens=20, stop_sequences=["zzz", plain[4:7]]))
check("a stop sequence, streamed", events[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": plain[4:7]}, events[-2:])

# ---- Refusals


def refused(name, reply, status, kind, field=None, word=""):
    body = reply.json
    error = body.get("error", {})
    check(f"{name}: {status}" + (f", {field}" if field else ""), reply.status == status and body["type"] == "error" and error["type"] == kind and
          error["param"] == field and word in error["message"] and (field is None or "/" in field or word or field in error["message"]) and
          body["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"], reply.status, reply.body)


for name, body, field, *word in [
        ("no messages", {"messages": []}, "messages"), ("messages of another type", {"messages": 5}, "messages"), ("a message of another type", {"messages": ["x"]}, "messages[0]"),
        ("a role", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"), ("content", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("no content", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("an image", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]}, "messages[0].content[0]", "--mmproj"),
        ("an image to be fetched", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]}, "messages[0].content[0]", "--mmproj"),
        ("a file by its id", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "x"}}]}]}, "messages[0].content[0]", "base64, url"),
        ("a URL that is none", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": 5}}]}]}, "messages[0].content[0]", "url"),
        ("a document", {"messages": [*HELLO["messages"], {"role": "user", "content": [*text("x"), {"type": "document", "source": {}}]}]}, "messages[1].content[1].source"),
        ("a block without a text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ("a member of a block", {"messages": [{"role": "user", "content": [dict(text("x")[0], colour="red")]}]}, "messages[0].content[0].colour"),
        ("a result without a call", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "messages[0].content[0]"),
        ("a call without input", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "x"}]}]}, "messages[0].content[0]"),
        ("a call by the user", {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "x", "input": {}}]}]}, "messages[0].content[0]"),
        ("system", {"system": [{"type": "image"}]}, "system[0]"), ("system of another type", {"system": 5}, None),
        ("a tool without a schema", {"tools": [{"name": "x"}]}, "tools[0].input_schema"), ("a tool's name", {"tools": [TOOLS[0], {"name": "a b", "input_schema": {}}]}, "tools[1].name"),
        ("a member of a tool", {"tools": [dict(TOOLS[0], defer_loading=True)]}, "tools[0].defer_loading"),
        ("a strict schema", {"tools": [dict(TOOLS[0], strict=True, input_schema={"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}})]},
         "tools/0/input_schema/properties/n"),
        ("a schema that cannot be kept", {"output_config": {"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}}}, "output_config/format/schema"),
        ("a choice of tools", {"tools": TOOLS, "tool_choice": {"type": "some"}}, "tool_choice.type"), ("a choice without tools", {"tool_choice": {"type": "any"}}, "tool_choice"),
        ("a tool that is not there", {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ("stop sequences", {"stop_sequences": [5]}, "stop_sequences"), ("thinking", {"thinking": {"type": "sometimes"}}, "thinking.type"),
        ("thinking that is hidden", {"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"), ("effort", {"output_config": {"effort": "some"}}, "output_config.effort"),
        ("edits", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ("cache_control", {"cache_control": 5}, "cache_control", "ephemeral"),
        ("temperature", {"temperature": -1}, "temperature"), ("an unknown field", {"temprature": 1}, "temprature"), ("a field of chat completions", {"n": 2}, "n"),
        *[(f"max_tokens {n}", {"max_tokens": n}, "max_tokens", "from 1 to") for n in ("x", -1, 0, 1.5)]]:
    refused(name, server.post(MESSAGES, dict(HELLO, **body), headers=STRICT), 400, "invalid_request_error", field if field else "system", *word)
    if not field or not field.startswith("max"):
        refused(f"{name}, counted", server.post(COUNT, dict(HELLO, **body), headers=STRICT), 400, "invalid_request_error", field if field else "system", *word)
refused("too many tools", server.post(MESSAGES, dict(HELLO, tools=[dict(TOOLS[0], name=f"f{i}") for i in range(1025)])), 400, "invalid_request_error", "tools", "at most 1024")
refused("another model", server.post(MESSAGES, dict(HELLO, model="claude-x")), 404, "not_found_error", "model", '"tiny"')
refused("another method", server.get(MESSAGES), 405, "invalid_request_error", None, "POST")
for path in (MESSAGES + "/batches", MESSAGES + "/batches/1", "/messages/x"):
    refused(f"nothing at {path}", server.get(path), 404, "not_found_error", None, path)
check("beside them: as OpenAI's", server.get(MESSAGES + "x").json.keys() == {"error"})
refused("no JSON", server.post(MESSAGES, b"{"), 400, "invalid_request_error")
refused("many messages", server.post(MESSAGES, dict(HELLO, messages=HELLO["messages"] * 5000)), 400, "invalid_request_error", "messages", "4096 texts")
refused("a long prompt", server.post(MESSAGES, dict(HELLO, messages=[{"role": "user", "content": "x " * 20000}])), 400, "invalid_request_error", "messages", "prompt is too long: ")
called = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "a\0"}}
for given, same in (("a\0b", "a\ufffdb"), ("\ud83d", "\ufffd"), ("\\u0000", "\\u0000")):
    asked = [dict(HELLO, messages=[*HELLO["messages"], {"role": "assistant", "content": [called]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": said}]}])
             for said in (given, same)]
    replies = [server.post(MESSAGES, json.dumps(one).encode()) for one in asked]
    check(f"a text that cannot be as it is: {ascii(given)}", replies[0].status == 200 and replies[0].json["content"] == replies[1].json["content"], replies[0].body, replies[1].body)
reply = server.post(MESSAGES, dict(HELLO, thinking={"type": "enabled", "budget_tokens": 4}))
check("a budget that may be exceeded is told", reply.status == 200 and reply.headers.get("x-weir-relaxed") == "thinking.budget_tokens", reply.headers)
reply = server.post(MESSAGES, dict(HELLO, thinking={"type": "enabled", "budget_tokens": 1024}))
check("one that cannot is not", reply.status == 200 and "x-weir-relaxed" not in reply.headers, reply.headers)
reply = server.post(MESSAGES, dict(HELLO, tools=[dict(TOOLS[0], input_schema={"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}})], tool_choice={"type": "any"}))
check("a schema that is not strict", reply.headers.get("x-weir-relaxed") == "tools/0/input_schema/properties/n: multipleOf", reply.headers)
server.stop()

# Joined one by one, these take minutes.
server = Server(WEIR, "-np", "1", "-c", "1048576", model="fake:n_ctx_train=1048576")
n_blocks = effort(250_000, 30_000)
thoughts = [{"type": "thinking", "thinking": "x"}] * n_blocks
reply = server.post(COUNT, {"messages": [*HELLO["messages"], {"role": "assistant", "content": [*thoughts, *text("Hi.")]}, *HELLO["messages"]]})
check("very many thoughts", reply.status == 200, reply.body)
server.stop()

# ---- Lines that change with each request

server = Server(WEIR, "-np", "1", "--drop-line", "Today is", "--drop-line", "Session:")
billing = "x-anthropic-billing-header: cc_version=2.1.36; cch={};"
plain = server.post(MESSAGES, dict(HELLO, system=text("Be brief. " * 40))).json
for name, system, dropped in [("a block", text(billing.format(1), "Be brief. " * 40), 1), ("a line of a block", text(billing.format(2) + "\n" + "Be brief. " * 40), 1),
                              ("lines of a string", "Session: 7\n" + billing.format(3) + "\n" + "Be brief. " * 40 + "\nToday is Monday.", 3)]:
    given = server.post(MESSAGES, dict(HELLO, system=system)).json
    check(f"{name}: dropped and told", given["content"] == plain["content"] and given["usage"]["dropped_lines"] == dropped, given, plain)
    check(f"{name}: the prompt is cached", given["usage"]["cache_read_input_tokens"] > 400 and given["usage"]["input_tokens"] <= 2, given)
    events = server.named_events(MESSAGES, dict(HELLO, system=system))
    check(f"{name}: streamed", events[-2][1]["usage"]["dropped_lines"] == dropped and "dropped_lines" not in events[0][1]["message"]["usage"], events[-2])
check("nothing to drop", "dropped_lines" not in plain["usage"])
same = dict(HELLO, messages=[{"role": "developer", "content": billing.format(4)}, {"role": "system", "content": text(billing.format(5), "Be brief. " * 40)}, *HELLO["messages"]])
given = server.post(CHAT, same).json
check("chat completions", given["choices"][0]["message"]["content"] == plain["content"][0]["text"] and given["usage"]["prompt_tokens_details"]["dropped_lines"] == 2, given)
check("a dry run", server.post("/v1/plan", same).json["dropped_lines"] == 2)
check("the template", server.post("/apply-template", {"messages": same["messages"]}).json["prompt"].count("billing") == 0)
given = server.post("/v1/responses", {"input": "hello", "instructions": billing.format(6) + "\nBe brief." + " Be brief." * 39 + " ", "max_output_tokens": 8, "temperature": 0}).json
check("responses, which repeat what was given", given["output"][0]["content"][0]["text"] == plain["content"][0]["text"] and given["usage"]["input_tokens_details"]["dropped_lines"] == 1 and
      given["instructions"].startswith(billing.format(6)), given)
user = server.post(MESSAGES, dict(HELLO, messages=[{"role": "user", "content": billing.format(7)}])).json
check("what users say stays", "dropped_lines" not in user["usage"] and user["content"] != server.post(MESSAGES, dict(HELLO, messages=[{"role": "user", "content": ""}])).json["content"], user)
only = server.post(CHAT, dict(HELLO, messages=[{"role": "system", "content": billing.format(8)}]))
check("nothing but such a line", only.status == 200, only.body)
refused("a place behind one that is gone", server.post(MESSAGES, dict(HELLO, system=billing.format(9), messages=[*HELLO["messages"], {"role": "user", "content": [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])), 400, "invalid_request_error", "messages[1].content[0]", "--mmproj")
check("the log", server.log(lambda line: line.get("dropped_lines") == 3) is not None)
SECRETLY = dict(HELLO, cache_salt="3f1c")
server.post(MESSAGES, dict(SECRETLY, system="Be brief.\nNow: 1"))
miss = server.post(MESSAGES, dict(SECRETLY, system="Be brief.\nNow: 2")).json["usage"]["miss"]
check("a line that has no rule yet", miss.get("line") == "Now: ", miss)
for name, one, two, line in [
        ("a long line of a block", text("x-acme-billing: cc_version=2.1.36; entry=cli; cch=12ab;", "Be brief."), text("x-acme-billing: cc_version=2.1.36; entry=cli; cch=7734;", "Be brief."),
         "x-acme-billing: cc_version=2.1.36; entry=cli; cch="),
        ("a short line of a block", text("x-r: 1234; z", "Be brief."), text("x-r: 9876; z", "Be brief."), "x-r: "),
        ("the first line of a string", "Date: 2026-01-01 10:00.\nBe brief.", "Date: 2026-01-02 11:11.\nBe brief.", "Date: 2026-01-0"),
        ("a very long line", "y" * 200 + "1\nBe brief.", "y" * 200 + "2\nBe brief.", "y" * 95)]:
    server.post(MESSAGES, dict(SECRETLY, system=one))
    miss = server.post(MESSAGES, dict(SECRETLY, system=two)).json["usage"]["miss"]
    check(f"{name} has no rule yet", miss.get("line") == line and miss["in_message"], miss)
miss = server.post(MESSAGES, dict(SECRETLY, system="Be brief.\nNow: 2", messages=[{"role": "user", "content": "a\nb: 1"}])).json["usage"]["miss"]
check("a line of the user's", "line" not in miss, miss)
server.stop()

# ---- Keys, ids, failures

server = Server(WEIR, "--api-key", "secret", "-np", "1", model="fake:tick_us=2000,fail_pass=20")
refused("no key", server.post(MESSAGES, HELLO), 401, "authentication_error")
reply = server.post(MESSAGES, HELLO, headers=["X-Api-Key: secret", "anthropic-version: 2023-06-01", "anthropic-beta: some-beta"])
check("a key as Anthropic's clients send it", reply.status == 200, reply.body)
connection = server.connect()
connection.request("POST", MESSAGES + "?beta=true", dict(HELLO, max_tokens=50, ignore_eos=True, stream=True), headers=["X-Api-Key: secret"])
status, _ = connection.head()
events = list(connection.events())
check("an error after the start", status == 200 and json.loads(events[-1])["type"] == "error" and json.loads(events[-1])["error"]["type"] == "api_error", status, events[-2:])
connection.close()
server.stop()
server = Server(WEIR, "-np", "1", "-c", "8192", "-b", "64", "--sse-ping-interval", "1", model="fake:tick_us=40000,n_ctx_train=8192")
events = [name for name, _ in server.named_events(MESSAGES, dict(HELLO, max_tokens=3, messages=[{"role": "user", "content": "x" * 6000}]))]
check("pings while the prompt is computed", events[0] == "message_start" and "ping" in events[1:events.index("content_block_start")], events)
server.stop()

finish()
