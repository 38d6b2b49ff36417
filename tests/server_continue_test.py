"""weir serve continues a last message of the assistant, on the fake model, whose text depends on every token of the prompt: in each API, whole and
streamed, the prompt ends where the message's text does."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, MESSAGES, OLLAMA, APPLY = "/v1/chat/completions", "/v1/messages", "/api/chat", "/apply-template"
ASKED = [{"role": "user", "content": "hello"}]
OPEN = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


def said(content):
    return [*ASKED, {"role": "assistant", "content": content}]


need_server(WEIR)
server = Server(WEIR, "--alias", "tiny", "-np", "2")

# ---- Prompts

for name, content, end in (("a text", "Well", "Well"), ("space at its end", "Well, ", "Well, "), ("no text", "", ""), ("null", None, ""), ("no parts", [], ""), ("an empty part", text(""), ""),
                           ("a part", text("Well"), "Well"), ("two parts", text("Well", "so"), "Well\nso"), ("three", text("a", "", "b"), "a\n\nb")):
    body = {"messages": said(content), "continue_final_message": True}
    reply = server.post(APPLY, body)
    check(f"{name}: the prompt", reply.status == 200 and reply.json["prompt"] == OPEN + end, reply.body)
    check(f"{name}: with add_generation_prompt", server.post(APPLY, dict(body, add_generation_prompt=False)).json["prompt"] == OPEN + end)
    short = {"max_tokens": 8, "temperature": 0}
    raw = server.post("/v1/completions", {"prompt": OPEN + end, **short}).json["choices"][0]["text"]
    whole = server.post(CHAT, {**body, **short}).json
    check(f"{name}: the answer", whole["choices"][0]["message"]["content"] == raw, whole, raw)
    events = server.stream(CHAT, {**body, **short})
    check(f"{name}: streamed", "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == raw, events)
    if content is None:
        continue
    mine = server.post(MESSAGES, {"messages": said(content), **short}).json
    check(f"{name}: Messages", mine["content"] == text(raw), mine, raw)
    pieces = [data["delta"].get("text", "") for kind, data in server.named_events(MESSAGES, {"messages": said(content), **short}) if kind == "content_block_delta"]
    check(f"{name}: Messages, streamed", "".join(pieces) == raw, pieces)
    if isinstance(content, str):
        ollama = {"model": "tiny", "messages": said(content), "stream": False, "options": {"num_predict": 8, "temperature": 0}}
        mine = server.post(OLLAMA, ollama).json
        check(f"{name}: Ollama", mine["message"]["content"] == raw, mine, raw)

# ---- What does not go on

called = {"role": "assistant", "content": [*text("Wait."), {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
plain = {"role": "assistant", "content": "Wait.", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]}
mine, other = server.post(MESSAGES, {"messages": [*ASKED, called], **short}), server.post(CHAT, {"messages": [*ASKED, plain], **short})
check("a message with a call does not go on", mine.status == 200 and mine.json["content"] == text(other.json["choices"][0]["message"]["content"]), mine.body, other.body)
other = server.post(CHAT, {"messages": said("Well"), **short}).json
check("nor does one of chat completions that does not say so", other["choices"][0]["message"]["content"] == server.post(
    "/v1/completions", {"prompt": OPEN + "Well<|im_end|>\n<|im_start|>assistant\n", **short}).json["choices"][0]["text"], other)
check("it ends with 0", server.stop() == 0)
finish()
