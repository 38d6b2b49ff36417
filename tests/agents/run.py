"""Agents in real loops with weir: run.py [--fields] AGENT=FOLDER ..., with the folders of install.sh. scripts/agents.sh calls it.

Each agent does two turns of a user's in a folder of its own: it reads a file, edits it, answers, goes on, edits again. The model is the
fake one, whose answers proxy.py forces; the agent, its requests, its tools and the file are real. No network but loopback. A table of the
requests follows; a body that weir refuses fails the run. --fields writes AGENT.fields, the fields of an agent's bodies."""
# SPDX-License-Identifier: Apache-2.0
import base64
import importlib
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, os.pardir, "support")]
from checks import check, finish  # noqa: E402
from media import png  # noqa: E402
from network import enter  # noqa: E402
from pins import versions  # noqa: E402
from proxy import Proxy, Script  # noqa: E402
from serve import Server  # noqa: E402

PATIENCE = 240  # s, for one turn
# By turn: what the user says, the edit, the answer.
TURNS = [("Correct the spelling in notes.txt", ("colour", "color"), "spelling corrected"),
         ("Let it be green", ("blue", "green"), "it is green now")]
TEXTS = ["The color is blue.\n", "The color is green.\n"]
# A token is a byte, and the instructions and tools of an agent have up to 200 KB.
MODEL = "fake:n_ctx_train=1000000,eos_every=30"
WEIR = ["--alias", "*", "-c", "1000000", "-np", "2", "--mmproj", "fake:"]


def script_of(agent, work):
    """Each turn reads the file and edits it; the first has the agent's other calls before that, and where a call ends a run, that last."""
    notes, turns = os.path.join(work, "notes.txt"), []
    for _, edit, answer in TURNS:
        others = agent.others(os.path.join(work, "picture.png")) if hasattr(agent, "others") and not turns else []
        end = [agent.end(answer)] if hasattr(agent, "end") else []
        turns.append(([*others, agent.read(notes), agent.edit(notes, *edit), *end], answer))
    return Script(turns, getattr(agent, "CONTINUES", True))


def run_program(command, work, env):
    """Its status and output. It ends in time, and with it all that it started: some agents leave a service behind."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = f"not ended after {PATIENCE} s"
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        return status, out.read()


def play_own(name, agent, folder, weir, log):
    """Loops that force their calls themselves, of tests/clients. Their proxy, which has the record."""
    proxy = Proxy(weir.url, None)
    env = {"WEIR_FAKE_URL": proxy.url, "WEIR_FAKE_MODEL": "local", "WEIR_PICTURE": "data:image/png;base64," + base64.b64encode(png()).decode()}
    status, out = run_program([os.path.join(folder, agent.PROGRAM), *agent.LOOPS], folder, env)
    log.write(f"---- {name}: {status}\n{out}\n")
    check(f"{name}: all loops end in order", status == 0 and f"{len(agent.LOOPS)} passed, 0 failed" in out, status, out[-3000:])
    proxy.shutdown()
    return proxy


def play(name, folder, weir, log):
    """One agent's loop. Its proxy, which has the record."""
    agent = importlib.import_module(name)
    if hasattr(agent, "LOOPS"):
        return play_own(name, agent, folder, weir, log)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        proxy = Proxy(weir.url, script_of(agent, work), agent.CUT)
        for path, text in agent.FILES.items():
            os.makedirs(os.path.dirname(os.path.join(home, path)), exist_ok=True)
            with open(os.path.join(home, path), "w") as f:
                f.write(text.replace("{url}", proxy.url))
        with open(os.path.join(work, "notes.txt"), "w") as f:
            f.write("The colour is blue.\n")
        with open(os.path.join(work, "picture.png"), "wb") as f:
            f.write(png())
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home, "PYTHONPATH": folder, "PACKAGES": folder, "PYTHONDONTWRITEBYTECODE": "1", **agent.environment(proxy.url)}
        program = [os.path.join(folder, agent.PROGRAM)] if hasattr(agent, "PROGRAM") else [sys.executable if agent.SCRIPT.endswith(".py") else "node", os.path.join(here, "programs", agent.SCRIPT)]
        for turn, (prompt, _, answer) in enumerate(TURNS[:getattr(agent, "TURNS", 2)]):
            proxy.script.turn = turn
            status, out = run_program(program + agent.words(turn, prompt, os.path.join(work, "picture.png"), home), work, env)
            log.write(f"---- {name}, turn {turn + 1}: {status}\n{out}\n")
            check(f"{name}: turn {turn + 1} ends in order", status == 0, status, out[-3000:])
            check(f"{name}: its answer is shown", answer in out, out[-3000:])
            with open(os.path.join(work, "notes.txt")) as f:
                text = f.read()
            check(f"{name}: the file is changed", text == TEXTS[turn], text)
        check(f"{name}: it read the file", any("colour is blue" in result for result in proxy.results), *proxy.results)
        if agent.CUT is not None:
            check(f"{name}: the answer that broke off was asked for again", proxy.requests.count(proxy.broken) > 1, proxy.broken, proxy.requests)
        proxy.shutdown()
    return proxy


def note_fields(name, found, write):
    """Shows what the stored list lacks or has in excess; write: writes it anew."""
    path = os.path.join(here, f"{name}.fields")
    try:
        with open(path) as f:
            known = set(f.read().splitlines())
    except FileNotFoundError:
        known = set()
    for sign, lines in (("new", found - known), ("gone", known - found if write else ())):
        for line in sorted(lines):
            print(f"{sign}   {name}: {line}")
    if write:
        with open(path, "w") as f:
            f.writelines(line + "\n" for line in sorted(found))


def listed(items):
    return ", ".join(f"`{item}`" for item in sorted(items)) or "none"


def row(name, version, proxy):
    """One line of the table."""
    refused = {f"{r['status']} {r['param']}" for r in proxy.refusals}
    parts = proxy.parts | ({"answer that broke off"} if proxy.broken else set())
    return f"| {name} | {version} | {', '.join(sorted(parts)) or 'none'} | {len(proxy.requests)} | {listed(refused)} | {listed(proxy.hints)} | {listed(proxy.others)} |"


def main():
    pinned = versions()
    enter([])
    rows = []
    with open(os.environ.get("WEIR_AGENTS_LOG", os.devnull), "w") as log:
        for name, folder in (word.split("=") for word in sys.argv[1:] if word != "--fields"):
            print(f"---- {name}", flush=True)
            with Server(os.environ["WEIR_BIN"], *WEIR, model=MODEL, log=log) as weir:
                proxy = play(name, folder, weir, log)
            log.write(f"---- {name}, requests: {proxy.requests}\n")
            check(f"{name}: weir takes every body", not proxy.refusals and not any(" POST " in o and not o.startswith("404") for o in proxy.others), proxy.others, *(f"{r['status']} {r['param']} = {json.dumps(r.get('value'))[:300]}: {r['message']}" for r in proxy.refusals))
            note_fields(name, proxy.fields, "--fields" in sys.argv)
            rows.append(row(name, pinned[name], proxy))
    print("\n| agent | version | beside tool calls | requests | refused | not enforced | other answers from 400 on |\n|---|---|---|---|---|---|---|", *rows, sep="\n")
    finish()


main()
