"""weir serve on the fake model, whose text depends on every token of the prompt: what newer clients put into tools, histories and blocks. Tools
that run on another server are left out and named, what they left in a history is text or is skipped, and the rest means what the same conversation
in chat completions means."""
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check  # noqa: E402
from media import png  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, MESSAGES, COUNT, RESPONSES, INPUT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/input_tokens"
USER = {"role": "user", "content": "hello"}
TOWN = {"type": "object", "properties": {"town": {"enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": False}
SERVE = ("--alias", "tiny", "-np", "2")
need_server(WEIR)


def said(text, role="user"):
    return {"role": role, "content": text}


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


def shown(kind, **members):
    """An item as a prompt has it."""
    return "\n".join([f"[{kind}]"] + [f"{name}: {value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}" for name, value in members.items()])


class Client:
    """Requests of the three dialects that mean the same."""

    def __init__(self, server):
        self.server = server

    def chat(self, messages, **more):
        return self.server.post(CHAT, dict({"messages": messages, "max_tokens": 8, "temperature": 0, "reasoning_effort": "none"}, **more))

    def messages(self, messages, **more):
        return self.server.post(MESSAGES, dict({"messages": messages, "max_tokens": 8, "temperature": 0}, **more))

    def responses(self, items, **more):
        return self.server.post(RESPONSES, dict({"input": items, "max_output_tokens": 8, "temperature": 0, "store": False, "reasoning": {"effort": "none"}}, **more))

    def same(self, name, mine, chat, left_out=None):
        """Whether an answer is the one of chat completions, and what the header names."""
        body = mine.json if mine.status == 200 else {}
        mine_text = "".join(b.get("text", "") for b in body.get("content", [])) if "content" in body else \
            "".join(p.get("text", "") for i in body.get("output", []) for p in i.get("content", []))
        want = chat.json["choices"][0]["message"]["content"] if chat.status == 200 else None
        check(name, mine.status == 200 and want and mine_text == want and mine.headers.get("x-weir-relaxed") == left_out, mine.headers.get("x-weir-relaxed"), mine.body, chat.body)


def refused(name, reply, field, *words):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: 400, {field}", reply.status == 400 and error.get("param") == field and all(word in error["message"] for word in words), reply.status, reply.body)


# ---- Anthropic's blocks

def used(content):
    return [USER, said([{"type": "tool_use", "id": "1", "name": "look", "input": {}}], "assistant"), said([{"type": "tool_result", "tool_use_id": "1", "content": content}])]


def chat_used(content):
    return [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": {}}}]},
            {"role": "tool", "tool_call_id": "1", "content": content}]


NOTE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rain"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "title": "Rain", "url": "http://x", "encrypted_content": "QUJD" * 50, "page_age": None}]}
FOUND_SHOWN = shown("web_search_tool_result", content=[{"type": "web_search_result", "title": "Rain", "url": "http://x", "page_age": None}])


@part
def blocks():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    searched = [USER, said([*text("Wait."), SEARCH, FOUND, *text("It rains.")], "assistant"), said("and?")]
    chat_searched = [USER, said(text("Wait.", shown("server_tool_use", name="web_search", input={"query": "rain"})), "assistant"), said(FOUND_SHOWN), said("It rains.", "assistant"), said("and?")]
    for name, messages, chat, *left_out in [
            ("a reference to a tool, in a result", used([*text("found"), {"type": "tool_reference", "tool_name": "weather"}]), chat_used(text("found", shown("tool_reference", tool_name="weather")))),
            ("references alone", used([{"type": "tool_reference", "tool_name": "a", "cache_control": {"type": "ephemeral"}}, {"type": "tool_reference", "tool_name": "b"}]),
             chat_used(text(shown("tool_reference", tool_name="a"), shown("tool_reference", tool_name="b")))),
            ("a document of a text", [said([NOTE, *text("What?")])], [said(text("It rains.", "What?"))]),
            ("a document with a title", [said([dict(NOTE, title="Note", context="of today", citations={"enabled": False}, cache_control={"type": "ephemeral"})])],
             [said(text(shown("document", title="Note", context="of today"), "It rains."))]),
            ("a document of blocks", [said([dict(NOTE, source={"type": "content", "content": text("a", "b")})])], [said(text("a", "b"))]),
            ("a document of a string", [said([dict(NOTE, source={"type": "content", "content": "a"})])], [said("a")]),
            ("a document in a result", used([NOTE]), chat_used("It rains.")),
            ("a result of a search", [said([{"type": "search_result", "source": "http://x", "title": "Rain", "content": text("It", "rains."), "citations": {"enabled": True}}, *text("What?")])],
             [said(text(shown("search_result", title="Rain", source="http://x", content="It\nrains."), "What?"))]),
            ("thinking that is not shown", [USER, said([{"type": "redacted_thinking", "data": "x" * 40}, *text("b")], "assistant"), said("c")], [USER, said("b", "assistant"), said("c")],
             "messages[].content[]: redacted_thinking"),
            ("a system block behind a user's", [said([*text("a"), {"type": "mid_conv_system", "content": text("Be", "kind."), "cache_control": {"type": "ephemeral"}}])],
             [said("a"), said(text("Be", "kind."), "system")]),
            ("a system block behind a result", [*used("x")[:2], said([used("x")[2]["content"][0], {"type": "mid_conv_system", "content": text("Be kind.")}])], [*chat_used("x"), said("Be kind.", "system")]),
            ("a change of tools", [USER, said([*text("Be kind."), {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}], "system")], [USER, said("Be kind.", "system")],
             "messages[].content[]: tool_addition"),
            ("a system message that only changes tools", [USER, said([{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}], "system")], [USER], "messages[].content[]: tool_removal"),
            ("a system message without words", [USER, said([], "system")], [USER]),
            ("a system block without words", [said([*text("hello"), {"type": "mid_conv_system", "content": []}])], [USER]),
            ("a history that became a summary", [said("old"), said([*text("older"), {"type": "compaction", "content": "They met.", "signature": "x"}, *text("b")], "assistant"), said("c")],
             [said("They met."), said("b", "assistant"), said("c")]),
            ("the last of two summaries", [said("old"), said([{"type": "compaction", "content": "One."}], "assistant"), said("a"), said([{"type": "compaction", "content": "Two."}, *text("b")], "assistant"),
                                           said("c")], [said("Two."), said("b", "assistant"), said("c")]),
            ("a summary that failed", [said("a"), said([{"type": "compaction", "content": None}, *text("b")], "assistant"), said("c")], [said("a"), said("b", "assistant"), said("c")],
             "messages[].content[]: compaction"),
            ("a search by the other server", searched, chat_searched),
            ("a search, and its text with citations", [USER, said([SEARCH, FOUND, dict(text("It rains.")[0], citations=[{"type": "web_search_result_location", "url": "http://x"}])], "assistant"), said("and?")],
             [USER, said(shown("server_tool_use", name="web_search", input={"query": "rain"}), "assistant"), said(FOUND_SHOWN), said("It rains.", "assistant"), said("and?")]),
            ("a search that was not read yet", [USER, said([SEARCH, FOUND], "assistant")], [USER, said(shown("server_tool_use", name="web_search", input={"query": "rain"}), "assistant"), said(FOUND_SHOWN)]),
            ("a tool of an MCP server", [USER, said([{"type": "mcp_tool_use", "id": "m", "name": "look", "server_name": "s", "input": {}},
                                                     {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": text("a", "b")}, *text("c")], "assistant"), said("d")],
             [USER, said(shown("mcp_tool_use", server_name="s", name="look", input={}), "assistant"), said(shown("mcp_tool_result", content="a\nb", is_error=False)), said("c", "assistant"), said("d")]),
            ("code that ran", [USER, said([{"type": "bash_code_execution_tool_result", "tool_use_id": "1", "content": {"type": "bash_code_execution_result", "stdout": "5\n", "stderr": "", "return_code": 0,
                                                                                                                     "content": []}}, *text("c")], "assistant"), said("d")],
             [USER, said(shown("bash_code_execution_tool_result", content={"type": "bash_code_execution_result", "stdout": "5\n", "stderr": "", "return_code": 0, "content": []})),
              said("c", "assistant"), said("d")]),
            ("a page whose file is no text", [USER, said([{"type": "web_fetch_tool_result", "tool_use_id": "1", "content": {
                "type": "web_fetch_result", "url": "http://x", "content": {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD" * 50}}}}, *text("c")], "assistant"), said("d")],
             [USER, said(shown("web_fetch_tool_result", content={"type": "web_fetch_result", "url": "http://x", "content": {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}})),
              said("c", "assistant"), said("d")]),
            ("what no prompt has", [said([*text("a"), {"type": "container_upload", "file_id": "x"}, {"type": "unknown_block", "x": 1}]), said([{"type": "fallback", "from": {}, "to": {}}, *text("b")], "assistant"),
                                    said("c")], [said("a"), said("b", "assistant"), said("c")],
             "messages[].content[]: container_upload; messages[].content[]: unknown_block; messages[].content[]: fallback"),
            ("a message of such blocks alone", [said("a"), said([{"type": "redacted_thinking", "data": "x"}], "assistant"), said("c")], [said("a"), said("c")], "messages[].content[]: redacted_thinking"),
            ("such a message at the end", [said("a"), said([{"type": "redacted_thinking", "data": "x"}], "assistant")], [said("a")], "messages[].content[]: redacted_thinking"),
            ("what no prompt has, in a result", used([*text("a"), {"type": "x", "text": "b"}]), chat_used("a"), "messages[].content[].content[]: x")]:
        client.same(name, client.messages(messages), client.chat(chat), *left_out)
        count = server.post(COUNT, {"messages": messages})
        check(f"{name}: its tokens", count.status == 200 and count.json["input_tokens"] == client.chat(chat).json["usage"]["prompt_tokens"], count.body)
    client.same("a summary keeps the system's words", client.messages([said("old"), said([{"type": "compaction", "content": "They met."}], "assistant"), said("c")], system="Be brief."),
                client.chat([said("Be brief.", "system"), said("They met."), said("c")]))
    client.same("a system of such blocks alone", client.messages([USER], system=[{"type": "x"}]), client.chat([USER]), "system[]: x")
    refused("nothing else", client.messages([said([{"type": "x"}])]), "messages", "at least one message")
    client.same("a budget of a task", client.messages([USER], output_config={"task_budget": {"type": "tokens", "total": 20000, "remaining": 100}}), client.chat([USER]), "output_config.task_budget")
    client.same("servers of tools, and a container", client.messages([USER], mcp_servers=[{"type": "url", "url": "http://x", "name": "x"}], container="c1"), client.chat([USER]), "mcp_servers; container")
    skipped = client.messages([USER, said("Hello.", "assistant"), said([{"type": "container_upload", "file_id": "x"}])])
    goes_on = client.messages([USER, said("Hello.", "assistant")])
    check("an answer does not go on where the last message was skipped", skipped.status == 200 and skipped.json["usage"]["input_tokens"] != goes_on.json["usage"]["input_tokens"], skipped.body, goes_on.body)
    for name, given in (("a system message within", {"type": "mid_conv_system", "content": text("x")}), ("a summary", {"type": "compaction", "content": "x"})):
        reply = client.messages([USER, said("ok", "assistant"), said([dict(given, feeling=1), {"type": "text", "text": "hello"}])])
        check(f"{name}: its unknown members are named", reply.headers.get("x-weir-relaxed") == "messages[].content[].feeling", reply.headers.get("x-weir-relaxed"), reply.body)
    end(server)


@part
def bad_blocks():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    at = "messages[0].content[0]"
    for name, block, field, *words in [
            ("a PDF", {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}}, at + ".source", "base64", "text, content"),
            ("a PDF to be fetched", {"type": "document", "source": {"type": "url", "url": "http://x"}}, at + ".source", "url"),
            ("a file", {"type": "document", "source": {"type": "file", "file_id": "x"}}, at + ".source", "file"),
            ("a document without a source", {"type": "document"}, at + ".source"), ("a document's source of another type", {"type": "document", "source": "x"}, at + ".source"),
            ("a document without data", {"type": "document", "source": {"type": "text"}}, at + ".source.data", "string"),
            ("a document's data of another type", {"type": "document", "source": {"type": "text", "data": ["x"]}}, at + ".source.data"),
            ("a document's content of another type", {"type": "document", "source": {"type": "content", "content": 5}}, at + ".source.content"),
            ("a document's block of another type", {"type": "document", "source": {"type": "content", "content": [5]}}, at + ".source.content[0]"),
            ("a document's title of another type", dict(NOTE, title=5), at + ".title"), ("a document's context of another type", dict(NOTE, context=[]), at + ".context"),
            ("a system block of another type", {"type": "mid_conv_system", "content": 5}, at + ".content"), ("a system block's block", {"type": "mid_conv_system", "content": [5]}, at + ".content[0]"),
            ("a summary of another type", {"type": "compaction", "content": 5}, at + ".content"),
            ("a block of no type", {"text": "x"}, at), ("a type of another type", {"type": 5}, at), ("a block that is none", 5, at), ("null", None, at), ("a list", [[]], at)]:
        refused(name, client.messages([said([block])]), field, *words)
        if field != at:
            inner = field.replace(at, "messages[2].content[0].content[0]")
            refused(f"{name}, in a result", client.messages(used([block])), inner if "mid" not in str(block) and "comp" not in str(block) else "messages[2].content[0].content[0]")
    refused("a task's budget of another type", client.messages([USER], output_config={"task_budget": 5}), "output_config.task_budget")
    refused("a call by the user", client.messages([said([{"type": "tool_use", "id": "1", "name": "x", "input": {}}])]), at)
    refused("a system block of the assistant's", client.messages([USER, said([{"type": "mid_conv_system", "content": text("x")}], "assistant")]), "messages[1].content[0]")
    reply = client.messages([said([*text("a"), {"type": "x\r\nX-Evil: 1\n\u00e9" + "y" * 5000}])])
    check("a type cannot write headers", reply.status == 200 and "x-evil" not in reply.headers and reply.headers["x-weir-relaxed"].startswith("messages[].content[]: x??X-Evil??1?") and
          len(reply.headers["x-weir-relaxed"]) < 200, reply.headers)
    reply = client.messages([said([*text("a"), *[{"type": f"t{i}"} for i in range(20000)]])])
    check("twenty thousand of them", reply.status == 200 and len(reply.headers["x-weir-relaxed"]) <= 2048, reply.headers)
    end(server)


# ---- OpenAI's items

ITEMS = [
    ({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain", "sources": [{"type": "url", "url": "http://x"}]}}, [], ["action"]),
    ({"type": "file_search_call", "id": "x", "status": "completed", "queries": ["a", "b"], "results": [{"file_id": "f", "filename": "n", "score": 0.5, "text": "t"}]}, ["queries"], ["results"]),
    ({"type": "file_search_call", "id": "x", "status": "completed", "queries": ["a"], "results": None}, ["queries"], []),
    ({"type": "code_interpreter_call", "id": "x", "status": "completed", "container_id": "c", "code": "print(5)", "outputs": [{"type": "logs", "logs": "5\n"}]}, ["code"], ["outputs"]),
    ({"type": "mcp_call", "id": "x", "server_label": "s", "name": "look", "arguments": '{"a":1}', "output": "found\nit", "error": None}, ["server_label", "name", "arguments"], ["output"]),
    ({"type": "mcp_approval_request", "id": "x", "server_label": "s", "name": "look", "arguments": "{}"}, ["server_label", "name", "arguments"], []),
    ({"type": "mcp_approval_response", "approval_request_id": "x", "approve": True, "reason": "fine"}, [], ["approve", "reason"]),
    ({"type": "tool_search_call", "call_id": "x", "execution": "client", "arguments": {"query": "rain"}}, ["arguments"], []),
    ({"type": "computer_call", "id": "x", "call_id": "y", "pending_safety_checks": [], "status": "completed", "action": {"type": "click", "x": 1, "y": 2, "button": "left"}}, ["action"], []),
    ({"type": "local_shell_call", "id": "x", "call_id": "y", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}}, ["action"], []),
    ({"type": "local_shell_call_output", "id": "y", "output": "a\nb"}, [], ["output"]),
    ({"type": "shell_call", "call_id": "y", "action": {"commands": ["ls"]}}, ["action"], []),
    ({"type": "shell_call_output", "call_id": "y", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}, [], ["output"]),
    ({"type": "apply_patch_call", "call_id": "y", "status": "completed", "operation": {"type": "delete_file", "path": "x"}}, ["operation"], []),
    ({"type": "apply_patch_call_output", "call_id": "y", "status": "completed", "output": "done"}, [], ["status", "output"]),
    ({"type": "image_generation_call", "id": "x", "status": "completed", "result": "QUJD" * 500, "revised_prompt": "a cat"}, ["revised_prompt"], []),
    ({"type": "program", "id": "x", "call_id": "y", "code": "f()", "fingerprint": "z"}, ["code"], []),
    ({"type": "program_output", "id": "x", "call_id": "y", "status": "completed", "result": "5"}, [], ["result"]),
]
SKIPPED = [{"type": "compaction", "encrypted_content": "QUJD"}, {"type": "compaction_trigger"}, {"type": "mcp_list_tools", "id": "x", "server_label": "s", "tools": []},
           {"type": "computer_call_output", "call_id": "y", "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"}},
           {"type": "configuration_update", "reasoning": {"effort": "low"}}, {"type": "unknown_item", "id": "x", "content": 5}]


def readable(value):
    if isinstance(value, list):
        return [readable(one) for one in value]
    return {k: readable(v) for k, v in value.items() if k != "file_id"} if isinstance(value, dict) else value


def as_chat(item, asked, got):
    parts = [(role, shown(item["type"], **{name: readable(item[name]) for name in names})) for role, names in (("assistant", asked), ("user", got)) if names]
    return [said(words, role) for role, words in parts]


@part
def items():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    for item, asked, got in ITEMS:
        name = item["type"]
        client.same(f"{name}: as text", client.responses([USER, item, said("x", "assistant"), said("and?")]), client.chat(joined([USER, *as_chat(item, asked, got), said("x", "assistant"), said("and?")])))
        count = server.post(INPUT, {"input": [USER, item, said("and?")]})
        want = client.chat(joined([USER, *as_chat(item, asked, got), said("and?")])).json["usage"]["prompt_tokens"]
        check(f"{name}: its tokens", count.status == 200 and count.json["input_tokens"] == want, count.body, want)
    for item in SKIPPED:
        client.same(f"{item['type']}: skipped", client.responses([USER, said("x", "assistant"), item, said("and?")]), client.chat([USER, said("x", "assistant"), said("and?")]), f"input[]: {item['type']}")
    # What came back is text, also where it looks like the end of a message.
    lengths = [server.post(INPUT, {"input": [USER, {"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}", "output": words}, USER]}).json["input_tokens"] for words in ("", "<|im_end|>")]
    check("control tokens of a result are text", lengths[1] - lengths[0] == len("<|im_end|>"), lengths)
    found = [USER, said([dict(FOUND, content=text(""))], "assistant"), said("c")], [USER, said([dict(FOUND, content=text("<|im_end|>"))], "assistant"), said("c")]
    lengths = [server.post(COUNT, {"messages": messages}).json["input_tokens"] for messages in found]
    check("and in Anthropic's API", lengths[1] - lengths[0] == len("<|im_end|>"), lengths)
    # What is kept of an item is what prompts use.
    for item, asked, got in ITEMS:
        first = client.responses([USER, item, said("x", "assistant")], store=True)
        if first.status != 200:
            check(f"{item['type']}: kept", False, first.body)
            continue
        client.same(f"{item['type']}: kept", client.responses("and?", previous_response_id=first.json["id"]),
                    client.chat(joined([USER, *as_chat(item, asked, got), said("x", "assistant"), said(first.json["output"][0]["content"][0]["text"], "assistant"), said("and?")])))
    listed = server.get(f"{RESPONSES}/{first.json['id']}/input_items").json
    check("an item is listed", any(i["type"] == "program_output" and i["result"] == "5" for i in listed["data"]), listed)
    for name, given, words in (("a refusal", {"type": "refusal", "refusal": "No."}, "No."),):
        client.same(name, client.responses([USER, said([given], "assistant"), said("and?")]), client.chat([USER, said(words, "assistant"), said("and?")]))
        first = client.responses([USER, said([given], "assistant"), USER], store=True)
        client.same(f"{name}, kept", client.responses("and?", previous_response_id=first.json["id"]),
                    client.chat([USER, said(words, "assistant"), USER, said(first.json["output"][0]["content"][0]["text"], "assistant"), said("and?")]))
    client.same("an unknown part", client.responses([said([{"type": "input_text", "text": "hello"}, {"type": "unknown_part"}])]), client.chat([USER]), "input[].content[]: unknown_part")
    for name, given, field in [("an item that is none", 5, "input[1]"), ("null", None, "input[1]"), ("a list", [], "input[1]"), ("a type of another type", {"type": 5}, "input[1].role"),
                               ("a file", said([{"type": "input_file", "file_id": "x"}]), "input[1].content[0]"), ("a sound", said([{"type": "input_audio"}]), "input[1].content[0]"),
                               ("a refusal of another type", said([{"type": "refusal", "refusal": 5}], "assistant"), "input[1].content[0]"),
                               ("a part of no type", said([{"text": "x"}]), "input[1].content[0]"), ("a part that is none", said([5]), "input[1].content[0]")]:
        refused(name, client.responses([USER, given]), field)
    # Every member of every item may have any type: it is text.
    for item, asked, got in ITEMS:
        for name in asked + got:
            for value in (5, True, "x", [], {}, [[]], {"a": {"b": []}}):
                reply = client.responses([USER, dict(item, **{name: value}), said("x")])
                if reply.status != 200:
                    check(f"{item['type']}.{name}: {value!r}", False, reply.body)
    pair = [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "x"}]
    marked, plain = client.responses([USER, *[dict(item, caller={"type": "direct"}) for item in pair]]), client.responses([USER, *pair])
    check("who called", marked.status == 200 and marked.headers.get("x-weir-relaxed") is None and marked.json["output"][0]["content"] == plain.json["output"][0]["content"], marked.body)
    end(server)


def joined(messages):
    """Items of the assistant's that follow each other are one message, and so are results and what the user has just said."""
    found = []
    for message in messages:
        words, role = message["content"], message["role"]
        if found and role == found[-1]["role"] and (role == "assistant" or words.startswith("[")):
            before = found[-1]["content"]
            found[-1] = said((before if isinstance(before, list) else text(before)) + text(words), role)
        else:
            found.append(message)
    return found


# ---- Tools

def function(name):
    return {"type": "function", "function": {"name": name, "description": "of " + name, "parameters": TOWN}}


def flat(name):
    return {"type": "function", "name": name, "description": "of " + name, "parameters": TOWN}


def schema(name):
    return {"name": name, "description": "of " + name, "input_schema": TOWN}


HOSTED = [{"type": kind} for kind in ("web_search", "web_search_preview", "web_search_preview_2025_03_11", "tool_search", "image_generation", "computer_use_preview", "computer", "code_interpreter", "file_search",
                                      "local_shell", "shell", "apply_patch", "programmatic_tool_calling", "unknown_tool")] + [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]
VERSIONED = [{"type": kind, "name": name} for kind, name in (("web_search_20250305", "web_search"), ("computer_20250124", "computer"), ("bash_20250124", "bash"), ("text_editor_20250728", "str_replace_based_edit_tool"),
                                                             ("memory_20250818", "memory"), ("tool_search_tool_regex_20251119", "tool_search_tool_regex"), ("code_execution_20260521", "code_execution"),
                                                             ("unknown_tool", "x"))] + [{"type": "mcp_toolset", "mcp_server_name": "s"}]


@part
def tools():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    want = client.chat([USER], tools=[function("a"), function("b")], tool_choice="none")
    plain = client.chat([USER])
    for tool in HOSTED:
        kind = tool["type"]
        client.same(f"Responses, {kind}: left out", client.responses([USER], tools=[flat("a"), flat("b"), tool], tool_choice="none"), want, f"tools[]: {kind}")
        client.same(f"Responses, {kind} alone: no tools", client.responses([USER], tools=[tool]), plain, f"tools[]: {kind}")
    for tool in VERSIONED:
        kind = tool["type"]
        client.same(f"Messages, {kind}: left out", client.messages([USER], tools=[schema("a"), tool, schema("b")], tool_choice={"type": "none"}), want, f"tools[]: {kind}")
        client.same(f"Messages, {kind} alone: no tools", client.messages([USER], tools=[tool]), plain, f"tools[]: {kind}")
    for tool in [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "function_of_another_day", "function": {}}]:
        reply = client.chat([USER], tools=[function("a"), tool, function("b")], tool_choice="none")
        check(f"chat, {tool['type']}: left out", reply.status == 200 and reply.json["choices"] == want.json["choices"] and reply.headers.get("x-weir-relaxed") == f"tools[]: {tool['type']}", reply.headers, reply.body)
        reply = client.chat([USER], tools=[tool])
        check(f"chat, {tool['type']} alone: no tools", reply.status == 200 and reply.json["choices"] == plain.json["choices"], reply.body)
    asked = {"messages": [USER], "stream": False, "think": False, "options": {"num_predict": 8, "temperature": 0}}
    base = server.post("/api/chat", asked)
    reply = server.post("/api/chat", dict(asked, tools=[HOSTED[0]]))
    check("Ollama's, alone: no tools", base.status == 200 and reply.status == 200 and reply.json["message"] == base.json["message"] and reply.headers.get("x-weir-relaxed") == "tools[]: web_search", reply.headers, reply.body)
    many = [{"type": f"t{i}" + "y" * 4096} for i in range(256)]
    for path, body in ((CHAT, {"messages": [USER], "max_tokens": 2}), (MESSAGES, {"messages": [USER], "max_tokens": 2}), (RESPONSES, {"input": [USER], "max_output_tokens": 16}), ("/api/chat", asked)):
        reply = server.post(path, dict(body, tools=many))
        check(f"{path}: 256 of them with long names", reply.status == 200 and 0 < len(reply.headers.get("x-weir-relaxed", "")) <= 1024, reply.status, reply.headers, reply.body)
    client.same("several", client.responses([USER], tools=[HOSTED[0], flat("a"), HOSTED[3], flat("b")], tool_choice="none"), want, "tools[]: web_search; tools[]: tool_search")
    space = {"type": "namespace", "name": "s", "description": "of s", "tools": [flat("a"), {"type": "web_search"}]}
    reply = client.responses([USER], tools=[space], tool_choice="none")
    check("within a namespace", reply.status == 200 and reply.headers.get("x-weir-relaxed") == "tools[].tools[]: web_search", reply.headers, reply.body)
    refused("chat: a name at its place", client.chat([USER], tools=[{"type": "web_search"}, function("a b")]), "tools[1].function.name")
    refused("Messages: a name at its place", client.messages([USER], tools=[VERSIONED[0], schema("a b")]), "tools[1].name")
    # One that must be called is an error.
    for name, reply, word in [
            ("chat, required", client.chat([USER], tools=[{"type": "web_search"}], tool_choice="required"), "web_search"),
            ("chat, named", client.chat([USER], tools=[{"type": "web_search"}, function("a")], tool_choice={"type": "function", "function": {"name": "web_search"}}), "web_search"),
            ("chat, of its type", client.chat([USER], tools=[{"type": "web_search"}, function("a")], tool_choice={"type": "web_search"}), "web_search"),
            ("Messages, any", client.messages([USER], tools=[VERSIONED[0]], tool_choice={"type": "any"}), "web_search"),
            ("Messages, named", client.messages([USER], tools=[VERSIONED[0], schema("a")], tool_choice={"type": "tool", "name": "web_search"}), "does not run"),
            ("Responses, required", client.responses([USER], tools=[HOSTED[0]], tool_choice="required"), "web_search"),
            ("Responses, of its type", client.responses([USER], tools=[HOSTED[0], flat("a")], tool_choice={"type": "web_search"}), "web_search")]:
        refused(f"a tool that must be called: {name}", reply, "tool_choice", word)
    refused("allowed tools, all of another server", client.responses([USER], tools=[HOSTED[0], flat("a")], tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}),
            "tool_choice.tools[0]", "web_search")
    reply = client.responses([USER], tools=[HOSTED[0], flat("a"), flat("b")], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]})
    check("allowed tools, none of which is here", reply.status == 200 and reply.headers.get("x-weir-relaxed") == "tools[]: web_search; tool_choice.tools[]: web_search", reply.headers, reply.body)
    here = {"type": "function", "function": {"name": "a"}}

    def among(*tools, mode="auto", **more):
        return client.chat([USER], tools=[{"type": "web_search"}, function("a"), function("b")], tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}, **more)

    reply, none = among({"type": "web_search"}, {"type": "mcp", "server_label": "x"}), client.chat([USER], tools=[function("a"), function("b")], tool_choice="none")
    check("chat: allowed tools, none of which is here", reply.status == 200 and reply.json["choices"] == none.json["choices"] and
          reply.headers.get("x-weir-relaxed") == "tool_choice.allowed_tools.tools[]: web_search; tool_choice.allowed_tools.tools[]: mcp; tools[]: web_search", reply.headers, reply.body)
    refused("chat: allowed tools, all of another server", among({"type": "web_search"}, mode="required"), "tool_choice.allowed_tools.tools[0]", "web_search")
    refused("chat: strict", server.post(CHAT, {"messages": [USER], "tools": [function("a")], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [here, {"type": "mcp"}]}}}, headers=STRICT),
            "tool_choice.allowed_tools.tools[1]", "mcp")
    refused("chat: allowed tools, one that is not there", among({"type": "web_search"}, {"type": "function", "function": {"name": "x"}}), "tool_choice", "\"x\"")
    refused("chat: allowed tools, one without a name", among({"type": "web_search"}, {"type": "function"}), "tool_choice.allowed_tools.tools[1]")
    for value in (5, "x", None, []):
        check(f"chat: an allowed tool that is {value!r}", among(value).status == 400)
    for value in (5, "x", None, [], True):
        refused(f"Responses: a tool that is {value!r}", client.responses([USER], tools=[value]), "tools[0]")
        refused(f"Messages: a tool that is {value!r}", client.messages([USER], tools=[value]), "tools[0]")
        check(f"chat: a tool that is {value!r}", client.chat([USER], tools=[value]).status == 400)
        check(f"chat: a type that is {value!r}", value in (None, "x") or client.chat([USER], tools=[dict(function("a"), type=value)]).status == 400)
    refused("Messages: a type of another type", client.messages([USER], tools=[dict(schema("a"), type=5)]), "tools[0]")
    many = [{"type": "web_search"}] * 5000
    reply = client.responses([USER], tools=[*many, flat("a")], tool_choice="none")
    check("very many", reply.status == 200 and len(reply.headers["x-weir-relaxed"]) <= 2048, reply.headers)
    end(server)


# ---- Tools that an item of the conversation brings

@part
def later_tools():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    found = {"type": "tool_search_output", "call_id": "x", "execution": "client", "status": "completed", "tools": [flat("b"), {"type": "web_search"}, flat("a")]}
    more = {"type": "additional_tools", "role": "developer", "tools": [flat("b")]}
    want = client.chat([USER], tools=[function("a"), function("b")], tool_choice="none")
    client.same("tools that a search found", client.responses([USER, found], tools=[flat("a")], tool_choice="none"), want, "input[].tools[]: web_search")
    client.same("additional tools", client.responses([more, USER], tools=[flat("a")], tool_choice="none"), want)
    def added(tool):
        return [USER, said([*text("Be kind."), {"type": "tool_addition", "tool": tool}], "system")]

    want = client.chat([USER, said("Be kind.", "system")], tools=[function("a"), function("b")], tool_choice="none")
    none = {"type": "none"}
    client.same("a tool that a block defines", client.messages(added({"type": "tool_definition", "definition": schema("b")}), tools=[schema("a")], tool_choice=none), want)
    client.same("one that is there already", client.messages(added({"type": "tool_definition", "definition": schema("b")}), tools=[schema("a"), schema("b")], tool_choice=none), want)
    client.same("one of another server", client.messages(added({"type": "tool_definition", "definition": VERSIONED[0]}), tools=[schema("a"), schema("b")], tool_choice=none), want,
                "messages[].content[].tool.definition: web_search_20250305")
    for value in (5, "x", None, []):
        refused(f"a definition that is {value!r}", client.messages(added({"type": "tool_definition", "definition": value})), "messages[1].content[1].tool.definition")
    refused("a definition without a schema", client.messages(added({"type": "tool_definition", "definition": {"name": "x"}})), "messages[1].content[1].tool.definition.input_schema")
    for name, item, field in [("tools of another type", dict(more, tools=5), "input[1].tools"), ("no tools", {"type": "additional_tools"}, "input[1].tools"), ("a tool of another type", dict(more, tools=[5]), "input[1].tools[0]"),
                              ("a tool's name", dict(more, tools=[flat("a b")]), "input[1].tools[0].name"), ("too many", dict(more, tools=[flat(f"f{i}") for i in range(1025)]), "input[1].tools")]:
        refused(name, client.responses([USER, item]), field)
    end(server)


# ---- Custom tools in chat completions

def custom(name, **more):
    return {"type": "custom", "custom": dict({"name": name, "description": f"of {name}"}, **more)}


@part
def custom_tools():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    history = [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "t", "input": 'say "x"\n'}}]}, {"role": "tool", "tool_call_id": "1", "content": "done"}]
    same = [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "t", "arguments": json.dumps({"input": 'say "x"\n'}, separators=(",", ":"))}}]}, history[2]]
    mine, other = client.chat(history), client.chat(same)
    check("a call of before", mine.status == 200 and mine.json["choices"] == other.json["choices"], mine.body, other.body)
    mine = client.chat([USER], tools=[custom("t")], tool_choice="none")
    other = client.chat([USER], tools=[{"type": "function", "function": {"name": "t", "description": "of t", "strict": True, "parameters": {
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": False}}}], tool_choice="none")
    check("its prompt is that of a function with an input", mine.status == 200 and mine.json["choices"] == other.json["choices"], mine.body, other.body)
    for name, tool, field in [("no object", {"type": "custom"}, "tools[0].custom"), ("of another type", {"type": "custom", "custom": 5}, "tools[0].custom"), ("no name", {"type": "custom", "custom": {}}, "tools[0].custom.name"),
                              ("a name of another type", custom(5), "tools[0].custom.name"), ("a name", custom("a b"), "tools[0].custom.name"), ("a description", custom("t", description=5), "tools[0].custom.description"),
                              ("a format", custom("t", format=5), "tools[0].custom.format"), ("a format of another kind", custom("t", format={"type": "json"}), "tools[0].custom.format"),
                              ("a grammar of another type", custom("t", format={"type": "grammar", "grammar": 5}), "tools[0].custom.format.grammar"),
                              ("a syntax", custom("t", format={"type": "grammar", "grammar": {"syntax": "x", "definition": "a"}}), "tools[0].custom.format.grammar.syntax"),
                              ("a definition", custom("t", format={"type": "grammar", "grammar": {"syntax": "regex", "definition": "(a"}}), "tools[0].custom.format.grammar.definition")]:
        refused(f"a custom tool, {name}", client.chat([USER], tools=[tool]), field)
    for name, call in [("no object", {"type": "custom"}), ("of another type", {"type": "custom", "custom": 5}), ("no name", {"type": "custom", "custom": {"input": "x"}}), ("no input", {"type": "custom", "custom": {"name": "x"}}),
                       ("an input of another type", {"type": "custom", "custom": {"name": "x", "input": {}}})]:
        refused(f"a custom call, {name}", client.chat([USER, {"role": "assistant", "tool_calls": [dict(call, id="1")]}]), "messages[1].tool_calls[0].custom")
    refused("a custom tool that is not there", client.chat([USER], tools=[custom("t")], tool_choice={"type": "custom", "custom": {"name": "x"}}), "tool_choice", "x")
    refused("a choice without a name", client.chat([USER], tools=[custom("t")], tool_choice={"type": "custom", "custom": {}}), "tool_choice")
    end(server)


@part
def refusals():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    want = client.chat([USER, said("No.", "assistant"), said("and?")])
    for name, message in (("as a part", said([{"type": "refusal", "refusal": "No."}], "assistant")), ("as a message's", {"role": "assistant", "content": None, "refusal": "No."}),
                          ("without a content", {"role": "assistant", "refusal": "No."}), ("beside no words", {"role": "assistant", "content": "", "refusal": "No."}),
                          ("beside no parts", {"role": "assistant", "content": [], "refusal": "No."})):
        reply = client.chat([USER, message, said("and?")])
        check(f"a refusal, {name}", reply.status == 200 and reply.json["choices"] == want.json["choices"], reply.body, want.body)
    reply = client.chat([USER, {"role": "assistant", "content": "No.", "refusal": "Never."}, said("and?")])
    check("beside a content it has no effect", reply.status == 200 and reply.json["choices"] == want.json["choices"], reply.body)
    refused("a user's refusal", client.chat([{"role": "user", "refusal": "No."}]), "messages[0].content")
    refused("a refusal of another type", client.chat([USER, said([{"type": "refusal", "refusal": 5}], "assistant")]), "messages[1].content[0]")
    refused("a kind of part that is not read", client.chat([said([{"type": "file", "file": {}}])]), "messages[0].content[0]")
    end(server)


# ---- Images of Responses

@part
def images():
    server = Server(WEIR, *SERVE, "--mmproj", "fake:")
    client = Client(server)
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    plain = client.responses([said([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What?"}])])
    for detail in ("auto", "low", "high", "original", None):
        reply = client.responses([said([{"type": "input_image", "image_url": url, "detail": detail}, {"type": "input_text", "text": "What?"}])])
        check(f"detail: {detail}", reply.status == 200 and reply.json["output"][0]["content"] == plain.json["output"][0]["content"], reply.body)
    refused("detail of another type", client.responses([said([{"type": "input_image", "image_url": url, "detail": 5}])]), "input[0].content[0].detail")
    for kind, call in (("function_call", {"type": "function_call", "call_id": "1", "name": "view_image", "arguments": "{}"}), ("custom_tool_call", {"type": "custom_tool_call", "call_id": "1", "name": "view_image", "input": "x"})):
        shows = [USER, call, {"type": kind + "_output", "call_id": "1", "output": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": url, "detail": "high"}]}]
        without = [*shows[:2], dict(shows[2], output="see")]
        reply, base = client.responses(shows), client.responses(without)
        check(f"an image within {kind}_output", reply.status == 200 and reply.json["usage"]["input_tokens"] >= base.json["usage"]["input_tokens"] + 4, reply.body, base.body)
    blocks = [said([{"type": "document", "source": {"type": "content", "content": [*text("see"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url.split(",")[1]}}]}}])]
    reply = client.messages(blocks)
    check("an image within a document", reply.status == 200 and reply.json["usage"]["input_tokens"] + reply.json["usage"]["cache_read_input_tokens"] ==
          client.chat([said([*text("see"), {"type": "image_url", "image_url": {"url": url}}])]).json["usage"]["prompt_tokens"], reply.body)
    end(server)


# ---- Calls, which a grammar enforces

@part
def calls():
    server = Server(WEIR, *SERVE)
    client = Client(server)
    server.end_without_llama(client.chat([USER], tools=[function("a")], tool_choice="required"))
    # The tools that stay are called, and errors name them where they are.
    call = client.chat([USER], tools=[{"type": "web_search"}, function("a")], tool_choice="required", parallel_tool_calls=False, max_tokens=300).json["choices"][0]
    check("chat: the other tool is called", call["message"]["tool_calls"][0]["function"]["name"] == "a", call)
    odd = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 1009}}}
    reply = client.chat([USER], tools=[{"type": "web_search"}, {"type": "function", "function": {"name": "x", "parameters": odd}}], tool_choice="required", max_tokens=100)
    check("chat: a keyword that is not enforced is named at its place", reply.headers.get("x-weir-relaxed") == "tools[]: web_search; tools/1/function/parameters/properties/n: multipleOf", reply.headers)
    allowed = client.responses([USER], tools=[HOSTED[0], flat("a"), flat("b")], max_output_tokens=300, parallel_tool_calls=False,
                               tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}, {"type": "function", "name": "b"}]})
    check("allowed tools, some of which are", [i["name"] for i in allowed.json["output"]] == ["b"] and
          allowed.headers.get("x-weir-relaxed") == "tools[]: web_search; tool_choice.tools[]: web_search", allowed.headers, allowed.body)
    mixed = client.chat([USER], tools=[{"type": "web_search"}, function("a"), function("b")], max_tokens=300, parallel_tool_calls=False,
                        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "web_search"}, {"type": "function", "function": {"name": "b"}}]}})
    check("chat: allowed tools, some of which are", mixed.status == 200 and [c["function"]["name"] for c in mixed.json["choices"][0]["message"]["tool_calls"]] == ["b"] and
          mixed.headers.get("x-weir-relaxed") == "tool_choice.allowed_tools.tools[]: web_search; tools[]: web_search", mixed.headers, mixed.body)
    found = {"type": "tool_search_output", "tools": [flat("b")]}
    call = client.responses([USER, found], tools=[flat("a"), {"type": "tool_search", "execution": "client"}], tool_choice={"type": "function", "name": "b"}, max_output_tokens=300, store=True)
    check("one of them is called", [i["name"] for i in call.json["output"]] == ["b"], call.body)
    again = client.responses([{"type": "function_call_output", "call_id": call.json["output"][0]["call_id"], "output": "x"}], previous_response_id=call.json["id"], tools=[flat("a")],
                             tool_choice={"type": "function", "name": "b"}, max_output_tokens=300)
    check("and again in the next turn", again.status == 200 and [i["name"] for i in again.json["output"]] == ["b"], again.body)
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": '[\\n"\\\\é]{3,5}'}}
    flat_custom = {"type": "custom", "name": "t", "description": "of t", "format": dict(grammar["grammar"], type="grammar")}
    given = {"tools": [function("a"), custom("t", format=grammar)], "tool_choice": {"type": "custom", "custom": {"name": "t"}}, "parallel_tool_calls": False, "max_tokens": 300}
    want = client.responses([USER], tools=[flat("a"), flat_custom], tool_choice={"type": "custom", "name": "t"}, parallel_tool_calls=False, max_output_tokens=300).json["output"][0]
    reply = client.chat([USER], **given)
    choice = reply.json["choices"][0] if reply.status == 200 else {"message": {"tool_calls": [{}]}}
    call = choice["message"]["tool_calls"][0]
    check("a call: as in Responses", (call.get("type"), call.get("custom")) == ("custom", {"name": "t", "input": want["input"]}) and "function" not in call and choice["finish_reason"] == "tool_calls" and
          3 <= len(want["input"]) <= 5, reply.body, want)
    for kind, tools, chosen, post, at in (("chat", [function("a"), {"type": "function", "function": {"name": "x", "parameters": odd}}], {"type": "function", "function": {"name": "x"}}, client.chat, "function/parameters"),
                                          ("Messages", [schema("a"), dict(schema("x"), input_schema=odd)], {"type": "tool", "name": "x"}, client.messages, "input_schema"),
                                          ("Responses", [flat("a"), dict(flat("x"), parameters=odd)], {"type": "function", "name": "x"}, client.responses, "parameters")):
        named = post([USER], tools=tools, tool_choice=chosen)
        check(f"{kind}: a keyword of the tool that is chosen, at its place", named.headers.get("x-weir-relaxed") == f"tools/1/{at}/properties/n: multipleOf", named.headers, named.body)
    if reply.status == 200:
        events = server.stream(CHAT, dict({"messages": [USER], "temperature": 0, "reasoning_effort": "none"}, **given))
        deltas = [c for e in events for choice in e["choices"] for c in choice["delta"].get("tool_calls", [])]
        check("streamed", deltas[0]["type"] == "custom" and deltas[0]["custom"] == {"name": "t", "input": ""} and deltas[0]["id"] and all("function" not in d and d["index"] == 0 for d in deltas) and
              "".join(d["custom"]["input"] for d in deltas) == want["input"], deltas)
        check("streamed: no delta without input but the first", len(deltas) > 1 and all(d["custom"]["input"] for d in deltas[1:]), deltas)
        more = {"logprobs": True, "return_token_ids": True}
        whole = client.chat([USER], **dict(given, **more)).json["choices"][0]
        parts = [choice for e in server.stream(CHAT, dict({"messages": [USER], "temperature": 0, "reasoning_effort": "none", **more}, **given)) for choice in e["choices"]]
        check("streamed: all tokens and logprobs", len(whole["token_ids"]) > len(deltas) and [t for part in parts for t in part.get("token_ids", [])] == whole["token_ids"] and
              [entry for part in parts for entry in (part["logprobs"] or {}).get("content", [])] == whole["logprobs"]["content"], parts, whole)
        call = client.chat([USER], **dict(given, tool_choice={"type": "function", "function": {"name": "a"}})).json["choices"][0]["message"]["tool_calls"][0]
        check("a function beside it is one", call["type"] == "function" and json.loads(call["function"]["arguments"])["town"] in ("Ulm", "Bonn"), call)
        events = server.stream(CHAT, dict({"messages": [USER], "temperature": 0, "reasoning_effort": "none"}, **dict(given, tool_choice={"type": "function", "function": {"name": "a"}})))
        deltas = [c for e in events for choice in e["choices"] for c in choice["delta"].get("tool_calls", [])]
        check("a function beside it, streamed", deltas[0]["type"] == "function" and json.loads("".join(d["function"]["arguments"] for d in deltas))["town"] in ("Ulm", "Bonn"), deltas)
        allowed = client.chat([USER], **dict(given, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "t"}}]}})).json["choices"][0]
        check("among allowed tools", allowed["message"]["tool_calls"][0]["custom"]["name"] == "t", allowed)
        two = client.chat([USER], n=2, **given).json["choices"]
        check("of two choices", [c["message"]["tool_calls"][0]["type"] for c in two] == ["custom"] * 2, two)
    for definition, said_then in (("^ab$", "ab"), ("^ab", "ab"), ("ab$", "ab"), ("^a|b$", "a|b"), (r"^a\$", "a$"), ("a)(?:b", None), ("a)|(?:b", None), ("(", None), ("(ab", None), ("\\", None)):
        reply = client.responses([USER], tools=[{"type": "custom", "name": "edit", "format": {"type": "grammar", "syntax": "regex", "definition": definition}}], tool_choice={"type": "custom", "name": "edit"}, max_output_tokens=60)
        if said_then is None:
            check(f"not an expression: {definition}", reply.status == 400 and definition in reply.error["message"].replace("\\\\", "\\"), reply.body)
            continue
        inputs = [i["input"] for i in reply.json["output"] if i["type"] == "custom_tool_call"] if reply.status == 200 else []
        check(f"an expression with anchors: {definition}", len(inputs) == 1 and inputs[0] in (said_then.split("|") if "|" in definition else [said_then]), reply.body)
    found = {"type": "tool_search_output", "tools": [{"type": "namespace", "name": "gh", "tools": [{"type": "function", "name": "f", "parameters": TOWN}]}]}
    reply = client.responses([USER, *[found] * 300])
    check("a namespace that is found 300 times", reply.status == 200, reply.body)
    end(server)


run_parts()
