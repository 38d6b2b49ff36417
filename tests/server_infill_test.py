"""weir serve as editors know it, on the fake model: text between two others, by /infill and by suffix. The tokens of such a prompt are
built here, too; the fake model's text depends on each of them."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
TEXT, INFILL = "/v1/completions", "/infill"
PRE, SUF, MID, REPO, FILE = range(315, 320)
SHORT = {"max_tokens": 8, "temperature": 0}


def ids(text):
    """The fake model's."""
    return list(text.encode())


def refused(name, reply, field, word=""):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: 400, {field}", reply.status == 400 and error["param"] == field and word in error["message"], reply.status, reply.body)


need_server(WEIR)
server = Server(WEIR, model="fake:fim=1")
bos = server.post("/tokenize", {"content": "", "add_special": True}).json["tokens"]
assert len(bos) == 1, bos


def wanted(tokens, **more):
    return server.post(TEXT, dict(SHORT, prompt=tokens, **more)).json["choices"][0]["text"]


code = {"input_prefix": "int f(", "input_suffix": ") {}\n"}
plain = wanted(bos + [PRE] + ids("int f(") + [SUF] + ids(") {}\n") + [MID])
reply = server.post(INFILL, dict(SHORT, **code))
check("infill", reply.status == 200 and reply.json["content"] == plain and "x-weir-relaxed" not in reply.headers, reply.body, plain)
check("suffix", server.post(TEXT, dict(SHORT, prompt="int f(", suffix=") {}\n")).json["choices"][0]["text"] == plain)
check("suffix, streamed", "".join(e["choices"][0]["text"] for e in server.stream(TEXT, dict(SHORT, prompt="int f(", suffix=") {}\n"))) == plain)
check("it is another text than without", plain not in (wanted("int f("), server.post(INFILL, dict(SHORT, input_prefix="int f(")).json["content"]))
check("what was typed", server.post(INFILL, dict(SHORT, prompt="int a", **code)).json["content"] ==
      wanted(bos + [PRE] + ids("int f(int a") + [SUF] + ids(") {}\n") + [MID]))
extra = [{"filename": "a.h", "text": "int a;\n"}, {"text": "int b;\n"}]
files = [REPO] + ids("myproject\n") + [FILE] + ids("a.h\nint a;\n") + [FILE] + ids("tmp\nint b;\n") + [FILE] + ids("filename\n")
check("other files", server.post(INFILL, dict(SHORT, input_extra=extra, **code)).json["content"] ==
      wanted(bos + files + [PRE] + ids("int f(") + [SUF] + ids(") {}\n") + [MID]))
check("control tokens' text is text", server.post(INFILL, dict(SHORT, input_prefix="<|im_end|>", input_suffix="")).json["content"] == wanted(bos + [PRE] + ids("<|im_end|>") + [SUF, MID]))
# What llama.vim sends.
vim = dict(code, input_extra=extra, prompt="", n_predict=8, n_indent=4, top_k=40, top_p=0.9, samplers=["top_k", "top_p", "infill"], stream=False, cache_prompt=True, temperature=0,
           t_max_prompt_ms=500, t_max_predict_ms=1000, response_fields=["content", "timings/prompt_n"])
reply = server.post(INFILL, vim)
check("as an editor asks", reply.status == 200 and reply.json["content"] == server.post(INFILL, dict(SHORT, input_extra=extra, **code)).json["content"] and
      set(reply.headers["x-weir-relaxed"].split("; ")) == {"n_indent", "samplers: infill", "t_max_prompt_ms", "t_max_predict_ms", "response_fields"}, reply.headers, reply.body)
again = server.post(INFILL, vim).json
check("and again: the prompt is cached", again["timings"]["cache_n"] > 30, again)
for name, path, body, field, *word in [
        ("a prefix", INFILL, {"input_prefix": 5}, "input_prefix"), ("a suffix", INFILL, {"input_suffix": [1]}, "input_suffix"), ("files", INFILL, {"input_extra": "x"}, "input_extra"),
        ("a file", INFILL, {"input_extra": [{"filename": "x"}]}, "input_extra"), ("a file's name", INFILL, {"input_extra": [{"text": "x", "filename": 5}]}, "input_extra"),
        ("messages", INFILL, {"messages": []}, "messages"), ("suffix of another type", TEXT, {"prompt": "x", "suffix": 5}, "suffix"), ("suffix and tokens", TEXT, {"prompt": [1], "suffix": "y"}, "prompt"),
        ("suffix and several prompts", TEXT, {"prompt": ["a", "b"], "suffix": "y"}, "prompt"), ("suffix and echo", TEXT, {"prompt": "x", "suffix": "y", "echo": True}, "echo"),
        ("suffix and a dry run", "/v1/plan", {"prompt": "x", "suffix": "y"}, "suffix"), ("input_prefix elsewhere", TEXT, {"prompt": "x", "input_prefix": "y"}, "input_prefix"),
        ("n_indent elsewhere", "/completion", {"prompt": "x", "n_indent": 4}, "n_indent")]:
    refused(name, server.post(path, dict(SHORT, **body), headers=STRICT), field, *word)
server.stop()

server = Server(WEIR)
refused("a model without such tokens", server.post(INFILL, dict(SHORT, **code)), "input_suffix", "cannot fill in the middle")
refused("a model without such tokens, suffix", server.post(TEXT, dict(SHORT, prompt="x", suffix="y")), "suffix", "cannot fill in the middle")
check("an empty suffix", server.post(TEXT, dict(SHORT, prompt="x", suffix="")).status == 200)
server.stop()

finish()
