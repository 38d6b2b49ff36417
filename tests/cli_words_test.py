"""The command line's words, from outside: help, version, options, the example in README."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import MODEL, expect, run, weir  # noqa: E402

COMMANDS = ["run", "chat", "stream", "serve", "info", "tokenize", "embed", "optimize", "quantize", "pull", "list", "preset", "rm", "bench engine", "bench kernels", "bench http", "bench schedule", "bench replay", "config", "completion", "version"]
SHOWN = [c for c in COMMANDS if not c.startswith("bench ")] + ["bench NAME"]  # by weir help: what most people need


def test_help():
    done = weir()
    check("weir alone shows the commands and is a usage error", done.returncode == 2 and
          all("weir " + c in done.stdout for c in SHOWN) and "bench engine" not in done.stdout, done.stdout)
    done = weir("help")
    check("weir help lists commands and exit codes", done.returncode == 0 and
          all("weir " + c in done.stdout for c in SHOWN) and
          all(re.search(rf"^  {code} ", done.stdout, re.M) for code in (0, 1, 2, 3, 4, 130, 143)), done.stdout)
    for command in COMMANDS:
        page = weir("help", *command.split())
        same = weir(*command.split(), "--help")
        check(f"help of {command}: an example, and --help gives the same", page.returncode == 0 and
              same.returncode == 0 and page.stdout == same.stdout and "Example" in page.stdout and
              f"weir {command}" in page.stdout and page.stderr == "", page.stdout, page.stderr)
    check("weir run -h --nonsense still shows help", weir("run", "--nonsense", "-h").returncode == 0)
    expect("help of nothing we have", weir("help", "nothing"), 2, "there is no command nothing")
    expect("weir bench alone asks what", weir("bench"), 2, "engine, kernels, http, schedule or replay")
    brief = weir("help", "run").stdout
    titles = [line for line in brief.splitlines() if line and not line.startswith(" ")]
    check("help of run begins with prompt and model, and ends with sampling", titles.index("Prompt") + 1 == titles.index("Model") and
          max(titles.index(t) for t in ("Prompt", "Model", "Limits", "Engine", "Output")) < titles.index("Sampling"), titles)
    check("it is short, and says where the rest is", len(brief.splitlines()) < 100 and "--xtc-probability" not in brief and
          "weir run --help-all shows all options." in brief, brief)
    check("a command with few options shows all", "--revision" in weir("help", "pull").stdout and "--help-all" not in weir("help", "pull").stdout)
    page = weir("run", "--help-all").stdout
    for option in ("--temp --top-k --top-p --min-p --typical --top-nsigma --xtc-probability --xtc-threshold --dynatemp-range "
                   "--dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n "
                   "--dry-sequence-breaker --mirostat --mirostat-lr --mirostat-ent --repeat-penalty --repeat-last-n "
                   "--frequency-penalty --presence-penalty --logit-bias --seed --samplers --grammar --grammar-file "
                   "--json-schema --json-schema-file --ignore-eos --stop --max-tokens --threads --threads-batch --ctx --kv "
                   "--slots --batch-size --ubatch-size --chunk --cache-type-k --cache-type-v --layout --strategy --itl-target "
                   "--interval --deadline-ms --priority --ageing --logprobs --json").split():
        if not re.search(rf"{option}( |$)", page, re.M):
            check(f"help of run has {option}", False)
            break
    else:
        check("help of run has each option", True)


def test_version():
    done = weir("version")
    check("weir version", done.returncode == 0 and re.fullmatch(r"weir \d+\.\d+\.\d+, llama.cpp .+\n", done.stdout),
          done.stdout)
    check("weir --version is the same", weir("--version").stdout == done.stdout)
    parsed = json.loads(weir("version", "--json").stdout)
    check("weir version --json", parsed["weir"] in done.stdout and parsed["backend"] in done.stdout, parsed)
    done = weir("version", "--licenses")
    check("weir version --licenses begins with its own", "Apache License" in done.stdout[:400] and done.stdout.endswith("\n"), done.stdout[:400])
    expect("weir version takes nothing", weir("version", "please"), 2, "please")


def test_words():
    expect("unknown option, a name that resembles it", run("--tmep", "1"), 2, "--tmep", "did you mean --temp?")
    expect("unknown option with a value in it", run("--topk=3"), 2, "did you mean --top-k?")
    expect("unknown option that resembles nothing", run("--xyzzy-plugh"), 2, "no option --xyzzy-plugh", "weir run --help-all")
    expect("an option of another command", weir("info", "--grammar", "x"), 2, "weir run has it")
    expect("unknown command", weir("rnu"), 2, "did you mean weir run?")
    expect("a short word that resembles none", weir("lx"), 2, "weir help lists them")
    expect("an option that resembles none", run("--nope"), 2, "weir run --help-all lists them")
    check("ls is list", weir("ls", "--json").stdout == weir("list", "--json").stdout != "" and "weir list" in weir("help", "ls").stdout)
    expect("a command of other programs", weir("stop"), 2, "systemctl stop weir")
    expect("and another", weir("cp", "a", "b"), 2, "weir preset")
    for word, own in (("create", "weir preset"), ("download", "weir pull"), ("models", "weir list")):
        expect(f"what weir calls {word}", weir(word), 2, own)
    expect("how other programs name a repository", run("-hf", "a/b", "-p", "x"), 2, "-m hf:OWNER/REPO")
    expect("and with =", weir("serve", "--hf-repo=a/b"), 2, "-m hf:OWNER/REPO")
    expect("where there is no model to name", weir("list", "-hf", "a/b"), 2, "no option -hf; weir help list")
    expect("a preset that is not there, where nobody is asked", weir("rm", "nowhere"), 3, "there is no preset nowhere")
    check("its help", weir("bench", "--help").stdout == weir("help", "bench").stdout != "")
    expect("a server in place of an option", weir("ps", "http://127.0.0.1:1"), 2, "--url")
    expect("the second word of a command", weir("replay", "x"), 2, "did you mean weir bench replay?")
    expect("a value is missing", run("-p", "x", "--temp"), 2, "--temp needs a value")
    expect("an option where a value belongs", run("-p", "--temp", "1"), 2, "-p needs a value", "--name=value")
    expect("a value that looks like an option", run("--prompt=--temp", "-n", "2", "--raw"), 0)
    expect("no number", run("-p", "x", "--top-k", "many"), 2, '--top-k is "many"')
    expect("half a number", run("-p", "x", "--top-k", "4x"), 2, '--top-k is "4x"')
    expect("a number beyond 31 bits", run("-p", "x", "--top-k", "3000000000"), 2, "--top-k", "a whole number from 0 to")
    expect("auto is the default of a number", run("-p", "x", "-n", "1", "-ngl", "auto", "--top-k", "auto"), 0)
    expect("the word that help shows, too", run("-p", "x", "-n", "1", "-ngl", "all"), 0)
    expect("a short option that llama.cpp has", run("-cnv", "x"), 2, "no option -cnv; weir run --help-all")
    expect("a name that resembles none", run("--verbose-prompt", "x"), 2, "--verbose-prompt; weir run --help-all")
    for name in ("llama9.2", "qwen3:800b", "yi:latest"):
        expect(f"{name} is not a model here", weir("run", name), 2, f"{name} is not a model here", "weir pull", f"-p {name}")
    expect("a model of two words that is none", weir("run", "llama9.2", "hi"), 2, "llama9.2 is not a model here", "quote a prompt", "did you mean llama3.2?")
    expect("too many words", weir("run", "a", "b", "c"), 2, "quote a prompt of several words")
    expect("an empty number", run("-p", "x", "--temp", ""), 2, "--temp")
    expect("a strategy that is none", run("-p", "x", "--strategy", "fair"), 2, "balanced, latency-target")
    expect("a choice that is none", run("-p", "x", "--layout", "diagonal"), 2, "unified, per_slot")
    expect("a seed out of range", run("-p", "x", "--seed", "4294967296"), 2, "--seed")
    expect("a logit bias without a bias", run("-p", "x", "--logit-bias", "15"), 2, "15043+1")
    for bad in ("-1", "101", "nan", "inf", "-inf", "1e30"):
        expect(f"--temp {bad} names the option and its range", run("-p", "x", "--temp", bad), 2, "--temp", "0", "100")
    expect("0 slots", run("-p", "x", "-np", "0"), 2, "--slots", "1", "256")
    expect("257 slots", run("-p", "x", "-np", "257"), 2, "--slots", "1", "256")
    expect("a negative context", run("-p", "x", "-c", "-5"), 2, "--ctx")
    expect("a token that the vocabulary has not", run("-p", "x", "--logit-bias", "99999999+1"), 2, "--logit-bias[0].token is 99999999")
    expect("a wrong variable", run("-p", "x", env=environment(WEIR_TEMP="warm")), 2, "WEIR_TEMP", "warm")
    done = run("-p", "x", "--raw", "--json", "--ignore-eos", env=environment(WEIR_MAX_TOKENS="3"))
    check("a variable gives the default", done.returncode == 0 and
          json.loads(done.stdout)["usage"]["generated_tokens"] == 3, done.stdout, done.stderr)
    done = run("-p", "x", "--raw", "--json", "--ignore-eos", "-n", "5", env=environment(WEIR_MAX_TOKENS="3"))
    check("the command line overrides it", json.loads(done.stdout)["usage"]["generated_tokens"] == 5, done.stdout)
    done = weir("run", "-p", "x", "-n", "2", "--raw", env=environment(WEIR_MODEL=MODEL))
    expect("WEIR_MODEL gives the model", done, 0)


def test_example():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(here, "README.md"), encoding="utf-8") as file:
        example = re.search(r"```c hello\n(.*?)```", file.read(), re.S)
    with open(os.path.join(here, "examples", "hello.c"), encoding="utf-8") as file:
        program = file.read().split("*/\n", 1)[1]
    check("examples/hello.c is the example of README.md", example is not None and example.group(1) == program)


if __name__ == "__main__":
    run_tests(globals())
