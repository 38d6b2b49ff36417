"""weir preset: a model with settings under a name, wherever a model is named."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import WEIR, expect, path_of, scratch, weir  # noqa: E402

ENV = {k: v for k, v in environment(HOME=scratch.name).items() if not k.startswith("XDG_")}
FOLDER = os.path.join(scratch.name, ".config/weir/presets")


def run(*words, env=ENV, **more):
    return weir(*words, env=env, **more)


def written(name, text):
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name + ".preset"), "w") as file:
        file.write(text)


def settings(*words, env=ENV):
    return {row["option"]: (row["value"], row["from"]) for row in json.loads(run("config", "--json", *words, env=env).stdout)["settings"]}


def generated(*words, env=ENV, **more):
    done = run(*words, "--json", env=env, **more)
    return json.loads(done.stdout)["usage"]["generated_tokens"] if done.returncode == 0 else done.stderr


def test_write():
    done = run("preset")
    check("without presets it says how to make one", done.returncode == 0 and "weir preset NAME" in done.stderr, done.stderr)
    system = 'Be "brief" \\ always.\nIn two lines.\t'
    done = run("preset", "brief", "-m", "fake:", "--system", system, "--temp", "0.25", "--stop", "a, b", "--stop", " c", "-n", "7", "--no-thinking")
    path = os.path.join(FOLDER, "brief.preset")
    check("options make one", done.returncode == 0 and path in done.stderr and open(path).read() == done.stdout, done.stdout, done.stderr)
    got = settings("run", "-m", "brief")
    check("what was written is what is read", got["--system"][0] == system and got["--temp"] == ("0.25", path + ":3") and got["--no-thinking"][0] == "on", got)
    check("lists keep their items", got["--stop"][0] == "a, b,  c", got["--stop"])
    check("a name alone shows it", run("preset", "brief").stdout == open(path).read())
    check("no name lists it", "brief   fake:" in run("preset").stdout, run("preset").stdout)
    check("as JSON", json.loads(run("preset", "--json").stdout) == {"presets": [{"name": "brief", "path": path, "model": "fake:"}]})
    done = run("list", env=dict(ENV, HF_HUB_CACHE=os.path.join(scratch.name, "hub")))
    check("weir list shows it among the models", [line.split() for line in done.stdout.splitlines()][1:] == [["brief", "preset", "of", "fake:"]], done.stdout, done.stderr)
    check("it is offered for -m, and as a word", "brief\t" in run("__complete", "run", "-m", "br").stdout and "brief\t" in run("__complete", "chat", "").stdout)
    expect("there is one of this name", run("preset", "brief", "--temp", "1"), 2, "weir rm brief")
    for bad in ("a/b", "hf:x", ".hidden", "default"):
        expect(f"{bad} is no name", run("preset", bad, "--temp", "1"), 2, "not a name")
    expect("options without a name", run("preset", "--temp", "1"), 2, "which name")
    models = os.path.join(scratch.name, ".cache/weir/models")
    os.makedirs(models)
    with open(os.path.join(models, "SmolLM2-135M-Instruct.Q4_1.gguf"), "wb") as file:
        file.write(bytes(1000))
    check("weir list shows the default model", ["default", "1.0", "KB", "here"] in [line.split() for line in run("list").stdout.splitlines()],
          run("list").stdout)
    shutil.rmtree(models)
    expect("a preset of a preset", run("preset", "other", "-m", "brief"), 2, "the preset brief", "a GGUF file")
    written("broken", "tmep = 1\n")
    done = run("list")
    check("a preset with an error is in the list", done.returncode == 0 and "a preset with an error" in done.stdout and
          "there is no setting tmep" in done.stderr, done.stdout, done.stderr)
    os.remove(os.path.join(FOLDER, "broken.preset"))
    expect("a name that there is not", run("preset", "other"), 2, "no preset other")
    expect("a value out of form", run("preset", "other", "--temp", "warm"), 2, "--temp")
    expect("weir rm asks", run("rm", "brief"), 2, "--yes")
    expect("weir rm removes it", run("rm", "brief", "--yes"), 0, out="removed brief")
    check("it is gone", not os.path.exists(path))
    expect("only once", run("rm", "brief", "--yes"), 3, "no preset", "brief.preset")
    file = path_of("model.gguf", b"GGUFxxxx")
    done = subprocess.run([WEIR, "preset", "here", "-m", "model.gguf"], cwd=scratch.name, capture_output=True, text=True, env=ENV)
    check("paths become absolute", done.stdout == f"model = {os.path.realpath(file)}\n", done.stdout, done.stderr)
    os.remove(os.path.join(FOLDER, "here.preset"))
    done = run("preset", "shown", "-m", "fake:", "--json")
    path = os.path.join(FOLDER, "shown.preset")
    check("what was written, as JSON", json.loads(done.stdout) == {"name": "shown", "path": path, "text": "model = fake:\n"}, done.stdout)
    os.remove(path)
    for words in (["--offline"], ["--revision", "main"], ["--list-devices"]):
        expect(f"{words[0]} is no setting of a preset", run("preset", "other", "-m", "fake:", *words), 2, "no option " + words[0])


def test_files():
    """A preset's files do not depend on the folder in which it is made or used."""
    words = ["--lora", "a.gguf=0.5", "--lora", "b=c.gguf", "--cache-dir", "./states", "--optimized", ""]
    for name in ("a.gguf", "b=c.gguf"):
        path_of(name, b"GGUFxxxx")
    done = subprocess.run([WEIR, "preset", "files", "-m", "fake:", *words], cwd=scratch.name, capture_output=True, text=True, env=ENV)
    here = os.path.realpath(scratch.name)
    check("paths are written as absolute ones", done.stdout.split("\n") == ["model = fake:", 'optimized = ""', f"cache-dir = {here}/./states", f"lora = {here}/a.gguf=0.5",
                                                                            f"lora = {here}/b=c.gguf", ""], done.stdout, done.stderr)
    os.remove(os.path.join(FOLDER, "files.preset"))
    written("folder", "model = fake:\ncache-dir = ./states\n")
    check("folders are relative to the preset, too", settings("run", "-m", "folder")["--cache-dir"][0] == FOLDER + "/./states", settings("run", "-m", "folder")["--cache-dir"])
    done = run("preset", "biases", "-m", "fake:", "--logit-bias", "1+1.5", "--logit-bias", "2-inf")
    check("each bias is a line", "logit-bias = 1+1.5\nlogit-bias = 2-inf\n" in done.stdout, done.stdout)
    expect("and is read", run("run", "biases", "x", "-n", "1"), 0)
    grammar = path_of("yes.gbnf", 'root ::= "yes"')
    done = run("preset", "yes", "-m", "fake:", "--grammar-file", grammar)
    check("a file of a grammar is a setting", f"grammar-file = {os.path.realpath(grammar)}\n" in done.stdout, done.stdout, done.stderr)
    check("weir run obeys it", run("run", "yes", "x", "-q").stdout == "yes\n")
    done = run("chat", "-m", "fake:", "-q", stdin="/preset yes\nHello\n")
    check("and /preset of weir chat", done.stdout == "yes\n", done.stdout, done.stderr)


def test_use():
    written("short", "# three tokens\nmodel = fake:\nmax-tokens = 3\nignore_eos = 1\n")
    check("-m NAME", generated("run", "-m", "short", "-p", "x") == 3)
    check("a word", generated("run", "short", "x") == 3)
    check("WEIR_MODEL", generated("run", "x", env=dict(ENV, WEIR_MODEL="short")) == 3)
    check("the config file", generated("run", "x", env=dict(ENV, WEIR_CONFIG=path_of("names.conf", "model = short\n"))) == 3)
    check("the command line wins", generated("run", "short", "x", "-n", "5") == 5)
    check("it wins over the environment", generated("run", "short", "x", env=dict(ENV, WEIR_MAX_TOKENS="9")) == 3)
    check("and over the config file", generated("run", "short", "x", env=dict(ENV, WEIR_CONFIG=path_of("n.conf", "max-tokens = 9\n"))) == 3)
    written("stops", "model = fake:\nstop = one\nstop = two\n")
    check("a list of the command line replaces the preset's", settings("run", "-m", "stops", "--stop", "three")["--stop"][0] == "three")
    check("other commands leave out what they do not know", json.loads(run("info", "stops", "--json").stdout)["model"]["path"] == "fake:")
    path_of("talk.jinja", "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}")
    written("template", "model = fake:\nsystem = S\nchat-template-file = ../../../talk.jinja\n")
    shown = settings("run", "-m", "template")["--chat-template-file"][0]
    check("a path is relative to the preset", os.path.realpath(shown) == os.path.realpath(os.path.join(scratch.name, "talk.jinja")), shown)
    if "has no llama.cpp" in run("run", "-m", "template", "U", "-n", "1").stderr:
        print("note: this weir was built without llama.cpp, which renders templates")
    else:
        answers = [run("run", *words, "-n", "8", "--temp", "0", "--ignore-eos").stdout for words in (("-m", "template", "U"), ("-m", "fake:", "--raw", "system=S;user=U;"))]
        check("system message and template are used", answers[0] == answers[1] != "", answers)
    anywhere = path_of("mine.preset", "model = fake:\nmax-tokens = 2\nignore-eos = 1\n")
    check("a preset by its path", generated("run", "-m", anywhere, "-p", "x") == 2)


def test_chat():
    written("terse", "model = fake:other\nsystem = Be terse.\nmax-tokens = 2\nctx = 77\n")
    path = os.path.join(scratch.name, "kept.json")
    done = run("chat", "-m", "fake:", "-n", "9", "--ignore-eos", "--temp", "0", stdin=f"/preset terse\nHello\n/stats\n/save {path}\n")
    kept = json.load(open(path))["messages"]
    check("/preset takes system message and settings", done.returncode == 0 and kept[0] == {"role": "system", "content": "Be terse."} and
          "answer 2 tokens" in done.stdout, kept, done.stdout, done.stderr)
    expect("/preset of none", run("chat", "-m", "fake:", stdin="/preset nothing\n"), 2, "no preset nothing")
    written("hot", "temp = 200\n")
    expect("/preset with a value out of range", run("chat", "-m", "fake:", stdin="/preset hot\n"), 2, "--temp", "100")
    expect("weir chat NAME", run("chat", "terse", stdin=""), 3, '"other" is not an option')


def test_serve():
    from serve import Server
    if "without llhttp" in run("serve", "--port", "70000").stderr:
        print("note: this weir was built without llhttp")
        return
    written("pirate", "model = fake:\nsystem = Talk like a pirate.\nmax-tokens = 4\ntemp = 0\nignore-eos = 1\n")
    user, path = {"role": "user", "content": "hello"}, "/v1/chat/completions"
    with Server(WEIR, model="pirate", env=ENV) as server:
        check("it is served under its name", [m["id"] for m in server.get("/v1/models").json["data"]] == ["pirate"])
        reply = server.post(path, {"model": "pirate", "messages": [user]}).json
        check("with its settings", reply["usage"]["completion_tokens"] == 4, reply)
        told = server.post(path, {"messages": [{"role": "system", "content": "Talk like a pirate."}, user]}).json
        check("with its system message", (reply["choices"][0]["message"], reply["usage"]["prompt_tokens"]) ==
              (told["choices"][0]["message"], told["usage"]["prompt_tokens"]), reply, told)
        for role in ("system", "developer"):
            other = server.post(path, {"messages": [{"role": role, "content": "Hi"}, user]}).json
            check(f"unless the chat has a {role} message", other["usage"]["prompt_tokens"] < told["usage"]["prompt_tokens"], other)
        error = server.post(path, {"messages": [user, {"role": "user", "content": 5}]}).error
        check("errors number messages as the client does", "messages[1]" in (error["param"] or "") + error["message"] and
              "messages[2]" not in error["message"], error)


def test_mistakes():
    for text, parts in (("tmep = 1\n", [":1:", "did you mean temp?"]), ("\n[run]\n", [":2:", "no sections"]), ("temp = warm\n", [":1: temp", "a number"]),
                        ("port = 80\n", [":1:", "port is not for presets"]), ("api-key = x\n", [":1:", "not for presets"]), ("ctx 5\n", [":1:", '"="'])):
        written("wrong", text)
        expect(f"{text!r} is told with its line", run("run", "-m", "wrong", "-p", "x"), 2, "wrong.preset", *parts)
    written("loop", "model = loop\n")
    expect("a preset's model is no preset", run("run", "loop", "x"), 3, "cannot load", "loop")
    expect("a path to a preset that is missing", run("run", "-m", "/none/x.preset", "-p", "x"), 1, "/none/x.preset")


if __name__ == "__main__":
    run_tests(globals())
