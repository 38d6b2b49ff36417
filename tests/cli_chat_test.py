"""weir chat: from a pipe, and in tmux at two sizes as a person uses it: typing, watching, Ctrl-C, history, a window that changes."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from terminal import Terminal  # noqa: E402
from tmux import PATIENCE, Tmux, environment, last, missing, scratch  # noqa: E402

WEIR = os.environ["WEIR_BIN"]


def chat(text, *words, code=0, model="fake:"):
    done = subprocess.run([WEIR, "chat", "-m", model, *words], input=text.encode(), capture_output=True, env=environment(), timeout=PATIENCE)
    if done.returncode != code:
        print("      exit", done.returncode, done.stderr.decode())
    return done.stdout.decode(), done.stderr.decode(), done.returncode == code


# ---- From a pipe ----

def saved(*lines, words=()):
    """The messages of a conversation that consisted of these lines."""
    path = os.path.join(scratch.name, "talk.json")
    if os.path.exists(path):
        os.remove(path)
    out, err, well = chat("\n".join([*lines, f"/save {path}"]) + "\n", "-n", "8", "--temp", "0", *words)
    return json.load(open(path))["messages"] if well and os.path.exists(path) else (out, err)


def roles(messages):
    return [m["role"][0] for m in messages]


def test_pipe():
    out, err, well = chat("Hello\nAgain\n", "-n", "8", "--temp", "0", "--ignore-eos")
    check("two questions, two answers, nothing else", well and err == "" and "\x1b" not in out and "> " not in out and len(out) > 8, out, err)
    messages = saved("Hello", "Again")
    check("both are remembered", roles(messages) == ["u", "a", "u", "a"] and messages[0]["content"] == "Hello", messages)
    first = saved("Hello")
    check("the answer depends on what was said before", first == messages[:2], first, messages)
    check("a system message", roles(saved("Hi", words=("--system", "Be brief."))) == ["s", "u", "a"])
    check("/system", roles(saved("/system Be brief.", "Hi")) == ["s", "u", "a"])
    check("/system - removes it", roles(saved("/system Be brief.", "/system -", "Hi")) == ["u", "a"])
    check("/undo forgets a question with its answer", saved("Hello", "Again", "/undo") == first)
    check("/clear forgets all", saved("Hello", "/clear", "Again") == saved("Again"))
    check("/regen of a greedy answer gives it again", saved("Hello", "/regen") == first)
    check("/set changes what follows", len(saved("/set max_tokens 2", "Hello")[1]["content"]) < len(first[1]["content"]))
    check("/set with a hyphen and an equals sign", len(saved("/set max-tokens=2", "Hello")[1]["content"]) < len(first[1]["content"]))
    check("a line that ends with a backslash goes on", saved("one \\", "two")[0]["content"] == "one \ntwo")
    check("// begins a message with a slash", saved("//etc is a folder")[0]["content"] == "/etc is a folder")
    check('""" begins a message of several lines', saved('"""one', "", '/two"""')[0]["content"] == "one\n\n/two")
    check('""" in one line', saved('"""/one"""')[0]["content"] == "/one")
    check("the lines' backslashes stay there", saved('"""a \\', 'b', '"""')[0]["content"] == "a \\\nb")
    out, err, well = chat('"""one\ntwo', "-n", "4", "--temp", "0", "--ignore-eos")
    check('""" without its end ends with the input', well and out == chat('"""one\ntwo\n"""\n', "-n", "4", "--temp", "0", "--ignore-eos")[0] != "", out, err)
    check("empty lines are nothing", roles(saved("", "  ", "Hi")) == ["u", "a"])
    loaded = saved(f"/load {os.path.join(scratch.name, 'talk2.json')}", "Again") if shutil.copy(
        save_file(first), os.path.join(scratch.name, "talk2.json")) else None
    check("/load goes on where /save was", loaded == messages, loaded, messages)
    out, _, _ = chat("Hello\n/stats\n", "-n", "4", "--ignore-eos")
    check("/stats", "1 answer, 2 messages" in out and "answer 4 tokens" in out, out)
    out, _, _ = chat("/help\n")
    check("/help lists the commands", all(c in out for c in ("/system", "/clear", "/regen", "/undo", "/save", "/load", "/stats", "/set")), out)
    check("/? is /help", chat("/?\n")[0] == out)
    for word in ("/exit", "/bye", "/quit"):
        out, _, well = chat(word + "\nHello\n")
        check(f"{word} leaves", well and out == "", out)
    out, err, well = chat("Hello", "-n", "4", "--temp", "0", "--ignore-eos")
    check("a last line without its end", well and out != "", out, err)


def test_lists():
    """/set, /show and /model alone list what there is."""
    table = chat("/set\n", "--temp", "0.25")[0]
    rows = dict(line.split(None, 1) for line in table.splitlines() if len(line.split(None, 1)) == 2)
    check("/set lists the settings with their values", rows.get("temp") == "0.25" and {"top_k", "max_tokens", "seed"} <= set(line.split()[0] for line in table.splitlines()), table)
    for name in ("temp", "top_k", "min_p", "seed", "repeat_penalty"):
        check(f"each name is one that /set takes: {name}", chat(f"/set {name} {rows[name]}\n", "--temp", "0.25")[2])
    for line in ("/set parameter", "/show parameters", "/show settings"):
        again = chat(line + "\n", "--temp", "0.25")[0]
        check(f"{line} is /set", re.sub(r"cache_salt.*", "", again) == re.sub(r"cache_salt.*", "", table), again)
    shown = chat("Hello\n/show\n", "-n", "4", "--ignore-eos", "-c", "500", "--system", "Be brief.")[0]
    check("/show shows model, context, messages and system", all(re.search(rf"^{n} +{v}", shown, re.M) for n, v in
          (("model", "a model without weights"), ("file", "fake:"), ("context", "500 tokens"), ("messages", "2"), ("system", "Be brief."))) and "/show template" in shown, shown)
    check("/show template", "{%" in chat("/show template\n")[0] or "message" in chat("/show template\n")[0], chat("/show template\n"))
    out, err, _ = chat("/model\n")
    check("/model says which one runs and lists those that are here", "model  " in out and ("no models yet" in err or "hf:" in out or "default" in out), out, err)
    path = os.path.join(scratch.name, "moved.json")
    out, err, well = chat(f"Hello\n/model fake:n_ctx_train=99\n/show\nAgain\n/save {path}\n", "-n", "4", "--temp", "0", "--ignore-eos")
    check("/model NAME goes on with another model and the same conversation", well and "file         fake:n_ctx_train=99" in out and
          roles(json.load(open(path))["messages"]) == ["u", "a", "u", "a"], out, err)
    out, err, well = chat(f"Hello\n/model /none.gguf\n/save {path}\n", "-n", "4", "--temp", "0", "--ignore-eos", code=3)
    check("one that cannot be loaded ends a pipe", well and "/none.gguf" in err, err)


def test_forget():
    """The oldest turns go, and what follows is as if they had never been."""
    three = saved("One", "Two", "Three")
    check("/forget drops the oldest question and its answer", saved("One", "Two", "Three", "/forget") == three[2:])
    check("/forget 2", saved("One", "Two", "Three", "/forget 2") == three[4:])
    check("more than there are", saved("One", "/forget 9", "Two") == saved("Two"))
    check("the next answer is that of a conversation without them", saved("One", "Two", "/forget", f"/save {scratch.name}/x.json", "Three")[2:] ==
          saved(f"/load {scratch.name}/x.json", "Three")[2:])
    check("the system message stays", roles(saved("One", "/forget", words=("--system", "x"))) == ["s"])


def save_file(messages):
    path = os.path.join(scratch.name, f"kept{len(os.listdir(scratch.name))}.json")
    with open(path, "w") as file:
        json.dump({"messages": messages}, file)
    return path


def test_mistakes():
    for line, code, part in (("/sytsem x", 2, "did you mean /system"), ("/nothing", 2, "/help"), ("/set tmep 1", 2, "did you mean temp"),
                             ("/set ctx 100", 2, "ctx can be set only when weir starts"), ("/set parameter num_ctx 9", 2, "set only when weir starts"),
                             ("/set temp warm", 2, "a number"), ("/set temp 200", 2, "100"), ("/set " + "x" * 70, 2, "/set lists all"), ("/forget 0", 2, "/forget 3"), ("/forget x", 2, "/forget 3"),
                             ("/forget", 2, "nothing to forget"), ("/show nothing", 2, "parameters, system or template"), ("/model /none.gguf", 3, "/none.gguf"), ("/undo", 2, "nothing"),
                             ("/regen", 2, "no answer"), ("/load /none", 1, "/none"), ("/save /none/at/all", 1, "/none/at/all"),
                             ("/load " + save_file([{"role": "assistant", "content": "x"}]), 2, "in turn"),
                             ("/load " + save_file([{"role": "user", "content": 5}]), 2, "role and content")):
        out, err, well = chat(line + "\nHello\n", code=code)
        check(f"{line[:30]!r} is told, and a pipe ends there", well and part in err and out == "", out, err)
    path = os.path.join(scratch.name, "system.json")
    _, err, well = chat(f"/set system Be brief.\nHello\n/save {path}\n")
    check("/set system TEXT, as ollama has it", well and json.load(open(path))["messages"][0] == {"role": "system", "content": "Be brief."}, err)
    _, err, well = chat("x " * 3000 + "\n", "-c", "64", code=4)
    check("a conversation that does not fit", well and "/undo" in err and "/forget" in err and "larger --ctx or --kv" in err, err)
    _, err, well = chat("", "what", code=2)
    check("a model on the command line, twice", well and "one model" in err, err)


# ---- In a terminal ----

def in_tmux(columns, rows):
    label = f"{columns}x{rows}: "
    slow = "fake:tick_us=20000,n_ctx_train=100000"
    terminal = Tmux(columns, rows, f"{WEIR} chat -m {slow} -n 12 --ignore-eos --temp 0 -c 50000")
    try:
        if not terminal.wait(label + "a prompt appears", lambda s: last(s) == ">" and "/help lists" in s):
            return
        terminal.type("Hellp")
        terminal.keys("BSpace")
        terminal.type("o")
        terminal.wait(label + "what is typed is seen, and can be corrected", lambda s: last(s) == "> Hello")
        terminal.keys("Enter")
        terminal.wait(label + "an answer comes, then a prompt", lambda s: last(s) == ">" and "> Hello" in s and "(cut" in s)
        terminal.keys("Up")
        terminal.wait(label + "the history has the line", lambda s: last(s) == "> Hello")
        terminal.keys("C-c")
        terminal.wait(label + "Ctrl-C forgets what was typed and stays", lambda s: last(s) == ">" and "Ctrl-D leaves" in s)
        terminal.type("/se")
        terminal.keys("Tab")
        terminal.wait(label + "Tab completes commands", lambda s: last(s).startswith("> /set"))
        terminal.type(" max_tokens 20000")
        terminal.keys("Enter")
        terminal.wait(label + "/set is silent", lambda s: last(s) == ">")
        terminal.type("More")
        terminal.keys("Enter")
        terminal.wait(label + "a long answer runs", lambda s: "> More" in s and len(s.split("> More")[-1].strip()) > 30)
        terminal.keys("C-c")
        terminal.wait(label + "Ctrl-C ends the answer alone", lambda s: last(s) == ">" and "(cancelled)" in s)
        terminal.type("wörld")
        terminal.keys("Left", "Left", "BSpace")
        terminal.wait(label + "characters of two bytes are one", lambda s: last(s) in ("> wöld", "> wrld"))
        terminal.keys("C-u")
        terminal.type("x" * (columns + 5))
        terminal.wait(label + "a line may be longer than the window", lambda s: s.count("x") >= columns + 5)
        terminal.resize(columns - 20, rows)
        terminal.keys("C-u")
        terminal.type("/undo")
        terminal.wait(label + "nothing of the long line is left", lambda s: last(s) == "> /undo")
        terminal.keys("Enter")
        terminal.wait(label + "it goes on after a change of the window", lambda s: "forgotten" in s and last(s) == ">")
        terminal.keys("C-d")
        terminal.wait(label + "Ctrl-D leaves", lambda s: "ended with 0" in s and "as before" in s)
    finally:
        terminal.close()


def test_tmux():
    if missing():
        return
    for size in ((80, 24), (200, 50)):
        in_tmux(*size)
    path = os.path.join(scratch.name, ".local/state/weir/chat_history")
    check("the history is kept, for its owner alone", os.path.exists(path) and "Hello" in open(path).read() and
          os.stat(path).st_mode & 0o077 == 0, os.path.exists(path))


def test_editing():
    """Pastes, files, an editor, overwritten lines."""
    if missing():
        return
    saved_path = os.path.join(scratch.name, "written.json")
    editor = os.path.join(scratch.name, "editor")
    with open(editor, "w") as file:
        file.write('#!/bin/sh\nprintf \'%s, edited\\n\' "$(cat "$1")" >"$1"\n')
    os.chmod(editor, 0o755)
    notes = os.path.join(scratch.name, "notes.txt")
    with open(notes, "w") as file:
        file.write("noted\n")
    terminal = Tmux(80, 24, f"EDITOR={editor} {WEIR} chat -m fake: -n 6 --ignore-eos --temp 0")

    def messages():
        terminal.type(f"/save {saved_path}")
        terminal.keys("Enter")
        terminal.wait("it is saved", lambda s: last(s) == ">" and os.path.exists(saved_path))
        kept = [m["content"] for m in json.load(open(saved_path))["messages"] if m["role"] == "user"]
        os.remove(saved_path)
        return kept
    try:
        terminal.wait("editing: a prompt", lambda s: last(s) == ">")
        terminal.type("see: ")
        terminal.paste("first line\n/second\t\u00e4\n\nlast\n")
        terminal.wait("a paste is seen and not sent", lambda s: "> see: first line" in s and last(s) == "last" and "(cut" not in s)
        terminal.type("!")
        terminal.keys("Enter")
        terminal.wait("Enter sends it", lambda s: last(s) == ">" and "(cut" in s)
        check("what was pasted is one message", messages() == ["see: first line\n/second\t\u00e4\n\nlast!"])
        terminal.keys("Escape")
        terminal.keys("f")
        terminal.type("x\x1b[Dy")
        terminal.wait("escape sequences that are no paste are keys as before", lambda s: last(s) == "> yx")
        terminal.keys("C-u")
        terminal.paste("\n".join(f"row {i}" for i in range(60)))
        terminal.wait("a paste may be longer than the window", lambda s: last(s) == "row 59")
        terminal.keys("Enter")
        terminal.wait("and is sent as a whole", lambda s: last(s) == ">" and s.count("(cut") >= 1 and "row 59" in s)
        check("all of it", messages()[1:] == ["\n".join(f"row {i}" for i in range(60))])
        terminal.type("/clear")
        terminal.keys("Enter")
        terminal.wait("the conversation begins anew", lambda s: last(s) == ">" and "anew" in s)
        terminal.type(f"/file {notes}")
        terminal.keys("Enter")
        terminal.wait("/file says what goes with the next message", lambda s: "next message: notes.txt (6 B)" in s and last(s) == ">")
        terminal.type("About this")
        terminal.keys("Enter")
        terminal.wait("it is sent", lambda s: s.count("(cut") > 1 and last(s) == ">")
        terminal.type("/edit a draft")
        terminal.keys("Enter")
        terminal.wait("/edit shows and sends what the editor wrote", lambda s: "a draft, edited" in s and last(s) == ">" and s.count("(cut") > 2)
        kept = messages()
        check("the file's text stands before the message, once", kept == ["noted\n\nAbout this", "a draft, edited"], kept)
        with open(saved_path, "w") as file:
            file.write("precious")
        terminal.type(f"/save {saved_path}")
        terminal.keys("Enter")
        terminal.wait("/save asks before it overwrites", lambda s: last(s).endswith("overwrite it? [y/N]"))
        terminal.keys("Enter")
        terminal.wait("no is the default", lambda s: "not saved" in s and last(s) == ">")
        check("the file is as it was", open(saved_path).read() == "precious")
        terminal.type(f"/save {saved_path}")
        terminal.keys("Enter")
        terminal.wait("/save asks again", lambda s: last(s).endswith("overwrite it? [y/N]"))
        terminal.type("y")
        terminal.keys("Enter")
        terminal.wait("yes overwrites", lambda s: last(s) == ">" and s.count("saved") > 1)
        check("the file is new", open(saved_path).read() != "precious")

        def line(*words):
            terminal.type("/clear")
            terminal.keys("Enter")
            terminal.keys("C-l")
            for each in words:
                terminal.wait("a prompt", lambda s: last(s) == ">")
                terminal.type(each)
                terminal.keys("Enter")
        line("/set max_tokens 9", "/set max_tokens", "/set seed", "/set grammar root ::= \"yes\"", "/set grammar")
        terminal.wait("/set NAME shows the value", lambda s: last(s) == ">" and
                      s.split("> /set max_tokens\n")[-1].startswith("9\n> /set seed\n-1\n") and '\nroot ::= "yes"\n>' in s)
        with open(os.path.join(scratch.name, "hot.preset"), "w") as file:
            file.write("system = Be hot.\ntop-k = 7\ntemp = 200\n")
        line(f"/preset {file.name}", "/system", "/set top_k")
        terminal.wait("a preset with a value out of range changes nothing", lambda s: last(s) == ">" and "--temp" in s and
                      "> /system\nthere is no system message" in s and "> /set top_k\n40\n" in s)
        terminal.keys("C-d")
        terminal.wait("editing: it ends in order", lambda s: "ended with 0" in s and "as before" in s)
    finally:
        terminal.close()


def test_crash():
    """The echo, which is off while an answer runs, is on again after a crash."""
    terminal = Terminal([WEIR, "chat", "-m", "fake:tick_us=100000,n_ctx_train=100000,any=0", "-n", "600", "--temp", "0", "-c", "5000", "--grammar", 'root ::= ([a-c] " ")*', "--ignore-eos"],
                        env=environment())
    terminal.wait_for(lambda s: ">" in s.text(), PATIENCE)
    terminal.keys("Hello\r")
    check("a crash: an answer runs", terminal.wait_for(lambda s: re.search(r"[abc] [abc]", s.text()), PATIENCE), terminal.output[-500:])
    check("a crash: the echo is off", not terminal.settings_kept())
    terminal.process.send_signal(signal.SIGQUIT)
    got = terminal.finish(PATIENCE)
    check("a crash: the terminal is as before", got is not None and got != 0 and terminal.settings_kept(), got, terminal.output[-300:])
    terminal.close()


def test_typed_ahead():
    """What is typed while an answer runs waits for the next line, and does not stand in the answer."""
    if missing():
        return
    terminal = Tmux(80, 24, f"{WEIR} chat -m fake:tick_us=100000,n_ctx_train=100000,any=0 -n 60 --temp 0 -c 5000 --grammar 'root ::= ([a-c] \" \")*' --ignore-eos")
    try:
        terminal.wait("typed ahead: a prompt", lambda s: last(s) == ">")
        terminal.type("Hello")
        terminal.keys("Enter")
        terminal.wait("typed ahead: an answer runs", lambda s: re.search(r"> Hello\n[abc] [abc]", s))
        terminal.type("SECOND")
        terminal.wait("typed ahead: it stands on the next prompt, and nowhere else", lambda s: last(s) == "> SECOND" and s.count("SECOND") == 1 and
                      re.search(r"> Hello\n[abc \n]+\n\(cut", s) and "(cut" in s)
        terminal.keys("C-u")
        terminal.type("More")
        terminal.keys("Enter")
        terminal.wait("typed ahead: another answer runs", lambda s: re.search(r"> More\n[abc] [abc]", s))
        terminal.type("/stats")
        terminal.keys("Enter")
        terminal.wait("typed ahead: a whole line is taken after the answer", lambda s: "2 answers, 4 messages" in s and last(s) == ">")
        terminal.type("/set max_tokens 4000")
        terminal.keys("Enter")
        terminal.type("Third")
        terminal.keys("Enter")
        terminal.wait("typed ahead: a third answer runs", lambda s: re.search(r"> Third\n[abc] [abc]", s))
        terminal.keys("C-c")
        terminal.wait("typed ahead: Ctrl-C ends the answer", lambda s: "(cancelled)" in s and last(s) == ">")
        terminal.type("seen")
        terminal.wait("typed ahead: what is typed at the prompt is seen", lambda s: last(s) == "> seen")
        terminal.keys("C-u", "C-d")
        terminal.wait("typed ahead: the terminal is as before", lambda s: "ended with 0" in s and "as before" in s)
    finally:
        terminal.close()


def test_full_context():
    """A conversation that no longer fits may lose its oldest turns, if the person agrees."""
    if missing():
        return
    terminal = Tmux(80, 24, f"{WEIR} chat -m fake: -n 8 --temp 0 -c 200 --ignore-eos")

    def say(text):
        terminal.type(text)
        terminal.keys("Enter")
    try:
        terminal.wait("full: a prompt", lambda s: last(s) == ">")
        for i in range(3):
            say("x" * 30)
            terminal.wait(f"full: answer {i}", lambda s: s.count("(cut") == i + 1 and last(s) == ">")
        say("y" * 60)
        terminal.wait("full: it is told and offered", lambda s: "does not fit any longer" in s and last(s).endswith("until it fits? [y/N]"))
        terminal.keys("Enter")
        terminal.wait("full: no is the default, and other ways are named", lambda s: "/forget" in s and last(s) == ">")
        say("/stats")
        terminal.wait("full: nothing was lost", lambda s: "6 messages" in s and last(s) == ">")
        say("y" * 60)
        terminal.wait("full: it is offered again", lambda s: last(s).endswith("until it fits? [y/N]"))
        say("y")
        terminal.wait("full: then there is an answer, and it says what was forgotten", lambda s: re.search(r"\(\d of the oldest questions and their answers were forgotten\)", s) and last(s) == ">")
        say("/stats")
        terminal.wait("full: fewer messages are left", lambda s: re.search(r"4 answers, [24] messages", s) and last(s) == ">")
        say("z" * 300)
        terminal.wait("full: one message that is too long is offered, too", lambda s: last(s).endswith("until it fits? [y/N]"))
        say("y")
        terminal.wait("full: but nothing is forgotten for it", lambda s: "the last message alone does not fit" in s and last(s) == ">")
        say("/clear")
        terminal.wait("full: a new conversation", lambda s: "anew" in s)
        terminal.keys("C-d")
        terminal.wait("full: it ends in order", lambda s: "ended with 0" in s and "as before" in s)
    finally:
        terminal.close()


def test_files_in_a_pipe():
    path = os.path.join(scratch.name, "piped.txt")
    with open(path, "w") as file:
        file.write("noted\n")
    check("/file goes with the next message alone", [m["content"] for m in saved(f"/file {path}", "one", "two") if m["role"] == "user"] ==
          ["noted\n\none", "two"])
    check("/file - takes it back", saved(f"/file {path}", "/file -", "one")[0]["content"] == "one")
    _, err, well = chat("/file /none\nx\n", code=1)
    check("a file that is missing ends a pipe", well and "/none" in err, err)
    _, err, well = chat("/edit\n", code=2)
    check("/edit in a pipe", well and "terminal" in err, err)
    check("/set as ollama has it", len(saved("/set parameter max_tokens 2", "Hello")[1]["content"]) < len(saved("Hello")[1]["content"]))


def test_wrap():
    """Answers break between words on a terminal; off it they are as the model gave them."""
    if missing():
        return
    words = "word " * 60 + "end"
    grammar = os.path.join(scratch.name, "words.gbnf")
    with open(grammar, "w") as file:
        file.write(f'root ::= "{words}"')
    out = subprocess.run([WEIR, "run", "-m", "fake:", "-p", "x", "--grammar-file", grammar, "-q"], capture_output=True, text=True, env=environment()).stdout
    check("off a terminal: one line", out == words + "\n", out)
    terminal = Tmux(43, 24, f"{WEIR} run -m fake: -p x --grammar-file {grammar} -q")
    try:
        terminal.wait("on one: whole words", lambda s: "ended with" in s and s.split("\n")[:2] == ["word " * 7 + "word"] * 2 and
                      s.count("word") == 60)
    finally:
        terminal.close()


def test_progress():
    """A long prompt says how far it is read, until the answer begins; a pipe never has it."""
    if missing():
        return
    slow = "fake:token_us=3000,n_ctx_train=8192"
    terminal = Tmux(80, 24, f"{WEIR} chat -m {slow} -n 6 --ignore-eos --temp 0 --chunk 50")
    try:
        terminal.wait("progress: a prompt", lambda s: last(s) == ">")
        terminal.type("x" * 700)
        terminal.keys("Enter")
        terminal.wait("how far the prompt is read", lambda s: re.search(r"reading the prompt: \d+ of 7\d\d tokens", s))
        terminal.wait("nothing of it is left beside the answer", lambda s: last(s) == ">" and "(cut" in s and "reading" not in s)
    finally:
        terminal.close()
    out, err, well = chat("x" * 300 + "\n", "-n", "6", "--temp", "0", "--ignore-eos", "--chunk", "50", model="fake:token_us=3000")
    check("a pipe has no progress", well and err == "" and "reading" not in out, out, err)


def test_dumb():
    if missing():
        return
    terminal = Tmux(70, 20, f"TERM=dumb {WEIR} chat -m fake: -n 6 --temp 0 --ignore-eos")
    try:
        terminal.wait("a dumb terminal: a prompt", lambda s: last(s) == ">")
        terminal.type("Hello")
        terminal.keys("Enter")
        terminal.wait("a dumb terminal: an answer, and a prompt", lambda s: last(s) == ">" and s.count("> ") == 1)
        terminal.keys("C-c")
        terminal.wait("a dumb terminal: Ctrl-C stays", lambda s: "Ctrl-D leaves" in s)
        terminal.keys("C-d")
        terminal.wait("a dumb terminal: Ctrl-D leaves", lambda s: "ended with 0" in s and "as before" in s)
    finally:
        terminal.close()


def test_stream_in_tmux():
    """weir stream and its panes, at both sizes."""
    if missing():
        return
    path = os.path.join(scratch.name, "requests.json")
    with open(path, "w") as file:
        json.dump({"max_tokens": 2000, "ignore_eos": True, "requests": [{"name": n, "prompt": n} for n in ("first", "second", "third")]}, file)
    for columns, rows in ((80, 24), (200, 50)):
        label = f"weir stream at {columns}x{rows}: "
        terminal = Tmux(columns, rows, f"{WEIR} stream {path} -m fake:tick_us=20000,n_ctx_train=100000")
        try:
            terminal.wait(label + "a pane for each", lambda s: all(n in s for n in ("first", "second", "third")))
            terminal.keys("s")
            terminal.wait(label + "s cancels one", lambda s: "cancelled" in s)
            terminal.resize(columns - 15, rows - 5)
            terminal.wait(label + "it redraws in a smaller window", lambda s: all(n in s for n in ("second", "third")))
            terminal.keys("q")
            terminal.wait(label + "q ends all", lambda s: "ended with 130" in s and "as before" in s)
        finally:
            terminal.close()


if __name__ == "__main__":
    run_tests(globals())
