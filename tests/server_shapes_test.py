"""weir serve with templates that refuse conversations: messages are put into another form, which is told, in each dialect."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import templates  # noqa: E402
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, HEADER = "/v1/chat/completions", "x-weir-messages"
ROOT = os.environ.get("WEIR_LLAMA_SOURCE", "")
TEMPLATE = os.path.join(ROOT, "models", "templates", "Mistral-Small-3.2-24B-Instruct-2506.jinja")

need_server(WEIR)
if not ROOT or not os.path.exists(TEMPLATE):
    print("skipped: no templates of llama.cpp")
    sys.exit(77)


def said(role, content, **more):
    return dict({"role": role, "content": content}, **more)


def call(id):
    return said("assistant", None, tool_calls=[{"id": id, "type": "function", "function": {"name": "rain", "arguments": "{}"}}])


LONG = "call_0123456789abcdefghijklmn"
agent = [said("user", "one"), call(LONG), said("tool", "two", tool_call_id=LONG), said("user", "three")]
late = [said("user", "one"), said("assistant", "two"), said("system", "three"), said("user", "four")]
with Server(WEIR, "-c", "8192", "--chat-template-file", TEMPLATE) as server:
    reply = server.post("/apply-template", {"messages": late})
    prompt = reply.json.get("prompt", "")
    check("in place", "[INST]three\n\nfour[/INST]" in prompt, reply.body)
    check("told in the answer", reply.json["reshaped"] == [
        {"message": "messages[2]", "shape": "system_late"}, {"message": "messages[3]", "shape": "user_twice", "in": "messages[2]"}], reply.body)
    check("and in a header", reply.headers.get(HEADER) == "messages[2]: system_late; messages[3]: user_twice in messages[2]", reply.headers)
    reply = server.post("/apply-template", {"messages": agent})
    check("ids", "[CALL_ID]call00001" in reply.json["prompt"] and "[TOOL_RESULTS]call00001[TOOL_CONTENT]two\n\nthree[/TOOL_RESULTS]" in reply.json["prompt"] and
          LONG not in reply.json["prompt"], reply.body)
    reply = server.post("/v1/plan", {"messages": late})
    check("told by a plan", [m["shape"] for m in reply.json["reshaped"]] == ["system_late", "user_twice"], reply.body)
    reply = server.post("/v1/plan", {"messages": late[:2] + late[3:]})
    check("nothing to tell", "reshaped" not in reply.json and HEADER not in reply.headers, reply.body, reply.headers)
    # More than there is room for: the header and the list say so.
    lates = [said("user", "one"), said("assistant", "two")] + [said("system", "three"), said("assistant", "two")] * 300
    reply = server.post("/apply-template", {"messages": lates})
    names, listed = reply.headers.get(HEADER, "").split("; "), reply.json["reshaped"]
    check("a long list ends with a mark", names[-1] == "and more" and 50 < len(names) - 1 < len(listed) < 300 and reply.json.get("reshaped_more") is True, names, reply.json.get("reshaped_more"), len(listed))
    check("what is in it are the first ones", [n.split(":")[0] for n in names[:-1]] == [m["message"] for m in listed][:len(names) - 1] and listed[-1]["message"] == f"messages[{2 * len(listed)}]", names, listed[-1])
    reply = server.post("/apply-template", {"messages": lates[:22]})
    check("a short list has none", len(reply.headers[HEADER].split("; ")) == len(reply.json["reshaped"]) == 10 and "more" not in reply.headers[HEADER] and "reshaped_more" not in reply.json, reply.headers, reply.body)

    # Each dialect, with its own names of messages.
    reply = server.post(CHAT, {"messages": late, "max_tokens": 1})
    check("chat", reply.status == 200 and reply.headers.get(HEADER, "").startswith("messages[2]: system_late"), reply.headers, reply.body)
    reply = server.post("/api/chat", {"model": "fake:", "messages": late, "stream": False, "options": {"num_predict": 1}})
    check("Ollama's", reply.status == 200 and reply.headers.get(HEADER, "").startswith("messages[2]: system_late"), reply.headers, reply.body)
    items = [said("user", "one"), {"type": "function_call", "call_id": LONG, "name": "rain", "arguments": "{}"},
             {"type": "function_call_output", "call_id": LONG, "output": "two"}, said("developer", "three"), said("user", "four")]
    reply = server.post("/v1/responses", {"input": items, "max_output_tokens": 16})
    check("Responses", reply.status == 200 and "input[3]: system_late in input[2]" in reply.headers.get(HEADER, ""), reply.headers, reply.body)
    blocks = [said("user", "one"), said("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "rain", "input": {}}]),
              said("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "two"}, {"type": "text", "text": "three"}])]
    reply = server.post("/v1/messages", {"messages": blocks, "max_tokens": 1})
    check("Messages", reply.status == 200 and "user_after_result" in reply.headers.get(HEADER, ""), reply.headers, reply.body)
    reply = server.post("/v1/messages/count_tokens", {"messages": blocks})
    check("counted", reply.status == 200 and reply.json["input_tokens"] > 0 and "user_after_result" in reply.headers.get(HEADER, ""), reply.headers, reply.body)

    # Strict: the error, with the message's name.
    for path, body, field in ((CHAT, {"messages": late}, "messages[2]"), ("/apply-template", {"messages": agent}, "messages[1]"),
                              ("/v1/plan", {"messages": late}, "messages[2]"), ("/v1/responses", {"input": items}, "input[1]"),
                              ("/v1/messages", {"messages": blocks, "max_tokens": 1}, "messages[1]"), ("/api/chat", {"model": "fake:", "messages": late}, "messages[2]")):
        reply = server.post(path, dict(body, strict_messages=True))
        check(f"strict: {path}", reply.status == 400 and field in reply.body.decode() and HEADER not in reply.headers, reply.status, reply.body)

with Server(WEIR, "-c", "8192", "--chat-template-file", TEMPLATE, "--strict-messages") as server:
    reply = server.post(CHAT, {"messages": late, "max_tokens": 1})
    check("--strict-messages", reply.status == 400 and reply.error["param"] == "messages[2]", reply.body)
    reply = server.post(CHAT, {"messages": late, "max_tokens": 1, "strict_messages": False})
    check("but not for this request", reply.status == 200, reply.body)

# 50 messages and 20 tools, with the templates that take most steps for each tool.
body = {"messages": templates.conversation(), "tools": [templates.tool(i) for i in range(20)], "max_tokens": 1, "tool_choice": "none"}
for name in ("Kimi-K3", "meetkai-functionary-medium-v3.2"):
    with Server(WEIR, "-c", "65536", "--chat-template-file", os.path.join(os.path.dirname(TEMPLATE), name + ".jinja")) as server:
        reply = server.post("/v1/plan", body)
        check(f"{name}: a long conversation beside many tools", reply.status == 200, reply.body)
finish()
