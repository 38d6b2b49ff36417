"""Agents in real loops with weir: run.py [--fields] AGENT=FOLDER ..., with the folders of install.sh. scripts/agents.sh calls it.

Each agent does two turns of a user's in a folder of its own: it reads a file, edits it, answers, goes on, edits again. The model is the
fake one, whose answers proxy.py forces; the agent, its requests, its tools and the file are real. No network but loopback. A table of the
requests and one of what they had follow; a body that weir refuses fails the run. --fields writes AGENT.fields, the fields of an agent's
bodies, and the tables of docs/guides/clients.md."""
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

LONG = "a-name-that-is-longer-than-what-ends-a-call-" * 4  # so that a call that is cut lacks some of its path
PATIENCE = 240  # s, for one turn
# By turn: what the user says, the edit, the answer.
TURNS = [("Correct the spelling in notes.txt", ("colour", "color"), "spelling corrected"),
         ("Let it be green", ("blue", "green"), "it is green now")]
TEXTS = ["The color is blue.\n", "The color is green.\n"]
# A token is a byte, and the instructions and tools of an agent have up to 200 KB.
MODEL = "fake:n_ctx_train=1000000,eos_every=30"
LENGTH = (b'"length"', b'"max_tokens"', b'"max_output_tokens"')  # as the APIs call an end at the limit
# What a loop should have in its bodies. What a client has no way to send is in its module's LACKS, with the reason.
SHAPES = ["second turn", "call", "cut call", "system message", "image"]
GUIDE = os.path.join(here, os.pardir, os.pardir, "docs", "guides", "clients.md")
HEADS = ["| agent | API | version | requests | 4xx | hints | other answers from 400 on |",
         "| agent | second turn | call | cut call | system message in between | image | answer that breaks off | why not |"]
WEIR = ["--alias", "*", "-c", "1000000", "-np", "2", "--mmproj", "fake:"]


def script_of(agent, work):
    """Each turn reads the file and edits it; the first has the agent's other calls before that, and where a call ends a run, that last. The
    first call that reads the file is cut when it is first made, and breaks off when it is made again."""
    notes, turns, place = os.path.join(work, "notes.txt"), [], 0
    for prompt, edit, answer in TURNS:
        others = agent.others(os.path.join(work, "picture.png")) if hasattr(agent, "others") and not turns else []
        end = [agent.end(answer)] if hasattr(agent, "end") else []
        place = place if turns else len(others)
        turns.append((prompt, [*others, agent.read(notes), agent.edit(notes, *edit), *end], answer))
    return Script(turns, cut=place, breaks=place)


def run_program(command, work, env, typed=""):
    """Its status and output. It ends in time, and with it all that it started: some agents leave a service behind."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
        try:
            process.communicate(typed.encode(), PATIENCE)
            status = process.returncode
        except subprocess.TimeoutExpired:
            status = f"not ended after {PATIENCE} s"
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        return status, out.read()


def play_own(name, agent, folder, weir, log):
    """Loops that force their calls themselves, of tests/clients. Their proxy, which has the record."""
    proxy = Proxy(weir.url, None, agent.PROMPTS)
    env = {"WEIR_FAKE_URL": proxy.url, "WEIR_FAKE_MODEL": "local", "WEIR_PICTURE": "data:image/png;base64," + base64.b64encode(png()).decode()}
    status, out = run_program([os.path.join(folder, agent.PROGRAM), *agent.LOOPS], folder, env)
    log.write(f"---- {name}: {status}\n{out}\n")
    check(f"{name}: all loops end in order", status == 0 and f"{len(agent.LOOPS)} passed, 0 failed" in out, status, out[-3000:])
    proxy.shutdown()
    return proxy


def command_of(agent, folder):
    if not hasattr(agent, "PROGRAM"):
        return [sys.executable if agent.SCRIPT.endswith(".py") else "node", os.path.join(here, "programs", agent.SCRIPT)]
    program = os.path.join(folder, agent.PROGRAM)
    return [sys.executable, os.path.join(here, "programs", "acp.py"), program] if hasattr(agent, "ACP") else [program]


def play(name, agent, folder, weir, log):
    """One agent's loop. Its proxy, which has the record."""
    if hasattr(agent, "LOOPS"):
        return play_own(name, agent, folder, weir, log)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory(prefix=LONG) as work:
        proxy = Proxy(weir.url, script_of(agent, work), [prompt for prompt, _, _ in TURNS])
        for path, text in agent.FILES.items():
            os.makedirs(os.path.dirname(os.path.join(home, path)), exist_ok=True)
            with open(os.path.join(home, path), "w") as f:
                f.write(text.replace("{url}", proxy.url))
        with open(os.path.join(work, "notes.txt"), "w") as f:
            f.write("The colour is blue.\n")
        with open(os.path.join(work, "picture.png"), "wb") as f:
            f.write(png())
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home, "PYTHONPATH": folder, "PACKAGES": folder, "PYTHONDONTWRITEBYTECODE": "1", **agent.environment(proxy.url)}
        program, typed, acp = command_of(agent, folder), agent.typed(TURNS[1][0]) if hasattr(agent, "typed") else "", hasattr(agent, "ACP")
        picture = os.path.join(work, "picture.png")
        for turns in [TURNS] if typed or acp else [[turn] for turn in TURNS]:
            turn = TURNS.index(turns[-1])
            for again in range(3):  # of what ends a turn, the user asks once more
                before = proxy.cut, proxy.broken
                words = ["local", *proxy.prompts] if acp else agent.words(TURNS.index(turns[0]), again, turns[0][0], picture)
                status, out = run_program(program + words, work, env, typed)
                log.write(f"---- {name}, turn {turn + 1}: {status}\n{out}\n")
                if turns[-1][2] in out or (proxy.cut, proxy.broken) == before:
                    break
                proxy.ended |= {end for end, was, now in zip(("cut", "broken"), before, (proxy.cut, proxy.broken)) if now != was}
            check(f"{name}: turn {turn + 1} ends in order", status == 0, status, out[-3000:])
            check(f"{name}: its answer is shown", all(answer in out for _, _, answer in turns), out[-3000:])
            with open(os.path.join(work, "notes.txt")) as f:
                text = f.read()
            check(f"{name}: the file is changed", text == TEXTS[turn], text)
        log.write(f"---- {name}, the answer that was cut: {proxy.cut_answer.decode(errors='replace')}\n")
        check(f"{name}: it read the file", any("colour is blue" in result for result in proxy.results), *proxy.results)
        check(f"{name}: an answer was cut, and one broke off", proxy.cut and proxy.broken and any(end in proxy.cut_answer for end in LENGTH), proxy.cut_answer)
        check(f"{name}: the answer that broke off was asked for again", proxy.requests.count(proxy.broken) > 1 + (proxy.cut == proxy.broken), proxy.broken, proxy.requests)
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


def cut_call(proxy):
    """What the client did with the call that was cut."""
    if "cut call" in proxy.parts:
        return "sent back, after a turn that ends" if "cut" in proxy.ended else "sent back"
    return "ends the turn" if "cut" in proxy.ended else "not sent back"


def rows_of(version, agent, proxy):
    """Its lines in the tables."""
    apis = sorted({field.split()[0] for field in proxy.fields})
    refused = len(proxy.refusals) + sum(" POST " in other and other[0] == "4" for other in proxy.others)
    broken = "not tried" if not proxy.broken else "ends the turn" if "broken" in proxy.ended else "asked again"
    shapes = [cut_call(proxy) if shape == "cut call" else "yes" if shape in proxy.parts else "no" for shape in SHAPES]
    lacks = "; ".join(f"{shape}: {why}" for shape, why in getattr(agent, "LACKS", {}).items())
    return [f"| {' | '.join(cells)} |" for cells in (
        [agent.TITLE, ", ".join(f"`{api}`" for api in apis), version, str(len(proxy.requests)), str(refused), listed(proxy.hints), listed(proxy.others)],
        [agent.TITLE, *shapes, broken, lacks])]


def write_rows(head, rows):
    """Puts the rows into the guide's table with this head, each in the place of the one that begins like it."""
    with open(GUIDE, encoding="utf-8") as f:
        lines = f.read().splitlines()
    begin = end = lines.index(head) + 2
    while lines[end].startswith("|"):
        end += 1
    kept = {line.split(" | ")[0]: line for line in lines[begin:end]}
    lines[begin:end] = {**kept, **{row.split(" | ")[0]: row for row in rows}}.values()
    with open(GUIDE, "w", encoding="utf-8") as f:
        f.writelines(line + "\n" for line in lines)


def main():
    pinned = versions()
    enter([])
    agents, rows = {}, []
    with open(os.environ.get("WEIR_AGENTS_LOG", os.devnull), "w") as log:
        for name, folder in (word.split("=") for word in sys.argv[1:] if word != "--fields"):
            print(f"---- {name}", flush=True)
            with Server(os.environ["WEIR_BIN"], *WEIR, model=MODEL, log=log) as weir:
                agents[name] = importlib.import_module(name)
                proxy = play(name, agents[name], folder, weir, log)
            log.write(f"---- {name}, requests: {proxy.requests}\n")
            check(f"{name}: weir takes every body", not proxy.refusals and not any(" POST " in o and not o.startswith("404") for o in proxy.others), proxy.others, *(f"{r['status']} {r['param']} = {json.dumps(r.get('value'))[:300]}: {r['message']}" for r in proxy.refusals))
            note_fields(name, proxy.fields, "--fields" in sys.argv)
            lacks = set(SHAPES) - proxy.parts
            check(f"{name}: has all but what it cannot send", lacks == set(getattr(agents[name], "LACKS", {})), lacks)
            rows.append(rows_of(pinned[name], agents[name], proxy))
    for i, head in enumerate(HEADS):
        print("", head, f"|{'---|' * (head.count('|') - 1)}", *(both[i] for both in rows), sep="\n")
        if "--fields" in sys.argv:
            write_rows(head, [both[i] for both in rows])
    finish()


main()
