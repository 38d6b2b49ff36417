"""weir run, from outside: answers, limits, grammars, a terminal."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import FAKE, MODEL, PATIENCE, SLOW, WEIR, expect, path_of, run, scratch, start, wait_gone, weir  # noqa: E402
from terminal import Terminal, in_order  # noqa: E402


def test_run():
    done = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos")
    check("an answer on stdout, figures on stderr", done.returncode == 0 and len(done.stdout.strip()) > 0 and
          re.search(r"^prompt \d+ tokens?, [\d.]+ tok/s · answer 12 tokens, [\d.]+ tok/s · first token after [\d.]+ m?s", done.stderr),
          done.stdout, done.stderr)
    check("one line of figures and nothing else", done.stderr.count("\n") == 1, done.stderr)
    check("no escape sequences off a terminal", "\x1b" not in done.stdout + done.stderr)
    again = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos")
    check("the same greedy answer again", again.stdout == done.stdout, done.stdout, again.stdout)
    expect("a word is a prompt too", run("Name a river.", "-n", "12", "--temp", "0", "--ignore-eos"), 0, out=done.stdout)
    for how, words in (("-p -", ["-p", "-"]), ("-", ["-"]), ("a pipe", [])):
        piped = run(*words, "-n", "12", "--temp", "0", "--ignore-eos", stdin="Name a river.\n")
        check(f"the prompt from stdin by {how}", piped.returncode == 0 and piped.stdout == done.stdout, piped.stdout, piped.stderr)
    filed = run("-f", path_of("prompt.txt", "Name a river.\n"), "-n", "12", "--temp", "0", "--ignore-eos")
    check("the prompt from a file", filed.stdout == done.stdout, filed.stdout, filed.stderr)
    quiet = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos", "-q")
    check("--quiet leaves stderr alone", quiet.stdout == done.stdout and quiet.stderr == "", quiet.stderr)
    raw = run("-p", "Name a river.", "--raw", "-n", "12", "--temp", "0", "--ignore-eos")
    check("--raw gives another answer than the template", raw.returncode == 0 and raw.stdout != done.stdout, raw.stdout)
    system = json.loads(run("-p", "Hi", "--system", "Be brief.", "-n", "2", "--json").stdout)
    plain = json.loads(run("-p", "Hi", "-n", "2", "--json").stdout)
    check("--system makes the prompt longer", system["usage"]["prompt_tokens"] != plain["usage"]["prompt_tokens"], system)
    one = run("-p", "Go", "--raw", "-n", "20", "--seed", "7", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    two = run("-p", "Go", "--raw", "-n", "20", "--seed", "7", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    other = run("-p", "Go", "--raw", "-n", "20", "--seed", "8", "--temp", "1", "--top-k", "0", "--min-p", "0", "--ignore-eos").stdout
    check("a seed repeats its answer, another one does not", one == two and one != other, one, two, other)


def test_texts():
    """What files and pipes hold stands before the words: the same tokens as one prompt that is written so."""
    ask = ("-n", "12", "--temp", "0", "--ignore-eos")
    one, two = path_of("one.txt", "The word is frog.\n"), path_of("two.txt", "a ``` and\na ```` in it\n")
    wanted = run("-p", "The word is frog.\n\nWhich word?", *ask)
    for how, words, stdin in (("a pipe and -p", ["-p", "Which word?"], "The word is frog.\n"), ("a pipe and a word", ["Which word?"], "The word is frog.\n\n"),
                              ("-f and -p", ["-f", one, "-p", "Which word?"], ""), ("-f - and -p", ["-f", "-", "-p", "Which word?"], "The word is frog.")):
        done = run(*words, *ask, stdin=stdin)
        source = "one.txt (18 B)" if one in words else "stdin ("
        check(f"{how}: text first, then the prompt", done.returncode == 0 and done.stdout == wanted.stdout != "", done.stdout, done.stderr)
        check(f"{how}: a line says what was read", done.stderr.startswith("read " + source) and done.stderr.count("\n") == 2, done.stderr)
    check("nothing was read: no such line", "read " not in wanted.stderr, wanted.stderr)
    fenced = "one.txt:\n```\nThe word is frog.\n```\n\ntwo.txt:\n`````\na ``` and\na ```` in it\n`````"
    wanted = run("-p", fenced + "\n\nstdin:\n```\nmore\n```\n\nCompare.", *ask)
    done = run("-f", one, "-f", two, "-p", "Compare.", *ask, stdin="more\n")
    check("several texts have their names, in fences that nothing in them ends", done.stdout == wanted.stdout != "", done.stdout, wanted.stdout)
    check("all are named on stderr", done.stderr.startswith("read one.txt (18 B), two.txt (23 B) and stdin (5 B)\n"), done.stderr)
    wanted = run("-p", fenced, *ask)
    check("without words too", run("-f", one, "-f", two, *ask).stdout == wanted.stdout)
    check("--quiet says nothing", run("-f", one, "-p", "x", *ask, "-q").stderr == "")
    wanted = run("-p", "The word is frog.\nWhich", "--raw", *ask)
    check("--raw: as they are, one after the other", run("-f", one, "-p", "Which", "--raw", *ask).stdout == wanted.stdout != "")
    expect("stdin twice", run("-f", "-", "-p", "-", stdin="x"), 2, "only once")
    expect("a file that is missing", run("-f", "/nonexistent/t", "-p", "x"), 1, "/nonexistent/t")
    expect("a file that is no text", run("-f", path_of("nul.bin", b"a\0b"), "-p", "x"), 1, "nul.bin", "NUL")
    process = start("run", "-m", MODEL, "-p", "x", "-n", "2", stdin=subprocess.PIPE)
    said = process.stderr.readline().decode()
    process.stdin.close()
    code = wait_gone(process, PATIENCE)
    check("a pipe that nobody closes: weir says what it waits for", code == 0 and "/dev/null" in said, code, said)
    process.stdout.close(), process.stderr.close()


def test_model_word():
    ask = ("Hi", "-n", "3", "--raw", "--temp", "0", "--ignore-eos")
    wanted = run(*ask).stdout
    check("two words: a model and a prompt", weir("run", MODEL, *ask).stdout == wanted != "")
    check("one word that names a model: the prompt is piped in", weir("run", MODEL, *ask[1:], stdin="Hi").stdout == wanted)
    check("-p beside it", weir("run", MODEL, "-p", *ask).stdout == wanted)
    check("with -m a word is the prompt, whatever it names", run("default", "-n", "2", "--raw").returncode == 0)
    fake = path_of("really", b"GGUFxxxx")
    expect("a GGUF file under any name is a model", weir("run", fake, "Hi"), 3, "really")
    expect("a name that ends in .gguf is a model, missing or not", weir("run", "none.gguf", stdin="Hi"), 3, "cannot load", "none.gguf")
    expect("two words of which the first is no model", weir("run", "What", "is a weir?"), 2, "quote")
    expect("many words", weir("run", "What", "is", "a", "weir?"), 2, "quote")
    expect("a model and -m", run(MODEL, "Hi"), 2, "quote")
    expect("-m twice", weir("run", "-m", MODEL, "-m", MODEL, "-p", "x"), 2, "given twice", "--models")
    for command in ("chat", "serve", "info"):
        expect(f"{command} takes one model", weir(command, MODEL, MODEL), 2, f"weir {command} takes one model")
        expect(f"{command}: once", weir(command, MODEL, "-m", MODEL), 2, f"weir {command} takes one model")
    expect("chat MODEL", weir("chat", MODEL, "-n", "2", "--ignore-eos", stdin="Hi\n"), 0)
    shown, info = (json.loads(weir(command, MODEL, "--json").stdout)["model"] for command in ("show", "info"))
    check("show MODEL is info MODEL", shown == info, shown)


def test_run_json():
    done = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos", "--json")
    answer = json.loads(done.stdout)
    check("--json prints one object", done.returncode == 0 and done.stdout.count("\n") == 1, done.stdout)
    check("it has text, tokens, reason, usage, timings", set(answer) == {"text", "tokens", "reason", "usage", "timings"} and
          len(answer["tokens"]) == 12 and answer["reason"] == "length" and answer["usage"]["generated_tokens"] == 12 and
          answer["timings"]["ttft_ms"] > 0 and answer["timings"]["total_ms"] >= answer["timings"]["ttft_ms"], answer)
    text = run("-p", "Name a river.", "-n", "12", "--temp", "0", "--ignore-eos").stdout
    check("its text is what is printed without it", text in (answer["text"], answer["text"] + "\n"), text, answer["text"])
    done = run("-p", "x", "--json", "--temp", "-3")
    check("--json and a refusal: an error object", done.returncode == 2 and
          json.loads(done.stdout)["error"]["code"] == "WEIR_INVALID", done.stdout)


def test_run_limits():
    whole = json.loads(run("-p", "Count.", "--raw", "-n", "40", "--temp", "0", "--ignore-eos", "--json").stdout)["text"]
    middle = whole[len(whole) // 2:len(whole) // 2 + 3]
    done = run("-p", "Count.", "--raw", "-n", "40", "--temp", "0", "--ignore-eos", "--stop", "never in it", "--stop", middle, "--json")
    stopped = json.loads(done.stdout)
    check("--stop ends before its text", stopped["reason"] == "stop_words" and
          stopped["text"] == whole[:whole.index(middle)], repr(middle), repr(whole), stopped)
    expect("an empty stop text is refused by name", run("-p", "x", "--stop", ""), 2, "--stop")
    done = run("-p", "x", "--raw", "-n", "0", "--json")
    check("-n 0 only reads the prompt", done.returncode == 0 and json.loads(done.stdout)["tokens"] == [], done.stdout, done.stderr)
    done = weir("run", "-m", SLOW, "-p", "x", "--raw", "--ignore-eos", "--deadline-ms", "300", "--json")
    answer = json.loads(done.stdout)
    check("--deadline-ms ends with what there is", done.returncode == 0 and answer["reason"] == "deadline", answer)
    expect("a priority out of range", run("-p", "x", "--priority", "101"), 2, "--priority", "-100 to 100")
    expect("an ageing out of range", run("-p", "x", "--ageing", "-1"), 2, "--ageing")
    expect("a prompt longer than the context", run("-p", "word " * 3000, "-c", "64"), 4, "larger --ctx or --kv")
    expect("no prompt", run("-p", ""), 2, "the prompt is empty")
    for medium in ("--image", "--audio"):
        expect(f"no prompt beside {medium}", run("-p", "", medium, "x.png"), 2, "the prompt is empty: a text is needed beside")
    expect("no prompt in a pipe", run(stdin=""), 2, "the prompt is empty")
    expect("two prompts", run("-p", "a", "b"), 2, "more than one prompt")
    expect("--raw with --system", run("-p", "a", "--raw", "--system", "b"), 2, "--system")
    expect("a NUL byte in a message", run(stdin=b"a\0b"), 2, "NUL", "--raw")
    expect("a NUL byte in a raw prompt", run("--raw", "-n", "2", stdin=b"a\0b"), 0)
    expect("a raw prompt that is no UTF-8", run("--raw", "-n", "2", stdin=b"\xff\xfe caf\xe9"), 0)
    done = run("-n", "2", stdin=b"\xff\xfe caf\xe9")
    check("a message that is no UTF-8 is answered or refused", done.returncode in (0, 2, 4), done.returncode, done.stderr)


def test_attention():
    """RoPE, YaRN and flash attention reach llama.cpp: the model's own values change nothing, others do."""
    for words, part in ((["--rope-freq-base", "-1"], "0 to 1000000000"), (["--rope-freq-base", "nan"], "nan"), (["--yarn-beta-fast", "1001"], "-1 to 1000"),
                        (["--rope-scaling", "longrope"], "model, none, linear, yarn"), (["-fa", "yes"], "auto, off, on")):
        expect(f"{words[0]} {words[1]}", run("-p", "x", *words), 2, words[0], part)
    if FAKE:
        return
    ask = ("-p", "Name three rivers.", "-n", "12", "--temp", "0", "-q")
    plain = run(*ask).stdout
    for words in (["--rope-freq-base", "100000"], ["--rope-scaling", "none"], ["-fa", "on"], ["-fa", "off"], ["--device", "none"]):  # 100000 is the file's
        answer = run(*ask, *words).stdout
        check(f"{' '.join(words)}: the same answer", answer == plain != "", answer, plain)
    answers = {tuple(words): run(*ask, *words).stdout for words in (["--rope-freq-base", "1000"], ["--rope-scaling", "linear", "--rope-freq-scale", "0.25"],
                                                                    ["--rope-scaling", "yarn", "--rope-freq-scale", "0.25"])}
    check("other positions: other answers, each its own", len({plain, *answers.values()}) == 4, plain, answers)
    same = [json.loads(weir("info", "-m", MODEL, *words, "--json").stdout)["engine"]["batch_invariant"] for words in ([], ["-fa", "off"])]
    check("without flash attention weir's kernels do not compute it", same[1] is False, same)
    expect("a device that there is not", run("-p", "x", "--device", "GPU99"), 2, "--device", "GPU99", "none")
    folder = os.path.join(scratch.name, "states")
    cached = [json.loads(run("-p", "word " * 300, "-n", "1", "--json", "--cache-dir", folder, *words).stdout)["usage"]["cached_tokens"] for words in
              ([], [], ["--rope-freq-base", "1000"], ["--rope-freq-base", "1000"])]
    check("cached prompts of other positions are not used", cached[0] == cached[2] == 0 and min(cached[1], cached[3]) > 100, cached)


def test_grammar():
    done = run("-p", "x", "--grammar", 'root ::= "abc" | "abd"', "--temp", "0")
    check("--grammar constrains the answer", done.returncode == 0 and done.stdout in ("abc\n", "abd\n"), done.stdout, done.stderr)
    done = run("-p", "x", "--grammar-file", path_of("g.gbnf", 'root ::= "abc" | "abd"\n'), "--temp", "0")
    check("--grammar-file too", done.returncode == 0 and done.stdout in ("abc\n", "abd\n"), done.stdout, done.stderr)
    expect("a broken grammar names its line", run("-p", "x", "--grammar", 'root ::= ("abc"'), 2, "--grammar", "line 1")
    expect("a grammar's file", run("-p", "x", "--grammar", path_of("some.gbnf", 'root ::= "a"')), 2, "--grammar-file")
    expect("a grammar file that is missing", run("-p", "x", "--grammar-file", "/nonexistent/g"), 1, "/nonexistent/g")
    expect("a grammar file that is a folder", run("-p", "x", "--grammar-file", scratch.name), 1, scratch.name)
    done = run("-p", "x", "--grammar", 'root ::= "a"', "-j", "{}")
    check("a grammar and a schema", done.returncode in (2, 4) and ("schema" in done.stderr or "grammar" in done.stderr), done.returncode, done.stderr)
    if not FAKE:
        for raw in ((), ("--raw",)):
            expect("a schema that is no JSON", run("-p", "x", "-j", "{nonsense", *raw), 2, "--json-schema")
            expect("a schema's file", run("-p", "x", "-j", path_of("some.json", "{}"), *raw), 2, "--json-schema-file")
            expect("a schema that is none, far inside", run("-p", "x", "-j", '{"properties":{"a.b":{"type":"none"}}}', *raw), 2, "--json-schema", "a.b")
        schema = '{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer"}},' \
                 '"required":["name","age"],"additionalProperties":false}'
        for words in (["-j", schema], ["-jf", path_of("schema.json", schema)], ["-j", schema, "--raw"]):
            done = run("-p", "Invent a person.", *words, "-n", "200", "--temp", "0.2", "--seed", "1")
            try:
                person = json.loads(done.stdout)
            except ValueError:
                person = {}
            check(f"JSON of the given form by {words[0]} {'--raw' if '--raw' in words else ''}",
                  set(person) == {"name", "age"} and isinstance(person["age"], int), done.stdout, done.stderr)


def test_terminal_run():
    def on_terminal(*words, env=None, model=MODEL):
        return Terminal([WEIR, "run", "-m", model, *words], env=dict(environment(), **(env or {})))

    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", "--ignore-eos")
    code = terminal.finish(PATIENCE)
    check("run on a terminal: answer and figures", code == 0 and "answer 10 tokens" in terminal.screen.text() and in_order(terminal), terminal.output)
    check("the progress line is gone", "loading" not in terminal.screen.text(), terminal.screen.text())
    check("loading was shown", "loading" in terminal.output, terminal.output)
    check("figures are dimmed", terminal.screen.styles > 0)
    check("the default model, and no other, is called a toy", ("a toy" in terminal.screen.text() and "weir pull " in terminal.screen.text().replace("\n", " ")) != FAKE,
          terminal.screen.text())
    terminal.close()
    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", env={"NO_COLOR": "1"})
    terminal.finish(PATIENCE)
    check("NO_COLOR: no styles", terminal.screen.styles == 0 and "answer" in terminal.screen.text(), repr(terminal.output))
    terminal.close()
    terminal = on_terminal("-p", "Name a river.", "-n", "10", "--temp", "0", env={"TERM": "dumb"})
    terminal.finish(PATIENCE)
    check("TERM=dumb: no escape sequences", "\x1b" not in terminal.output, repr(terminal.output))
    terminal.close()
    terminal = on_terminal()
    code = terminal.finish(PATIENCE)
    check("no prompt on a terminal", code == 2 and "there is no prompt" in terminal.screen.text(), code, terminal.output)
    terminal.close()
    terminal = on_terminal("-p", "Tell me a long story.", "--ignore-eos", model=SLOW)
    terminal.wait_for(lambda s: len(s.text().strip()) > 10 and not re.search("loading|preparing|reading", s.text()), PATIENCE)
    terminal.keys("\x03")
    code = terminal.finish(PATIENCE)
    check("Ctrl-C while it answers", code == 130 and "cancelled" in terminal.screen.text() and in_order(terminal), code, terminal.output[-300:])
    terminal.close()
    if FAKE:
        terminal = on_terminal("--raw", "-p", "x" * 3000, "--chunk", "100", model="fake:token_us=1000")
        check("a long prompt: how far it is read", terminal.wait_for(lambda s: re.search(r"reading the prompt: \d+00 of 30\d\d tokens", s.text()), PATIENCE),
              terminal.screen.text())
        terminal.keys("\x03")
        check("Ctrl-C while it reads", terminal.finish(PATIENCE) == 130 and "reading" not in terminal.screen.text(), terminal.screen.text())
        terminal.close()
        terminal = on_terminal("-p", "x", "-n", "300", "--ignore-eos", "--special", model="fake:any=1")
        terminal.finish(PATIENCE)
        check("control characters do not reach the terminal", terminal.screen.unknown == [], terminal.screen.unknown[:5])
        terminal.close()


def test_reasoning():
    if FAKE:  # it has no parser of its own
        return
    template = path_of("think.jinja", """{%- for m in messages %}{%- if m.role == 'assistant' and m.reasoning_content -%}
<think>{{ m.reasoning_content }}</think>{%- endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}""")
    words = ["--chat-template-file", template, "-p", "x", "--grammar", 'root ::= "Let me see.\\n</think>\\n\\nYes."', "-q"]
    answer = json.loads(run(*words, "--json").stdout)
    check("thoughts are separate from the answer", answer["text"] == "Yes." and answer.get("reasoning", "").strip() == "Let me see.", answer)
    check("off a terminal only the answer is printed", run(*words).stdout == "Yes.\n")
    terminal = Terminal([WEIR, "run", "-m", MODEL, *words], env=environment())
    code = terminal.finish(PATIENCE)
    check("on a terminal thoughts are dimmed", code == 0 and "\x1b[2mLet me see." in terminal.output.replace("\r\n", "\n") and
          terminal.screen.lines()[:3] == ["Let me see.", "", "Yes."] and in_order(terminal), repr(terminal.output[-300:]), terminal.screen.text())
    terminal.close()


if __name__ == "__main__":
    run_tests(globals())
