"""What the table of options gives beside parsing: the config file, weir config, help texts as they are kept, man pages, completion.

WEIR_UPDATE=1 in the environment writes the kept help texts anew (tests/golden)."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, run_tests  # noqa: E402

SOURCE = os.environ["WEIR_SOURCE_DIR"]
WEIR = os.environ["WEIR_BIN"]
GOLDEN = os.path.join(SOURCE, "tests", "golden")
scratch = tempfile.TemporaryDirectory()


def environment(**more):
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith(("WEIR_", "XDG_")) and k not in ("NO_COLOR", "LINES", "COLUMNS", "TERM")}
    clean["HOME"] = scratch.name
    clean["PAGER"] = ""  # nobody presses keys
    clean.update(more)
    return clean


def run(*words, env=None, stdin=""):
    done = subprocess.run([WEIR, *words], input=stdin.encode(), capture_output=True, env=env or environment(), timeout=PATIENCE)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def config_of(text, name="config"):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as file:
        file.write(text)
    return environment(WEIR_CONFIG=path)


def values(env, *words):
    """Option -> (value, from), as weir config tells."""
    done = run("config", "--json", *words, env=env)
    if done.returncode != 0:
        return done.stderr
    return {row["option"]: (row["value"], row["from"].split("/")[-1]) for row in json.loads(done.stdout)["settings"]}


def commands():
    pages = run("help").stdout + run("help", "bench").stdout
    return [c for c in dict.fromkeys(re.findall(r"^  weir ((?:bench )?[a-z]+)(?: |$)", pages, re.M)) if c not in ("help", "bench", "help bench")]


# ---- The config file ----

def test_precedence():
    env = config_of("# mine\ntop-k = 11\nTEMP=0.3\n[run]\ntop_k = 12   \n\n[stream]\ntop-k=13\nsystem_unknown_to_others = 1\n".replace(
        "system_unknown_to_others = 1\n", "interval = 4\n"))
    run_values = values(env, "run")
    check("a line for all commands", run_values["--temp"] == ("0.3", "config:3"), run_values)
    check("a command's own line wins over it", run_values["--top-k"] == ("12", "config:5"), run_values)
    check("another command's does not count", run_values["--interval"] == ("1", "default"), run_values)
    check("it counts for that one", values(env, "stream")["--interval"] == ("4", "config:9"))
    both = dict(env, WEIR_TOP_K="21")
    check("the environment wins over the file", values(both, "run")["--top-k"] == ("21", "WEIR_TOP_K"))
    check("the command line wins over both", values(both, "run", "--top-k", "31")["--top-k"] == ("31", "command line"))
    check("another spelling of the line too", values(both, "run", "--temperature=0")["--temp"] == ("0", "command line"))
    check("without a command: what is set", values(env).keys() == {"--temp", "--top-k", "--interval"}, values(env))
    check("defaults are shown with a command", run_values["--ctx"][1] == "default", run_values)
    later = config_of("[run]\nctx = 100\n", "later")
    check("a section before general lines still wins", values(later, "run")["--ctx"] == ("100", "later:2"))
    alias = config_of("temperature = 0.7\nctx-size = 77\nno-mmap = on\n", "alias")
    got = values(alias, "run")
    check("other spellings are known", (got["--temp"][0], got["--ctx"][0], got["--no-mmap"][0]) == ("0.7", "77", "on"), got)
    quoted = config_of('system = "two\\nlines, \\"quoted\\""\n', "quoted")
    check("quotes and escapes", values(quoted, "run")["--system"][0] == 'two\nlines, "quoted"', values(quoted, "run"))
    secret = dict(config_of("[bench http]\napi-key = hush\n", "secret"))
    done = run("config", "bench", "http", env=secret)
    check("keys are not shown", done.returncode == 0 and "hush" not in done.stdout and "(set)" in done.stdout, done.stdout)


def test_effect():
    env = config_of("model = fake:\nmax-tokens = 3\n")
    done = run("run", "-p", "x", "--raw", "--json", "--ignore-eos", env=env)
    check("what the file says happens", done.returncode == 0 and json.loads(done.stdout)["usage"]["generated_tokens"] == 3,
          done.stdout, done.stderr)
    done = run("run", "-p", "x", "--raw", "--json", "--ignore-eos", "-n", "5", env=env)
    check("unless the line says otherwise", json.loads(done.stdout)["usage"]["generated_tokens"] == 5, done.stdout)


def test_mistakes():
    for text, parts in (("temp = warm", [":1: temp", "warm", "a number"]),
                        ("\n\ntmep = 1", [":3:", "no setting tmep", "did you mean temp?"]),
                        ("[rnu]\n", [":1:", "no command"]),
                        ("ctx 5", [":1:", '"="']),
                        ("[info]\ngrammar-root = x", [":2:"]),
                        ("[info]\ntemp = 1", [":2:", "weir info has no setting temp"]),
                        ('system = "open', [":1:", "quotes"]),
                        ("top-k = 3000000000", [":1: top-k"])):
        done = run("run", "-p", "x", "-m", "fake:", env=config_of(text))
        check(f"{text!r} is told with its line", done.returncode == 2 and all(p in done.stderr for p in parts), done.stderr)
    done = run("run", "-p", "x", "-m", "fake:", env=environment(WEIR_CONFIG="/nowhere/at/all"))
    check("a file that was named must be there", done.returncode == 1 and "/nowhere/at/all" in done.stderr, done.stderr)
    done = run("run", "-p", "x", "-m", "fake:", "-n", "1", env=environment())
    check("without one all is well", done.returncode == 0, done.stderr)
    done = run("config", env=environment())
    check("weir config says that there is none", done.returncode == 0 and "there is none" in done.stdout and
          os.path.join(scratch.name, ".config/weir/config") in done.stdout, done.stdout)
    os.makedirs(os.path.join(scratch.name, "xdg/weir"))
    shutil.copy(config_of("top-k = 9")["WEIR_CONFIG"], os.path.join(scratch.name, "xdg/weir/config"))
    check("XDG_CONFIG_HOME is honoured",
          values(environment(XDG_CONFIG_HOME=os.path.join(scratch.name, "xdg")), "run")["--top-k"][0] == "9")
    check("an empty WEIR_CONFIG is none", "none" in run("config", env=environment(WEIR_CONFIG="")).stdout)
    check("help works with a broken file", run("help", "run", env=config_of("nonsense")).returncode == 0)
    done = run("config", "rnu")
    check("an unknown command", done.returncode == 2 and "did you mean weir run?" in done.stderr, done.stderr)
    done = run("config", "run", "--tmep", "1")
    check("an unknown option", done.returncode == 2 and "did you mean --temp?" in done.stderr, done.stderr)


# ---- Texts ----

def test_golden():
    update = os.environ.get("WEIR_UPDATE") == "1"
    pages = {"help": ["help"], "help-run-short": ["help", "run"], "help-serve-short": ["help", "serve"],
             **{"help-" + c.replace(" ", "-"): [*c.split(), "--help-all"] for c in commands()}}
    os.makedirs(GOLDEN, exist_ok=True)
    for name, words in pages.items():
        # What depends on the build, not on the table, is not kept.
        text = re.sub(r"(?<![\d.])\d+\.\d+\.\d+\b(?!\.\d)", "VERSION", run(*words).stdout)  # no address
        path = os.path.join(GOLDEN, name + ".txt")
        if update:
            with open(path, "w") as file:
                file.write(text)
        kept = open(path).read() if os.path.exists(path) else ""
        widest = max(text.split("\n"), key=len)
        check(f"weir {' '.join(words)} fits into 80 columns", len(widest) <= 80, widest)
        check(f"weir {' '.join(words)} is as kept (WEIR_UPDATE=1 keeps the new text)", text == kept,
              "\n".join(set(text.split("\n")) ^ set(kept.split("\n"))))
    for command in commands():
        names = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(line for line in run("help", "--man", *command.split()).stdout.replace(
            "\\-", "-").split("\n") if line.startswith("\\fB-")).replace("\\fB", " "))
        twice = {n for n in names if names.count(n) > 1}
        check(f"weir {command} has each option once", not twice and len(names) > 0, twice)
    stale = {f[:-4] for f in os.listdir(GOLDEN)} - set(pages)
    check("no text of a command that is gone", not stale, stale)


def test_man():
    for words in ([], *[c.split() for c in commands()]):
        page = run("help", "--man", *words).stdout
        name = "-".join(["weir", *words])
        check(f"man page {name}: head, examples, no stray request",
              f".TH {name.upper()} 1" in page and ".SH NAME\n" in page and "\n.SH SYNOPSIS\n" in page and
              not re.search(r"^\.(?!\\\"|(TH|SH|SS|TP|PP|nf|fi|ad)\b)", page, re.M), page[:500])
    if shutil.which("groff") is None:
        print("note: no groff")
        return
    for words in ([], ["run"], ["bench", "http"]):
        page = run("help", "--man", *words).stdout
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-Kutf8", "-P-c"], input=page.encode(), capture_output=True)
        text = re.sub(".\b", "", done.stdout.decode())
        check(f"groff takes weir {' '.join(words)}", done.returncode == 0 and done.stderr == b"" and "NAME" in text,
              done.stderr.decode())
        if words == ["run"]:
            check("it shows options with their hyphens", "--repeat-penalty" in text and "-n, --max-tokens" in text, text[:3000])
            check("and examples as they are typed", "'{\"type\":\"object\"" in text, text[:3000])


def test_narrow():
    for columns in (40, 60, 80, 100):
        done = subprocess.run(["script", "-qec", f"stty cols {columns}; {WEIR} help run", "/dev/null"], capture_output=True,
                              env=environment(TERM="xterm", NO_COLOR="1")) if shutil.which("script") else None
        if done is None:
            print("note: no script(1)")
            return
        text = done.stdout.decode().replace("\r", "")
        text = re.sub(r"^Examples?\n(  .*\n)+", "", text, flags=re.M)  # are to be copied as they are
        widest = max(text.split("\n"), key=len)
        check(f"help fits into {columns} columns, and into 80", len(widest) <= min(columns, 80), widest)


def test_notices():
    """What weir says on stderr: at most 80 columns on a terminal, however wide it is; one line elsewhere."""
    from terminal import Terminal
    long = "system = " + "word " * 30
    env = config_of(long + "\n")
    for words in (["run"], ["run", "llama9.9"], ["run", "-m", "/none/at/all", "-p", "x"], ["run", "a", "b", "c"], ["pull", "https://huggingface.co/o"],
                  ["rm", "nowhere"], ["list"], ["preset"], ["stream", "/none"], ["run", "-m", "fake:", "-p", "x", "-ngl", "3", "-n", "1"],
                  ["chat", "-m", "fake:", "--chat-template", "none"], ["run", "-m", "fake:", "--samplers", "x", "-p", "x"], ["run", "--xyzzy"], ["serve", "--models", "/none"],
                  ["top", "--url", "nothing"], ["run", "-m", "fake:", "-p", "x", "-n", "9", "--ctx", "3"], ["bench"], ["completion"], ["quantize", "-m", "fake:"]):
        terminal = Terminal([WEIR, *words], 200, 50, {**env, "TERM": "xterm", "HF_HUB_CACHE": scratch.name})
        terminal.keys("\x04")
        code = terminal.finish(PATIENCE)
        widest = max((line for line in terminal.screen.lines() if "system = " not in line and " " in line.strip()), key=len, default="")  # a path alone may be wider
        check(f"weir {' '.join(words)}: what it says fits into 80 columns", code is not None and len(widest) <= 80, code, widest, terminal.output[-2000:])
        terminal.close()
    done = run("run", "-m", "/none/at/all", "-p", "x")
    check("off a terminal a message is one line", done.stderr.count("\n") == 1 and len(done.stderr) > 80, done.stderr)


def test_pager():
    from terminal import Terminal

    def shown(*words, rows=24, **env):
        terminal = Terminal([WEIR, *words], 80, rows, environment(TERM="xterm", **env))
        code = terminal.finish(PATIENCE)
        terminal.close()
        return code, terminal.output

    code, output = shown("run", "--help", PAGER="sed 's/^/paged: /'")
    check("help that is longer than the window goes through $PAGER", code == 0 and "paged: " in output and "--model" in output, code, output[:300])
    check("through its end", "weir help lists the exit codes" in output, output[-300:])
    code, output = shown("run", "--help", PAGER="sed 's/^/paged: /'", rows=200)
    check("what fits does not", code == 0 and "paged" not in output and "--model" in output, output[:300])
    code, output = shown("run", "--help", PAGER="no-such-pager-anywhere")
    check("without the pager the text is printed", code == 0 and "--model" in output, output[:300])
    done = run("run", "--help", env=environment(PAGER="sed 's/^/paged: /'"))
    check("off a terminal there is none", "paged" not in done.stdout and "--model" in done.stdout)


# ---- Completion ----

# The scripts ask the program that the line names.
PATH = os.path.dirname(WEIR) + ":" + os.environ["PATH"]
LINES = (("weir ru", {"run"}), ("weir bench ", {"engine", "http", "kernels", "replay", "schedule"}), ("weir run --top-", {"--top-k", "--top-p",
         "--top-nsigma", "--top-n-sigma"}), ("weir run --layout ", {"auto", "unified", "per_slot"}),
         ("weir bench engine --strategy lat", {"latency-target"}), ("weir help bench sche", {"schedule"}),
         ("weir completion ", {"bash", "zsh", "fish"}), ("weir bench schedule --s", {"--slots", "--strategy"}),
         ("weir config strea", {"stream"}), ("weir config run --gramm",
         {"--grammar", "--grammar-file", "--grammar-root"}))


def complete_bash(script, line):
    words = line.split(" ")
    program = (f"source {script}; COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _weir; "
               "printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, cwd=scratch.name, env=environment(PATH=PATH))
    return set(done.stdout.split()) if done.stderr == "" else done.stderr


def complete_fish(script, line):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True,
                          cwd=scratch.name, env=environment(PATH=PATH))
    return {entry.split("\t")[0] for entry in done.stdout.splitlines()} if done.stderr == "" else done.stderr


def complete_zsh(script, line):
    """What a user sees after two tabs: zsh completes only where keys are pressed."""
    program = (f"zmodload zsh/zpty; zpty z zsh -f -i; zpty -w z \"PS1=; stty cols 200 rows 50; autoload -U compinit; compinit -u -D; "
               f"source {script}; zstyle ':completion:*' list-prompt ''; LISTMAX=1000; bindkey '^I' complete-word\"; "
               "zpty -w z \"print REA''DY\"; zpty -r z all $'*READY\r\n*'; "
               f"zpty -n -w z '{line}'; zpty -n -w z $'\\t\\t'; "
               "for i in {1..20}; do sleep 0.1; while zpty -r -t z more; do all+=$more; i=1; done; done; print -r -- $all; zpty -d z")
    done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, cwd=scratch.name,
                          env=environment(TERM="xterm", PATH=PATH))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", done.stdout)
    return re.sub(r"[\x00-\x1f]", "", text.split("READY")[-1])


def test_completion():
    check("completion without a shell", run("completion").returncode == 2)
    check("completion for a shell that we do not know", "bash, zsh or fish" in run("completion", "tcsh").stderr)
    for shell in ("bash", "zsh", "fish"):
        path = os.path.join(scratch.name, "completion." + shell)
        with open(path, "w") as file:
            file.write(run("completion", shell).stdout)
        if shutil.which(shell) is None:
            print(f"note: no {shell}")
            continue
        check(f"{shell} reads it", subprocess.run([shell, "-n", path], capture_output=True).returncode == 0)
        for line, expected in LINES:
            if shell == "zsh":
                shown = complete_zsh(path, line)
                check(f"zsh completes {line!r}", all(word in shown for word in expected), shown)
                continue
            got = complete_bash(path, line) if shell == "bash" else complete_fish(path, line)
            check(f"{shell} completes {line!r}", got == expected, got)
        if shell == "bash":
            check("bash completes after =", complete_bash(path, "weir run --layout = uni") == {"unified"})
            check("bash offers files where files belong", "completion.bash" in complete_bash(path, "weir run --file comple"))
            check("bash completes --layout=uni in three words", complete_bash(path, "weir run --layout = ") == {"auto", "unified", "per_slot"})
            for name in ("it's.txt", "a b.txt"):
                open(os.path.join(scratch.name, name), "w").close()
            check("bash offers files behind a quote", "it's.txt" in complete_bash(path, 'weir run --file "it') and "it's.txt" in complete_bash(path, "weir run --file it"))
            check("bash completes default and short names", complete_bash(path, "weir pull defa") == {"default"} and "qwen3:0.6b" in complete_bash(path, "weir chat qw"))
            check("and what follows a colon, which bash splits off", complete_bash(path, "weir pull qwen3 : 0") == {"0.6b"}, complete_bash(path, "weir pull qwen3 : 0"))
            check("bash offers no files for numbers", complete_bash(path, "weir run --top-k ") == set())


def test_complete():
    """What the scripts ask: words that need no shell to be seen."""
    def words(*line):
        return {entry.split("\t")[0] for entry in run("__complete", *line).stdout.splitlines()}
    check("a value after =, in one word", words("run", "--layout=u") == {"--layout=unified"}, words("run", "--layout=u"))
    check("an option and its explanation", "--top-k\t" in run("__complete", "run", "--top-k").stdout)
    check("an option of another command is not offered", "--grammar" not in words("ps", "--"), words("ps", "--"))
    check("all commands where none is", {"run", "bench", "help"} <= words(""), words(""))
    check("nothing after a command that is none", words("rnu", "--") == set())
    check("files after a command", words("stream", "x") == {":files"})
    check("without a word", run("__complete").returncode == 0)


def test_write():
    folder = os.path.join(scratch.name, "share")
    done = run("help", "--write", folder)
    expected = {"man/man1/weir.1", "man/man1/weir-bench-engine.1", "bash-completion/completions/weir", "zsh/site-functions/_weir",
                "fish/vendor_completions.d/weir.fish"}
    there = {os.path.relpath(os.path.join(base, f), folder) for base, _, files in os.walk(folder) for f in files}
    check("all pages are written", done.returncode == 0 and expected <= there and len(there) == len(commands()) + 4, there)
    done = run("help", "--write", "/proc/weir/no")
    check("where nothing can be written, that is told", done.returncode == 1 and "/proc/weir" in done.stderr, done.stderr)


if __name__ == "__main__":
    run_tests(globals())
