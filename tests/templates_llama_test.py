"""A chat template that cannot be parsed: who refuses to start, with which sentence, and what goes on. On small random models (scripts/tiny_gguf.py)."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment, run_tests  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
TINY = os.path.join(os.environ.get("WEIR_SOURCE_DIR", "."), "scripts", "tiny_gguf.py")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# The mistake is on the third line: }} is missing a bracket, a block is not closed, a statement does not exist.
BROKEN = "{# a comment #}\n{% for m in messages %}\n{{ m.content }\n{% endfor %}"
MISTAKES = {BROKEN: "line 3", "a\nb\n{% for m in messages %}\n{{ m.content }}\n": "line 3", "a\n{% if x %}b\n{% bad %}\n{% endif %}\n": "line 3"}
RAISES = "{{ raise_exception('no conversation is good enough') }}"

scratch = tempfile.TemporaryDirectory()


def file(name, text):
    path = os.path.join(scratch.name, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def made(name, *words):
    path = os.path.join(scratch.name, name)
    subprocess.run([sys.executable, TINY, "llama", path, *words], check=True)
    return path


def weir(*words, stdin=""):
    return subprocess.run([WEIR, *words], input=stdin, capture_output=True, text=True, env=environment(), timeout=PATIENCE)


GOOD, BAD = made("good.gguf"), made("bad.gguf", "--template", BROKEN)
BARE, TOOLS, RAISING = made("bare.gguf", "--template", ""), made("tools.gguf", "--tool-template", BROKEN), made("raising.gguf", "--template", RAISES)
BROKEN_FILE = file("broken.jinja", BROKEN)


def refuses(name, words, *said):
    """Ends at once, without an address, with one sentence that has all of these words."""
    try:
        with Server(WEIR, *words, model=None) as server:
            check(f"{name}: refuses to start", False, server.address)
    except RuntimeError as error:
        check(f"{name}: refuses to start and says why", all(word in str(error) for word in said), str(error))


def chat(server, **more):
    return server.post(CHAT, dict({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}, **more))


def text(server, **more):
    return server.post(TEXT, dict({"prompt": "hi", "max_tokens": 2}, **more))


def test_serve_refuses():
    refuses("the model's template", ("-m", BAD), "bad.gguf", "tokenizer.chat_template", "line 3", "--chat-template", "--chat-template-file")
    refuses("the model's template for tools", ("-m", TOOLS), "tools.gguf", "tokenizer.chat_template.tool_use", "line 3")
    for i, (source, line) in enumerate(MISTAKES.items()):
        refuses(f"a template of the options, {i}", ("-m", GOOD, "--chat-template-file", file(f"{i}.jinja", source)), "--chat-template-file", line, "cannot be parsed")


def test_serve_overrides():
    with Server(WEIR, "--chat-template", "chatml", model=BAD) as server:
        check("another template makes up for a broken one", chat(server).status == 200)
    with Server(WEIR, "--chat-template", "chatml", model=TOOLS) as server:
        check("and for the one for tools", chat(server).status == 200)


def test_serve_without():
    with Server(WEIR, model=BARE) as server:
        check("a model without a template completes texts", text(server).status == 200)
        reply = chat(server)
        check("a chat is told that there is none", reply.status == 400 and "has no chat template" in reply.error["message"] and
              "template_source" not in reply.error["message"], reply.body)


def test_serve_raising():
    with Server(WEIR, model=RAISING) as server:
        check("a template that raises can be parsed, so the server starts", text(server).status == 200)
        reply = chat(server)
        check("and the chat gets what it raises", reply.status == 400 and "no conversation is good enough" in reply.error["message"], reply.body)


def test_several_models():
    models = file("models.conf", f"[good]\nmodel = {GOOD}\n[bad]\nmodel = {BAD}\n[mended]\nmodel = {BAD}\nchat-template = chatml\n"
                  f"[given]\nmodel = {GOOD}\nchat-template-file = {BROKEN_FILE}\n[bare]\nmodel = {BARE}\n")
    with Server(WEIR, "--models", models, "-c", "256", model=None) as server:
        for name, what in ("bad", "tokenizer.chat_template"), ("given", "given for this model"):
            for reply in chat(server, model=name), text(server, model=name):
                check(f"{name}: the request gets the sentence", reply.status >= 400 and reply.error["code"] == "model_load_failed" and
                      "line 3" in reply.error["message"] and what in reply.error["message"], reply.status, reply.body)
        states = {m["id"]: m.get("state") for m in server.get("/v1/models").json["data"]}
        check("such a model is not loaded", states["bad"] == "failed" and states["given"] == "failed", states)
        check("the others go on", chat(server, model="good").status == 200 and chat(server, model="mended").status == 200 and
              text(server, model="bare").status == 200)


def test_commands():
    done = weir("run", "-m", BAD, "-p", "hi", "-n", "2")
    check("weir run refuses", done.returncode != 0 and not done.stdout and "tokenizer.chat_template" in done.stderr and "line 3" in done.stderr, done.stderr)
    check("weir run --raw needs no template", weir("run", "-m", BAD, "--raw", "-p", "hi", "-n", "2").returncode == 0)
    check("another template", weir("run", "-m", BAD, "--chat-template", "chatml", "-p", "hi", "-n", "2").returncode == 0)
    done = weir("chat", "-m", BAD, stdin="hi\n")
    check("weir chat refuses before it reads a line", done.returncode == 3 and "cannot chat with" in done.stderr and "line 3" in done.stderr, done.stderr)


if __name__ == "__main__":
    need_server(WEIR)
    run_tests(globals())
