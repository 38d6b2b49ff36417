"""Responses that are kept: store, previous_response_id, GET, DELETE and input_items of /v1/responses; on the fake model, whose text depends on
every token of the prompt."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
RESPONSES = "/v1/responses"
SHORT = {"max_output_tokens": 8, "temperature": 0}

need_server(WEIR)
server = Server(WEIR, "-np", "2", "--api-key", "one", "--api-key", "two")


def post(body, key="one", path=RESPONSES, **more):
    return server.post(path, {**SHORT, **body}, key=key, **more)


def get(path, key="one", method="GET"):
    return server.ask(method, path, key=key)


def missing(name, reply, status=404, field="response_id", code="not_found"):
    check(f"{name}: {status}", reply.status == status and reply.error["param"] == field and reply.error["code"] == code, reply.status, reply.body)


def text_of(response):
    return response["output"][0]["content"][0]["text"]


# ---- Kept and read

reply = post({"input": "hello", "instructions": "Be brief.", "metadata": {"a": "b"}})
first = reply.json
check("kept unless it says otherwise", first["store"] is True, first)
check("read again, as it was", get(f"{RESPONSES}/{first['id']}").json == first)
check("without /v1", get(f"/responses/{first['id']}").json == first)
check("HEAD", get(f"{RESPONSES}/{first['id']}", method="HEAD").status == 200)
streamed = server.connect()
streamed.request("POST", RESPONSES, {**SHORT, "input": "hello", "instructions": "Be brief.", "stream": True, "store": True}, key="one")
streamed.head()
events = [json.loads(e) for e in streamed.events()]
last = events[-1]["response"]
check("a stream's is kept, too", get(f"{RESPONSES}/{last['id']}").json == last and text_of(last) == text_of(first) and last["store"] is True, last)
for path in ("", "/input_items"):
    for name, reply in (("another key", get(f"{RESPONSES}/{first['id']}{path}", key="two")), ("another id", get(f"{RESPONSES}/resp_0{path}")), ("a long id", get(f"{RESPONSES}/{'x' * 200}{path}"))):
        missing(f"{name}{path}", reply)
missing("another key deletes nothing", get(f"{RESPONSES}/{first['id']}", key="two", method="DELETE"))
check("no key", server.get(f"{RESPONSES}/{first['id']}").status == 401)
gone = post({"input": "hello", "store": False}).json
check("not kept if it says so", gone["store"] is False and get(f"{RESPONSES}/{gone['id']}").status == 404, gone)
check("POST", server.post(f"{RESPONSES}/{first['id']}", {}, key="one").status == 405)
check("an argument", get(f"{RESPONSES}/{first['id']}?colour=red").status == 400)

# ---- Continued: the same as with the whole conversation

second = post({"input": [{"role": "user", "content": "and now?"}], "previous_response_id": first["id"]}).json
whole = post({"input": [{"role": "user", "content": "hello"}, *first["output"], {"role": "user", "content": "and now?"}], "store": False}).json
check("continued: as the whole conversation, without the instructions", text_of(second) == text_of(whole) and second["usage"]["input_tokens"] == whole["usage"]["input_tokens"] and
      second["previous_response_id"] == first["id"], second, whole)
third = post({"input": "go on", "previous_response_id": second["id"], "instructions": "Be brief."}).json
whole = post({"input": [{"role": "user", "content": "hello"}, *first["output"], {"role": "user", "content": "and now?"}, *second["output"], {"role": "user", "content": "go on"}],
              "instructions": "Be brief.", "store": False}).json
check("and again", text_of(third) == text_of(whole), third, whole)
count = server.post(RESPONSES + "/input_tokens", {"input": "go on", "previous_response_id": second["id"], "instructions": "Be brief."}, key="one").json
check("its tokens are counted", count["input_tokens"] == third["usage"]["input_tokens"], count, third["usage"])
branch = post({"input": "elsewhere", "previous_response_id": first["id"], "store": False}).json
check("continued twice", branch["status"] in ("completed", "incomplete") and get(f"{RESPONSES}/{branch['id']}").status == 404, branch)
for name, reply in (("another key's", post({"input": "x", "previous_response_id": first["id"]}, key="two")), ("one that is not there", post({"input": "x", "previous_response_id": "resp_1"})),
                    ("one that was not kept", post({"input": "x", "previous_response_id": gone["id"]}))):
    missing("to continue " + name, reply, 400, "previous_response_id", "previous_response_not_found")
for body, field in (({"previous_response_id": 5}, "previous_response_id"), ({"conversation": "x"}, "conversation"), ({"store": "yes"}, "store")):
    check(f"refused: {field}", post({"input": "x", **body}).error["param"] == field)

# ---- Items of the input

items = get(f"{RESPONSES}/{first['id']}/input_items").json
check("a text is a message", items["object"] == "list" and items["has_more"] is False and [{k: v for k, v in i.items() if k != "id"} for i in items["data"]] == [
    {"role": "user", "content": [{"type": "input_text", "text": "hello"}], "type": "message"}] and items["first_id"] == items["last_id"] == items["data"][0]["id"], items)
calls = [{"role": "user", "content": "a"}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": "{}"},
         {"type": "function_call_output", "call_id": "1", "output": "y"}]
made = post({"input": calls}).json
listed = get(f"{RESPONSES}/{made['id']}/input_items?order=asc").json["data"]
check("items in their order, with ids", [i["type"] for i in listed] == ["message", "reasoning", "function_call", "function_call_output"] and listed[2] == calls[2] and len({i["id"] for i in listed}) == 4, listed)
check("the newest first, unless asked", get(f"{RESPONSES}/{made['id']}/input_items").json["data"] == listed[::-1])
page = get(f"{RESPONSES}/{made['id']}/input_items?order=asc&limit=2&after={listed[0]['id']}").json
check("a page", page["data"] == listed[1:3] and page["has_more"] is True and (page["first_id"], page["last_id"]) == (listed[1]["id"], listed[2]["id"]), page)
check("the last page", get(f"{RESPONSES}/{made['id']}/input_items?order=asc&after={listed[2]['id']}").json["data"] == listed[3:])
more = post({"input": "more", "previous_response_id": made["id"]})
check("calls and reasoning are continued", more.status == 200, more.body)
for what in ("order=up", "limit=0", "limit=101", "limit=x", "page=2"):
    check("refused: " + what, get(f"{RESPONSES}/{made['id']}/input_items?{what}").status == 400)

# ---- References to items: the same prompt as with the items themselves, and as with previous_response_id


def refer(*items, **more):
    return [{"id": i["id"], **more} if isinstance(i, dict) else {"id": i, **more} for i in items]


def ask_for(name, reply, usage, expected):
    check(name, reply.status == 200 and text_of(reply.json) == text_of(expected) and reply.json["usage"]["input_tokens"] == usage, reply.body, expected)


told = {"role": "user", "content": "and now?"}
begun = post({"input": "hello"}).json
asked = get(f"{RESPONSES}/{begun['id']}/input_items").json["data"]
by_id = post({"input": [told], "previous_response_id": begun["id"]}).json
tokens = by_id["usage"]["input_tokens"]
full = [{"role": "user", "content": "hello"}, *begun["output"], told]
ask_for("items in full", post({"input": full}), tokens, by_id)
for more in ({}, {"type": "item_reference"}, {"type": None}):
    ask_for(f"a reference to an answer {more}", post({"input": [full[0], *refer(*begun["output"], **more), told]}), tokens, by_id)
    ask_for(f"and to what was asked {more}", post({"input": [*refer(*asked, *begun["output"], **more), told]}), tokens, by_id)
count = server.post(RESPONSES + "/input_tokens", {"input": [*refer(*asked, *begun["output"]), told]}, key="one").json
check("references are counted", count["input_tokens"] == tokens, count, tokens)
streamed = server.connect()
streamed.request("POST", RESPONSES, {**SHORT, "input": [*refer(*asked, *begun["output"]), told], "stream": True}, key="one")
streamed.head()
last = json.loads(list(streamed.events())[-1])["response"]
check("and streamed", text_of(last) == text_of(by_id) and last["usage"]["input_tokens"] == tokens, last, by_id)
turn = post({"input": [*refer(*asked, *begun["output"]), told]}).json
kept = get(f"{RESPONSES}/{turn['id']}/input_items?order=asc").json["data"]
check("what is kept has the items", [i["id"] for i in kept[:2]] == [asked[0]["id"], begun["output"][0]["id"]] and kept[1]["content"][0]["text"] == text_of(begun), kept)
after = post({"input": [{"role": "user", "content": "go on"}], "previous_response_id": turn["id"]}).json
ask_for("a turn later", post({"input": [*refer(*asked, *begun["output"], *kept[2:], *turn["output"]), {"role": "user", "content": "go on"}]}), after["usage"]["input_tokens"], after)
check("the first response is deleted", get(f"{RESPONSES}/{begun['id']}", method="DELETE").status == 200)
ask_for("its items are those of the turns after it", post({"input": [*refer(*asked, *begun["output"]), told]}), tokens, by_id)

# ---- References to calls and to reasoning

plain = post({"input": calls}).json
for some in ([1], [2], [1, 2], [0, 1, 2], [0, 1, 2, 3]):
    mixed = [refer(i)[0] if k in some else calls[k] for k, i in enumerate(listed)]
    ask_for(f"references {some} of a message, reasoning, a call and its output", post({"input": mixed}), plain["usage"]["input_tokens"], plain)
ask_for("an id that a client chose", post({"input": [calls[0], calls[1], {"type": "item_reference", "id": "fc_1"}, calls[3]]}), plain["usage"]["input_tokens"], plain)

# ---- References that are refused


def refused(name, items, field, word, key="one", code="item_not_found"):
    reply = post({"input": items}, key=key, headers=STRICT)
    check(f"refused: {name}", reply.status == 400 and reply.error["param"] == field and reply.error["code"] == code and word in reply.error["message"], reply.status, reply.body)


unkept = post({"input": "hello", "store": False}).json
for name, key, identity in (("of another key", "two", turn["output"][0]["id"]), ("that nobody made", "one", "msg_0_0"), ("of an answer that is not kept", "one", unkept["output"][0]["id"]),
                            ("without a token", "one", "x"), ("an empty id", "one", ""), ("a long id", "one", "msg_" + "0" * 300 + "_0"), ("a response", "one", turn["id"]),
                            ("an item that the response does not have", "one", turn["output"][0]["id"][:-1] + "7")):
    refused(name, [told, {"id": identity}], "input[1].id", "\"store\": false", key)
refused("no string", [{"type": "item_reference", "id": 5}], "input[0].id", "string", code="invalid_value")
refused("no id", [{"type": "item_reference"}], "input[0].id", "string", code="invalid_value")
refused("another member", [{"type": "item_reference", "id": "msg_1", "text": "x"}], "input[0].text", "not supported", code="unknown_parameter")
[mine] = turn["output"]
refused("twice", [*refer(mine, mine), told], "input[1].id", "already", code="invalid_value")
refused("beside the item", [*refer(mine), mine, told], "input[0].id", "already", code="invalid_value")
reply = post({"input": [*refer(mine), told], "previous_response_id": turn["id"]})
check("refused: beside the response that has it", reply.status == 400 and reply.error["param"] == "input[0].id" and "already" in reply.error["message"], reply.body)

# ---- Deleted

deleted = get(f"{RESPONSES}/{second['id']}", method="DELETE")
check("deleted", deleted.json == {"id": second["id"], "object": "response", "deleted": True}, deleted.body)
missing("and gone", get(f"{RESPONSES}/{second['id']}"))
missing("once", get(f"{RESPONSES}/{second['id']}", method="DELETE"))
check("what continued it remains", get(f"{RESPONSES}/{third['id']}").json == third)
check("and can be continued", post({"input": "x", "previous_response_id": third["id"]}).status == 200)
server.stop()

# ---- In the background

server = Server(WEIR, "-np", "2", "--resume-grace", "1", "--api-key", "one", "--api-key", "two", "--operator-key", "boss", model="fake:tick_us=10000")
LONG = {"input": "hello", "max_output_tokens": 250, "temperature": 0}


def ends(identity, states=("queued", "in_progress")):
    end = time.monotonic() + PATIENCE
    while (answer := get(f"{RESPONSES}/{identity}").json)["status"] in states and time.monotonic() < end:
        time.sleep(0.05)
    return answer


whole = post(LONG).json
reply = post({**LONG, "background": True})
begun = reply.json
longer = post({**LONG, "background": True, "max_output_tokens": 3000}).json
check("in the background: answered at once", reply.status == 200 and (begun["status"], begun["output"], begun["background"], begun["store"]) == ("in_progress", [], True, True) and
      reply.headers["content-type"] == "application/json", reply.body)
check("it runs", get(f"{RESPONSES}/{longer['id']}").json["status"] == "in_progress")
missing("to another key it is not there", get(f"{RESPONSES}/{longer['id']}", key="two"))
missing("nor to be cancelled", server.post(f"{RESPONSES}/{longer['id']}/cancel", {}, key="two"))
check("what runs is not deleted", get(f"{RESPONSES}/{longer['id']}", method="DELETE").status == 400)
server.post(f"{RESPONSES}/{longer['id']}/cancel", {}, key="one")
done = ends(begun["id"])
check("it ends without a reader, long after the grace of streams", (done["status"], text_of(done)) == (whole["status"], text_of(whole)) and done["usage"]["output_tokens"] == 250, done, whole)
check("and can be continued", post({"input": "x", "previous_response_id": begun["id"]}).status == 200)
check("a cancel of what has ended changes nothing", server.post(f"{RESPONSES}/{begun['id']}/cancel", {}, key="one").json == done)
reply = server.post(f"{RESPONSES}/{whole['id']}/cancel", {}, key="one")
check("what did not run in the background cannot be cancelled", reply.status == 400 and "background" in reply.error["message"], reply.body)


def n_cancelled(metrics):
    return sum(value for name, value in metrics.items() if name.startswith("weir_cancelled_total"))


at_first = server.metrics(key="boss")
before = n_cancelled(at_first)
begun = post({**LONG, "background": True, "max_output_tokens": 3000}).json
server.wait_for(lambda m: m["weir_generated_tokens_total"] > at_first["weir_generated_tokens_total"] + 100, key="boss")
cancelled = server.post(f"{RESPONSES}/{begun['id']}/cancel", {}, key="one").json
check("cancelled", cancelled["status"] == "cancelled" and cancelled["id"] == begun["id"] and cancelled["output"][-1]["status"] == "incomplete", cancelled)
check("and kept so", get(f"{RESPONSES}/{begun['id']}").json == cancelled)
check("its slot is free", server.is_idle(key="one"))
after = n_cancelled(server.wait_for(lambda m: n_cancelled(m) > before, key="boss"))
check("before the answer's own end", after == before + 1, before, after)

connection = server.connect()
connection.request("POST", RESPONSES, {**SHORT, **LONG, "background": True, "stream": True}, key="one")
connection.head()
events = connection.events()
begin = [json.loads(next(events)) for _ in range(8)]
connection.close()
identity = begin[0]["response"]["id"]
rest = server.connect()
rest.request("GET", f"{RESPONSES}/{identity}?stream=true&starting_after={begin[-1]['sequence_number']}", key="one")
status, headers = rest.head()
later = [json.loads(e) for e in rest.events() if not e.startswith(":")]
numbers = [e["sequence_number"] for e in begin + later]
check("a stream in the background is read on", status == 200 and numbers == list(range(len(numbers))) and later[-1]["type"] == "response.incomplete" and
      text_of(later[-1]["response"]) == text_of(whole), numbers, later[-1])
rest.close()
check("and is kept", get(f"{RESPONSES}/{identity}").json == later[-1]["response"])
again = server.connect()
again.request("GET", f"{RESPONSES}/{identity}?stream=true&include%5B%5D=reasoning.encrypted_content", key="one")
status, headers = again.head()
lines = [event.split("\n") for event in b"".join(again.chunks()).decode().split("\n\n") if event and not event.startswith(":")]
check("its events have numbers and names", len(lines) == len(numbers) and all([f"id: {i + 1}", "event: " + json.loads(data[6:])["type"]] == [number, name] for i, (number, name, data) in enumerate(lines)), lines[:3])
check("include has no effect", status == 200 and headers.get("x-weir-relaxed") == "include" and get(f"{RESPONSES}/{identity}?include[]=x").json == later[-1]["response"], status, headers)
again.close()
missing("events of what was not in the background", get(f"{RESPONSES}/{whole['id']}?stream=true"))
check("an event that is not there", get(f"{RESPONSES}/{identity}?stream=true&starting_after=99999").status == 400)
check("refused: not kept, in the background", post({**LONG, "background": True, "store": False}).error["param"] == "background")
server.stop()
server = Server(WEIR, "--resume-grace", "0")
check("refused: in the background without streams", server.post(RESPONSES, {"input": "x", "background": True}).error["param"] == "background")
server.stop()

# ---- Limits

server = Server(WEIR, "--response-memory", "100K", "--response-keep", "2")
kept = [server.post(RESPONSES, {**SHORT, "input": "x" * 2000}).json["id"] for _ in range(40)]
alive = [server.get(f"{RESPONSES}/{i}").status == 200 for i in kept]
check("room for some: the oldest ones go", 5 < sum(alive) < 40 and alive == sorted(alive), alive)
big = server.post(RESPONSES, {**SHORT, "input": "x" * 150000})
check("one that is too long to be read", big.status == 400)
end = time.monotonic() + PATIENCE
while any(server.get(f"{RESPONSES}/{i}").status == 200 for i in kept[-3:]) and time.monotonic() < end:
    time.sleep(0.1)
check("after its time it goes", all(server.get(f"{RESPONSES}/{i}").status == 404 for i in kept[-3:]))
server.stop()
server = Server(WEIR, "--response-memory", "0")
reply = server.post(RESPONSES, {**SHORT, "input": "x"})
check("none is kept without memory", reply.json["store"] is False and server.get(f"{RESPONSES}/{reply.json['id']}").status == 404, reply.body)
reply = server.post(RESPONSES, {**SHORT, "input": "x", "store": True})
check("and store is named", reply.status == 200 and reply.json["store"] is False and reply.headers.get("x-weir-relaxed") == "store", reply.headers, reply.body)
reply = server.post(RESPONSES, {**SHORT, "input": "x", "store": True}, headers=STRICT)
check("and none can be asked for", reply.status == 400 and reply.error["param"] == "store" and "--response-memory" in reply.error["message"], reply.body)
server.stop()
finish()
