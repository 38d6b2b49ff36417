"""weir serve as clients of OpenAI's Responses API know it, on the fake model, whose text depends on every token of the prompt: requests mean what
the same requests for chat completions mean, events come in OpenAI's order, and what is not honoured is refused by name."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, RESPONSES, COUNT = "/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens"
HELLO = {"input": "hello", "max_output_tokens": 8, "temperature": 0, "store": False}
SAME = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
TOWN = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": False}
TOOLS = [{"type": "function", "name": "weather", "description": "the weather", "parameters": TOWN}, {"type": "function", "name": "clock", "description": "the time", "parameters": None}]
CHAT_TOOLS = [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["parameters"]}} for t in TOOLS]
CALL = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "weather", "arguments": '{"town":"Ulm"}', "status": "completed"}
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town":"Ulm"}'}}

CUSTOM = [{"type": "custom", "name": "note", "description": "takes notes"},
          {"type": "custom", "name": "letters", "description": "letters", "format": {"type": "grammar", "syntax": "regex", "definition": "[ab]{3}|c"}}]
SPACE = {"type": "namespace", "name": "towns", "description": "of towns", "tools": [TOOLS[0]]}
CHAT_SPACE = {"type": "function", "function": dict(CHAT_TOOLS[0]["function"], name="towns.weather", description="of towns\n\nthe weather")}


def said(text):
    return {"role": "user", "content": text}


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


def stream(server, body):
    """Data of all events, which are numbered."""
    events = [data for _, data in server.named_events(RESPONSES, body)]
    assert [data["sequence_number"] for data in events] == list(range(len(events))), events
    return events


need_server(WEIR)
server = Server(WEIR, "--alias", "tiny", "-np", "2")

# ---- What a request means

for name, body, chat in [
        ("a string", {}, {}), ("a message", {"input": [said("hello")]}, {}),
        ("a message in full", {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}], "id": "msg_1", "status": "completed"}]}, {}),
        ("instructions", {"instructions": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, said("hello")]}),
        ("instructions, and what a developer says first", {"instructions": "Be brief.", "input": [{"role": "developer", "content": "Be kind."}, said("hello")]},
         {"messages": [{"role": "system", "content": text("Be brief.", "Be kind.")}, said("hello")]}),
        ("a developer in between", {"input": [said("a"), {"role": "developer", "content": "Be kind."}, said("hello")]},
         {"messages": [said("a"), {"role": "developer", "content": "Be kind."}, said("hello")]}),
        ("turns", {"input": [said("a"), {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "b", "annotations": []}]}, said("c")]},
         {"messages": [said("a"), {"role": "assistant", "content": "b"}, said("c")]}),
        ("a turn of many items", {"input": [said("a"), {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": None},
                                            {"role": "assistant", "content": "Wait."}, CALL, dict(CALL, call_id="2", name="clock", arguments="{}"),
                                            {"type": "function_call_output", "call_id": "1", "output": "sunny"},
                                            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "noon"}]}, said("And now?")]},
         {"messages": [said("a"), {"role": "assistant", "reasoning_content": "hm", "content": "Wait.", "tool_calls": [
             CHAT_CALL, {"id": "2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
             {"role": "tool", "tool_call_id": "1", "content": "sunny"}, {"role": "tool", "tool_call_id": "2", "content": "noon"}, said("And now?")]}),
        ("a summary of reasoning", {"input": [said("a"), {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, {"role": "assistant", "content": "b"}, said("c")]},
         {"messages": [said("a"), {"role": "assistant", "reasoning_content": "hm", "content": "b"}, said("c")]}),
        ("tools that may not be called", {"tools": TOOLS, "tool_choice": "none"}, {"tools": CHAT_TOOLS, "tool_choice": "none"}),
        ("tools of a namespace", {"tools": [TOOLS[0], SPACE], "tool_choice": "none", "input": [said("a"), dict(CALL, namespace="towns"), {"type": "function_call_output", "call_id": "1", "output": "x"}]},
         {"tools": [CHAT_TOOLS[0], CHAT_SPACE], "tool_choice": "none", "messages": [
             said("a"), {"role": "assistant", "content": None, "tool_calls": [dict(CHAT_CALL, function=dict(CHAT_CALL["function"], name="towns.weather"))]},
             {"role": "tool", "tool_call_id": "1", "content": "x"}]}),
        ("custom tools", {"tools": CUSTOM, "tool_choice": "none", "input": [
            said("a"), {"type": "custom_tool_call", "id": "ctc_1", "call_id": "1", "name": "note", "input": 'say "x"\n', "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "1", "output": "done"}]},
         {"tools": [{"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": {
             "type": "object", "properties": {"input": dict({"type": "string"}, **({"pattern": "^(?:[ab]{3}|c)$"} if "format" in t else {}))},
             "required": ["input"], "additionalProperties": False}, "strict": True}} for t in CUSTOM], "tool_choice": "none", "messages": [
             said("a"), {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "note", "arguments": json.dumps({"input": 'say "x"\n'}, separators=(",", ":"))}}]},
             {"role": "tool", "tool_call_id": "1", "content": "done"}]}),
        ("sampling", {"temperature": 1, "seed": 7, "top_p": 0.9}, {"temperature": 1, "seed": 7, "top_p": 0.9}),
        ("notes", {"metadata": {"a": "b"}, "user": "x", "service_tier": "auto", "prompt_cache_key": "x", "safety_identifier": "x", "model": "tiny", "background": False, "truncation": "disabled",
                   "reasoning": {"effort": None, "summary": "auto"}, "text": {"format": {"type": "text"}, "verbosity": "medium"}, "include": ["reasoning.encrypted_content"],
                   "parallel_tool_calls": True, "max_tool_calls": 3, "previous_response_id": None, "client_metadata": {"a": "b"}, "top_logprobs": 0}, {})]:
    mine, other = server.post(RESPONSES, dict(HELLO, **body)), server.post(CHAT, dict(SAME, **chat))
    same = mine.status == other.status == 200 and [c["text"] for c in mine.json["output"][0]["content"]] == [other.json["choices"][0]["message"]["content"]]
    check(f"{name}: as chat completions", same, mine.body, other.body)
    usage, n = mine.json["usage"], other.json["usage"]["prompt_tokens"]
    count = server.post(COUNT, {k: v for k, v in dict(HELLO, **body).items() if k != "max_output_tokens"})
    check(f"{name}: its tokens", count.json == {"object": "response.input_tokens", "input_tokens": n} and usage["input_tokens"] == n, usage, count.body, n)

# ---- Whole answers

def echoes(body):
    """The texts of the numbers that the answer of a body's bytes repeats: whole, in each event, and kept."""
    connection = server.connect()
    connection.request("POST", RESPONSES, body.replace(b"{", b'{"stream": true, "store": true, ', 1))
    connection.head()
    events = list(connection.events())
    connection.close()
    whole = server.post(RESPONSES, body.replace(b"{", b'{"store": true, ', 1))
    kept = server.get(f"{RESPONSES}/{whole.json['id']}")
    for text in (whole.body.decode(), kept.body.decode(), *(e for e in events if '"response":{' in e)):
        yield tuple(re.findall(rf'"{name}":([^,}}]*)', text)[0] for name in ("temperature", "top_p", "max_output_tokens", "x"))


# The bytes of numbers, and what they are in an answer; null means the server's own.
own = server.get("/props").json["default_generation_settings"]["params"]
for given, wanted in ((("0.1", "0.9", "7", "0.1"), None), (("1", "1", "3", "12345678901234567890"), None), (("0.123456789012", "0.3", "2", "-0.0"), None),
                      (("1e-7", "0.30000000000000004", "2", "1e300"), ("1e-07", "0.30000000000000004", "2", "1e+300")), (("2.0", "5e-1", "2", "100"), ("2.0", "0.5", "2", "100")),
                      (("null", "null", "2", "3.14159265358979"), (json.dumps(own["temperature"]), json.dumps(own["top_p"]), "2", "3.14159265358979"))):
    schema = '{"type": "object", "properties": {"y": {"const": 1}, "z": {"default": 2}}, "x": %s}' % given[3]
    raw = '{"input": "hello", "temperature": %s, "top_p": %s, "max_output_tokens": %s, "tool_choice": "none", "tools": [{"type": "function", "name": "f", "parameters": %s}]}' % (*given[:3], schema)
    for got in echoes(raw.encode()):
        check(f"numbers as they came: {given}", got == (wanted or given), got, wanted)

answer = server.post(RESPONSES, dict(HELLO, instructions="Something else.", metadata={"a": "b"}, top_p=0.5)).json
[item] = answer["output"]
check("a whole answer", answer["id"].startswith("resp_") and (answer["object"], answer["model"], answer["status"], answer["error"], answer["store"], answer["background"]) ==
      ("response", "tiny", "incomplete", None, False, False) and answer["incomplete_details"] == {"reason": "max_output_tokens"} and
      (answer["instructions"], answer["metadata"], answer["top_p"], answer["max_output_tokens"], answer["tools"], answer["tool_choice"]) ==
      ("Something else.", {"a": "b"}, 0.5, 8, [], "auto"), answer)
check("its item", (item["type"], item["role"], item["status"]) == ("message", "assistant", "incomplete") and item["id"].startswith("msg_") and
      item["content"][0]["type"] == "output_text" and item["content"][0]["annotations"] == [], item)
again = server.post(RESPONSES, dict(HELLO, instructions="Something else.")).json["usage"]
check("what was cached", 0 < again["input_tokens_details"]["cached_tokens"] < again["input_tokens"] == answer["usage"]["input_tokens"] and
      again["total_tokens"] == again["input_tokens"] + again["output_tokens"] and again["output_tokens"] == 8, again)
server.end_without_llama(server.post(RESPONSES, dict(HELLO, tools=TOOLS, tool_choice="required")))
for choice in ({"type": "function", "name": "weather"}, {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}):
    call = server.post(RESPONSES, dict(HELLO, max_output_tokens=300, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)).json
    check(f"a call, {choice['type']}", call["status"] == "completed" and [i["type"] for i in call["output"]] == ["function_call"] and call["output"][0]["name"] == "weather" and
          call["output"][0]["call_id"] and json.loads(call["output"][0]["arguments"])["town"] in ("Ulm", "Bonn") and call["tools"] == TOOLS and call["tool_choice"] == choice, call)
spaced = dict(HELLO, max_output_tokens=300, tools=[SPACE], tool_choice="required", parallel_tool_calls=False)
for given in (server.post(RESPONSES, spaced).json, stream(server, spaced)[-1]["response"]):
    check("a call of a tool of a namespace", [(i["name"], i["namespace"]) for i in given["output"]] == [("weather", "towns")] and given["tools"] == [SPACE], given)
# A choice names a tool of a namespace by its full name, with the namespace beside it, or by its own name where no other has it.
for choice in ({"name": "towns.weather"}, {"name": "weather", "namespace": "towns"}, {"name": "weather"}):
    for given, tools in ((dict(choice, type="function"), [SPACE, TOOLS[1]]), ({"type": "allowed_tools", "mode": "required", "tools": [dict(choice, type="function"), {"type": "web_search"}]}, [TOOLS[1], SPACE])):
        reply = server.post(RESPONSES, dict(HELLO, max_output_tokens=300, tools=tools, tool_choice=given, parallel_tool_calls=False))
        check(f"a tool of a namespace, {given['type']} {choice}", reply.status == 200 and [(i["name"], i["namespace"]) for i in reply.json["output"]] == [("weather", "towns")] and
              reply.json["tool_choice"] == given, reply.body)
twice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}, {"type": "function", "name": "towns.weather"}]}
reply = server.post(RESPONSES, dict(HELLO, max_output_tokens=300, tools=[SPACE, TOOLS[1]], tool_choice=twice, parallel_tool_calls=False))
check("a tool that is allowed by both its names", reply.status == 200 and [i["name"] for i in reply.json["output"]] == ["weather"], reply.body)
for choice, space in (({"name": "weather"}, None), ({"name": "weather", "namespace": None}, None), ({"name": "weather", "namespace": "towns"}, "towns"), ({"name": "weather", "namespace": "seas"}, "seas")):
    reply = server.post(RESPONSES, dict(HELLO, max_output_tokens=300, tools=[SPACE, TOOLS[0], dict(SPACE, name="seas")], tool_choice=dict(choice, type="function"), parallel_tool_calls=False))
    check(f"of three tools of that name: {choice}", reply.status == 200 and [(i["name"], i.get("namespace")) for i in reply.json["output"]] == [("weather", space)], reply.body)
# A call that breaks off is not complete, and its conversation goes on: kept here, and as clients send it back.
towns = dict(HELLO, tools=TOOLS, tool_choice={"type": "function", "name": "weather"}, parallel_tool_calls=False)
whole = server.post(RESPONSES, dict(towns, max_output_tokens=300)).json
for n in range(whole["usage"]["output_tokens"] - 6, 0, -4):
    cut = server.post(RESPONSES, dict(towns, max_output_tokens=n, store=True)).json
    [part] = cut["output"]
    if not part["arguments"].rstrip().endswith("}"):
        break
check("a call that breaks off", (cut["status"], part["status"], part["type"]) == ("incomplete", "incomplete", "function_call") and
      whole["output"][0]["arguments"].startswith(part["arguments"]) and part["arguments"][-1:] not in ("}", ""), cut)
result = {"type": "function_call_output", "call_id": part["call_id"], "output": "it broke off"}
for name, body in (("kept", {"previous_response_id": cut["id"], "input": [result]}), ("sent back", {"input": [said("hello"), part, result]})):
    reply = server.post(RESPONSES, dict(HELLO, tools=TOOLS, **body))
    check(f"a call that broke off, {name}", reply.status == 200, reply.body)
form = server.post(RESPONSES, dict(HELLO, max_output_tokens=300, text={"format": {"type": "json_schema", "name": "town", "strict": True, "schema": TOWN}})).json
check("a form", json.loads(form["output"][0]["content"][0]["text"])["town"] in ("Ulm", "Bonn") and form["status"] == "completed" and form["incomplete_details"] is None, form)
mine = server.post(RESPONSES, dict(HELLO, text={"format": {"type": "json_object"}})).json["output"][0]["content"][0]["text"]
check("any object", mine == server.post(CHAT, dict(SAME, response_format={"type": "json_object"})).json["choices"][0]["message"]["content"] != item["content"][0]["text"], mine)

# ---- Events

events = stream(server, dict(HELLO, instructions="Something else."))
names = [data["type"][9:] for data in events]
check("the order of events", names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"] and
      names[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"] and set(names[4:-4]) == {"output_text.delta"}, names)
check("the text", "".join(data["delta"] for data in events[4:-4]) == events[-4]["text"] == events[-3]["part"]["text"] == item["content"][0]["text"], events, item)
first, last, added, done = events[0]["response"], events[-1]["response"], events[2]["item"], events[-2]["item"]
check("the response at first", first["status"] == "in_progress" and first["output"] == [] and first["usage"] is None and first["instructions"] == "Something else." and
      first == events[1]["response"], first)
check("the item", dict(added, status=done["status"], content=done["content"]) == done and added["content"] == [] and added["status"] == "in_progress" and
      all(data["item_id"] == done["id"] and (data["output_index"], data["content_index"]) == (0, 0) for data in events[3:-2]), added, done)
check("the response at last", last["output"] == [done] and last["status"] == "incomplete" and last["usage"]["output_tokens"] == 8 and
      {k: v for k, v in last.items() if k not in ("id", "created_at", "output", "usage", "metadata", "top_p")} ==
      {k: v for k, v in answer.items() if k not in ("id", "created_at", "output", "usage", "metadata", "top_p")}, last, answer)
events = stream(server, dict(HELLO, max_output_tokens=300, tools=TOOLS, tool_choice={"type": "function", "name": "weather"}))
names = [data["type"][9:] for data in events]
check("a call, streamed: the order", names[:3] == ["created", "in_progress", "output_item.added"] and names[-3:] == ["function_call_arguments.done", "output_item.done", "completed"] and
      set(names[3:-3]) == {"function_call_arguments.delta"}, names)
check("a call, streamed", events[2]["item"]["arguments"] == "" and events[2]["item"]["name"] == "weather" and "".join(data["delta"] for data in events[3:-3]) == events[-3]["arguments"] ==
      events[-2]["item"]["arguments"] == call["output"][0]["arguments"] and events[-1]["response"]["output"] == [events[-2]["item"]], events)

# ---- Custom tools

for definition in ("[ab]{3}|c", '[\\n"\\\\é😀]{12,14}', "(GET|POST) /[a-z]{1,8}"):
    tool = {"type": "custom", "name": "t", "description": "it", "format": {"type": "grammar", "syntax": "regex", "definition": definition}}
    for tools, given in (([tool], {"type": "custom", "name": "t"}), ([dict(SPACE, tools=[tool])], "required")):
        body = dict(HELLO, max_output_tokens=300, tools=tools, tool_choice=given, parallel_tool_calls=False)
        [item] = server.post(RESPONSES, body).json["output"]
        check(f"the input of a custom tool: {definition}", item["type"] == "custom_tool_call" and item["name"] == "t" and item["id"].startswith("ctc_") and item["call_id"] and
              item["status"] == "completed" and re.fullmatch(definition, item["input"]) and item.get("namespace") == (None if tools == [tool] else "towns"), item)
        events = stream(server, body)
        names = [data["type"][9:] for data in events]
        check("streamed: the order", names[:3] == ["created", "in_progress", "output_item.added"] and names[-3:] == ["custom_tool_call_input.done", "output_item.done", "completed"] and
              set(names[3:-3]) == {"custom_tool_call_input.delta"}, names)
        check("streamed: the input", "".join(data["delta"] for data in events[3:-3]) == events[-3]["input"] == events[-2]["item"]["input"] == item["input"] and
              events[2]["item"]["input"] == "" and events[-1]["response"]["output"] == [events[-2]["item"]], events, item)
EDIT = '''
start: head change+ tail   // as Codex's apply_patch is built
head: "*** Begin" LF
tail: "*** End" LF?
change: add | remove
add: "*** Add: " name LF ("+" /[a-z ]{0,6}/ LF)+
remove: "*** Remove: " name LF -> gone
name: /[a-z]{1,5}(\\/[a-z]{1,5})?/
%import common.LF
'''
NAME = "[a-z]{1,5}(?:/[a-z]{1,5})?"
edit = {"type": "custom", "name": "edit", "format": {"type": "grammar", "syntax": "lark", "definition": EDIT}}
[item] = server.post(RESPONSES, dict(HELLO, max_output_tokens=2000, tools=[edit], tool_choice="required", parallel_tool_calls=False, temperature=1, seed=3)).json["output"]
check("a grammar in Lark's syntax", item["status"] == "completed" and
      re.fullmatch(rf"\*\*\* Begin\n(?:\*\*\* Add: {NAME}\n(?:\+[a-z ]{{0,6}}\n)+|\*\*\* Remove: {NAME}\n)+\*\*\* End\n?", item["input"]), item)
body = dict(HELLO, max_output_tokens=60, tools=CUSTOM[:1], tool_choice="required", parallel_tool_calls=False)
[item] = server.post(RESPONSES, body).json["output"]
events = stream(server, body)
check("an input that is cut", item["status"] == "incomplete" and item["input"] and events[-1]["type"] == "response.incomplete" and
      "".join(data["delta"] for data in events if data["type"].endswith("input.delta")) == events[-2]["item"]["input"] == item["input"], item, events[-2:])
first = server.post(RESPONSES, dict(HELLO, store=True, max_output_tokens=300, tools=CUSTOM, tool_choice={"type": "custom", "name": "letters"})).json
[item] = first["output"]
said_again = [said("hello"), item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "x"}]
check("a kept call goes on", server.post(RESPONSES, dict(HELLO, previous_response_id=first["id"], tools=CUSTOM, tool_choice="none", input=said_again[2:])).json["output"][0]["content"] ==
      server.post(RESPONSES, dict(HELLO, input=said_again, tools=CUSTOM, tool_choice="none")).json["output"][0]["content"], first)

# ---- Logprobs

SCORED = dict(HELLO, max_output_tokens=24, include=["message.output_text.logprobs"], top_logprobs=3)
want = server.post(CHAT, dict(SAME, max_tokens=24, logprobs=True, top_logprobs=3)).json["choices"][0]["logprobs"]["content"]
whole = server.post(RESPONSES, SCORED).json
part = whole["output"][0]["content"][0]
check("logprobs are those of chat completions", part["logprobs"] == want and len(want) == 24 and len(want[0]["top_logprobs"]) == 3 and whole["top_logprobs"] == 3, part, want)
events = stream(server, SCORED)
check("streamed, in pieces", [e for data in events if data["type"].endswith("text.delta") for e in data["logprobs"]] == want ==
      [data["logprobs"] for data in events if data["type"].endswith("text.done")][0] == events[-1]["response"]["output"][0]["content"][0]["logprobs"] and
      len([data for data in events if data["type"].endswith("text.delta")]) > 1, events)
check("without the likeliest others", all(e["top_logprobs"] == [] for e in server.post(RESPONSES, dict(SCORED, top_logprobs=0)).json["output"][0]["content"][0]["logprobs"]))
answer = server.post(RESPONSES, dict(SCORED, tools=TOOLS, tool_choice="required", max_output_tokens=300)).json
check("a call has none", [i["type"] for i in answer["output"]] == ["function_call"] and "logprobs" not in json.dumps(answer["output"]), answer)

# ---- Refusals


def refused(name, reply, status, field=None, word=""):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: {status}" + (f", {field}" if field else ""), reply.status == status and error["param"] == field and
          word in error["message"] and (field is None or "/" in field or word or field in error["message"]), reply.status, reply.body)


for given, unmet in (("24h", "prompt_cache_retention"), (None, None)):
    reply = server.post(RESPONSES, dict(HELLO, prompt_cache_retention=given))
    check(f"prompt_cache_retention: {given}", reply.status == 200 and reply.headers.get("x-weir-relaxed") == unmet, reply.headers, reply.body)
for name, body, field, *word in [
        ("no input", {"input": []}, "input"), ("input of another type", {"input": 5}, "input"), ("an item of another type", {"input": ["x"]}, "input[0]"),
        ("a role", {"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ("content", {"input": [{"role": "user", "content": 5}]}, "input[0].content"), ("a member of an item", {"input": [dict(said("x"), colour="red")]}, "input[0].colour"),
        ("a file", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input[0].content[0]"),
        ("a part without a text", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]"),
        ("an image of a file", {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]}, "input[0].content[0].file_id"),
        ("an image", {"input": [said("x"), {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]}, "input[1].content[0]", "--mmproj"),
        ("a call without a name", {"input": [said("x"), {k: v for k, v in CALL.items() if k != "name"}]}, "input[1]"),
        ("a result without a call", {"input": [{"type": "function_call_output", "output": "x"}]}, "input[0]"),
        ("reasoning that cannot be read", {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, said("x")]}, "input[0].encrypted_content"),
        ("instructions", {"instructions": 5}, "instructions"),
        ("a custom tool without a name", {"tools": [{"type": "custom"}]}, "tools[0].name"),
        ("a member of a custom tool", {"tools": [dict(CUSTOM[0], parameters={})]}, "tools[0].parameters"),
        ("a format of a custom tool", {"tools": [dict(CUSTOM[0], format={"type": "json"})]}, "tools[0].format"),
        ("a member of a format", {"tools": [dict(CUSTOM[0], format=dict(CUSTOM[1]["format"], flags="i"))]}, "tools[0].format.flags"),
        ("another syntax", {"tools": [dict(CUSTOM[0], format={"type": "grammar", "syntax": "gbnf", "definition": "x"})]}, "tools[0].format.syntax", "lark"),
        ("Lark with recursion", {"tools": [dict(CUSTOM[0], format={"type": "grammar", "syntax": "lark", "definition": "start: a\na: \"(\" a \")\" |"})]}, "tools[0].format.definition", "contains itself"),
        ("Lark with an expression that cannot be enforced", {"tools": [dict(CUSTOM[0], format={"type": "grammar", "syntax": "lark", "definition": "start: /(?=a)b/"})]}, "tools[0].format.definition", "enforced"),
        ("a format without a definition", {"tools": [dict(CUSTOM[0], format={"type": "grammar", "syntax": "regex"})]}, "tools[0].format.definition"),
        ("a regular expression", {"tools": [dict(CUSTOM[0], format={"type": "grammar", "syntax": "regex", "definition": "(a"})]}, "tools[0].format.definition"),
        ("one that cannot be enforced", {"tools": [dict(SPACE, tools=[dict(CUSTOM[0], format={"type": "grammar", "syntax": "regex", "definition": "(?=a)b"})])]},
         "tools[0].tools[0].format.definition", "enforced"),
        ("a call without an input", {"input": [said("x"), {"type": "custom_tool_call", "call_id": "1", "name": "x"}]}, "input[1]"),
        ("a custom tool that is not there", {"tools": CUSTOM, "tool_choice": {"type": "custom", "name": "x"}}, "tool_choice"), ("a tool's name", {"tools": [{"type": "function", "name": "a b", "parameters": {}}]}, "tools[0].name"),
        ("a tool's parameters", {"tools": [{"type": "function", "name": "x", "parameters": 5}]}, "tools[0].parameters"),
        ("a member of a tool", {"tools": [dict(TOOLS[0], defer_loading=True)]}, "tools[0].defer_loading"),
        ("a strict schema", {"tools": [dict(TOOLS[0], strict=True, parameters={"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}})]}, "tools/0/parameters/properties/n"),
        ("a strict schema in a namespace", {"tools": [TOOLS[0], dict(SPACE, tools=[TOOLS[1], dict(TOOLS[0], strict=True, parameters={
            "type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}})])]}, "tools/1/tools/1/parameters/properties/n"),
        ("a tool's name in a namespace", {"tools": [dict(SPACE, tools=[dict(TOOLS[0], name="a b")])]}, "tools[0].tools[0].name"),
        ("a tool without a name in a namespace", {"tools": [dict(SPACE, tools=[{"type": "function"}])]}, "tools[0].tools[0].name"),
        ("a namespace's description", {"tools": [dict(SPACE, description=5)]}, "tools[0].description"),
        ("a description that each tool would repeat", {"tools": [dict(SPACE, description="x" * 70000)]}, "tools[0].description"),
        ("too many tools", {"tools": [dict(SPACE, tools=[dict(TOOLS[0], name=f"f{i}") for i in range(1025)])]}, "tools", "at most 1024"),
        ("too many namespaces", {"tools": [dict(SPACE, name=f"s{i}") for i in range(257)]}, "tools", "at most 256"),
        ("a namespace without tools", {"tools": [{"type": "namespace", "name": "x"}]}, "tools[0]"),
        ("a schema that cannot be kept", {"text": {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": {"type": "array", "uniqueItems": True}}}}, "text/format/schema"),
        ("a format", {"text": {"format": {"type": "xml"}}}, "text.format.type"), ("verbosity", {"text": {"verbosity": "low"}}, "text.verbosity"),
        ("a choice of tools", {"tools": TOOLS, "tool_choice": "some"}, "tool_choice"), ("a server's tool, chosen", {"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ("a name of two namespaces", {"tools": [SPACE, TOOLS[1], dict(SPACE, name="seas")], "tool_choice": {"type": "function", "name": "weather"}}, "tool_choice", "several namespaces"),
        ("a name of two, allowed", {"tools": [SPACE, dict(SPACE, name="seas")], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}},
         "tool_choice", "several namespaces"),
        ("a namespace that lacks it", {"tools": [SPACE, TOOLS[1]], "tool_choice": {"type": "function", "name": "weather", "namespace": "seas"}}, "tool_choice", "seas.weather"),
        ("a namespace of a choice", {"tools": [SPACE], "tool_choice": {"type": "function", "name": "weather", "namespace": 5}}, "tool_choice.namespace"),
        ("a namespace of an allowed tool", {"tools": [SPACE], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TOOLS[1], {"type": "function", "name": "weather", "namespace": []}]}},
         "tool_choice.tools[1].namespace"),
        ("a choice without a name", {"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ("an allowed tool without one", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]}}, "tool_choice.tools[0].name"),
        ("no allowed tools", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
        ("a mode of allowed tools", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "some", "tools": [TOOLS[0]]}}, "tool_choice.mode"),
        ("a choice without tools", {"tool_choice": "required"}, "tool_choice"), ("a tool that is not there", {"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ("effort", {"reasoning": {"effort": "some"}}, "reasoning.effort"), ("a summary", {"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ("include", {"include": ["file_search_call.results"]}, "include"), ("top_logprobs alone", {"top_logprobs": 3}, "top_logprobs", "include"),
        ("top_logprobs", {"include": ["message.output_text.logprobs"], "top_logprobs": 21}, "top_logprobs"), ("store", {"store": 1}, "store"),
        ("a response of before", {"previous_response_id": "resp_1"}, "previous_response_id", "no response"), ("a conversation", {"conversation": "x"}, "conversation"),
        ("background", {"background": True}, "background"), ("truncation", {"truncation": "auto"}, "truncation"), ("max_tool_calls", {"max_tool_calls": "x"}, "max_tool_calls"), ("a prompt", {"prompt": {"id": "x"}}, "prompt"),
        ("usage in a stream", {"stream": True, "stream_options": {"include_usage": True}}, "stream_options.include_usage"), ("temperature", {"temperature": -1}, "temperature"),
        ("an unknown field", {"temprature": 1}, "temprature"), ("a field of chat completions", {"n": 2}, "n"), ("max_output_tokens", {"max_output_tokens": "x"}, "max_output_tokens")]:
    refused(name, server.post(RESPONSES, dict(HELLO, **body), headers=STRICT), 400, field, *word)
    refused(f"{name}, counted", server.post(COUNT, dict(HELLO, **body), headers=STRICT), 400, field, *word)
refused("another model", server.post(RESPONSES, dict(HELLO, model="gpt-5")), 404, "model", '"tiny"')
refused("many messages", server.post(RESPONSES, dict(HELLO, input=[said("x")] * 5000)), 400, "input", "4096 texts")
refused("a long prompt", server.post(RESPONSES, dict(HELLO, input="x " * 20000)), 400, "input", "40")
reply = server.post(RESPONSES, dict(HELLO, tools=[dict(TOOLS[0], parameters={"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}})], tool_choice="required"))
check("a schema that is not strict", reply.headers.get("x-weir-relaxed") == "tools/0/parameters/properties/n: multipleOf", reply.headers)
server.stop()

server = Server(WEIR, "-np", "1", model="fake:tick_us=2000,fail_pass=20")
events = stream(server, dict(HELLO, max_output_tokens=50, ignore_eos=True))
last = events[-1]
check("a failed answer's item is not complete", [i["status"] for i in last["response"]["output"]] == ["incomplete"], last)
check("an error after the start", last["type"] == "response.failed" and last["response"]["status"] == "failed" and last["response"]["error"]["code"] == "server_error" and
      last["response"]["error"]["message"] and last["response"]["output"][0]["content"][0]["text"], last)
server.stop()

finish()
