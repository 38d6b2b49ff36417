"""Real clients against `weir serve` with the default model: each does its work with its own package, as a user would; and the examples of
docs/guides/clients.md. Arguments: names of the clients, or "guide", to run only these."""
# SPDX-License-Identifier: Apache-2.0
import base64
import os
import shlex
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, os.pardir, "support"))
from checks import results, seed  # noqa: E402
from guide import Guide  # noqa: E402
from media import png  # noqa: E402
from serve import Server  # noqa: E402


# By name: the script, and which of install.sh's folders it needs; or a folder, which build.sh makes a program.
CLIENTS = {
    "openai_python": ("openai_python.py", "openai"),
    "openai_node": ("openai_node.mjs", ""),
    "anthropic_python": ("anthropic_python.py", "anthropic"),
    "anthropic_node": ("anthropic_node.mjs", ""),
    "ollama_python": ("ollama_python.py", "ollama"),
    "ollama_node": ("ollama_node.mjs", ""),
    "agents": ("agents_python.py", "agents"),
    "litellm": ("litellm_python.py", "litellm"),
    "langchain_anthropic": ("langchain_anthropic_test.py", "langchain_anthropic"),
    "langchain": ("langchain_openai_test.py", "langchain"),
    "llm": ("llm_command.py", "llm"),
    "continue": ("continue_command.py", ""),
    "router": ("router_kv_events.py", "router"),
    "schemas": ("schemas.py", "openai"),
    "openai_go": ("openai_go", ""),
    "async_openai": ("async_openai", ""),
}

# The guide's programs, and which packages they need.
EXAMPLES = {"openai_chat.py": "openai", "anthropic_messages.py": "anthropic", "ollama_chat.py": "ollama", "langchain_chat.py": "langchain", "openai_chat.mjs": ""}


def play_guide(folder):
    """The examples of clients.md: its commands, then its programs."""
    page = os.path.join(os.environ["WEIR_SOURCE_DIR"], "docs", "guides", "clients.md")

    def python(packages):
        return f"PYTHONPATH={shlex.quote(os.path.join(folder, 'python', packages))} {shlex.quote(sys.executable)}"

    with tempfile.TemporaryDirectory() as work:
        os.symlink(os.path.join(folder, "node", "node_modules"), os.path.join(work, "node_modules"))
        with open(os.path.join(work, "llm"), "w") as f:
            f.write(f'#!/bin/sh\n{python("llm")} -m llm "$@"\n')
        os.chmod(f.name, 0o755)
        os.symlink(os.path.join(folder, "node", "node_modules", ".bin", "cn"), os.path.join(work, "cn"))
        env = {"LLM_USER_PATH": work, "CONTINUE_GLOBAL_DIR": work, "PATH": work + os.pathsep + os.environ["PATH"], "no_proxy": "127.0.0.1"}
        guide = Guide(page, work, os.environ["WEIR_BIN"], os.environ["WEIR_TEST_MODEL"], env)
        assert set(EXAMPLES) <= {name for _, name, _ in guide.blocks}
        for name, packages in EXAMPLES.items():
            command = f"node {name}" if name.endswith(".mjs") else f"{python(packages)} {name}"
            guide.blocks.append(("sh", f"run {name}", f'test -n "$({command} | tee /dev/stderr)"'))
        guide.play()


def command_of(script):
    """None: this machine has no compiler for it."""
    path = os.path.join(here, script)
    if not os.path.isdir(path):
        return ["node" if script.endswith(".mjs") else sys.executable, path]
    built = subprocess.run([os.path.join(here, "build.sh"), script], stdout=subprocess.PIPE, text=True)
    return None if built.returncode == 77 else [built.stdout.strip() or "false"]


def main():
    folder = subprocess.run([os.path.join(here, "install.sh")], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    passed = failed = 0
    out = os.path.join(os.environ["WEIR_BUILD_DIR"], "clients")
    os.makedirs(out, exist_ok=True)
    weir, weights = os.environ["WEIR_BIN"], os.environ["WEIR_TEST_MODEL"]
    # A path for a socket is short.
    with open(os.path.join(out, "server.log"), "w") as log, tempfile.TemporaryDirectory() as sockets, \
            Server(weir, "-np", "4", "-c", "4096", "--kv-events", f"ipc://{sockets}/kv",
                   "--kv-events-replay", f"ipc://{sockets}/replay", model=weights, log=log) as server, \
            Server(weir, "-np", "1", "-c", "512", "--api-key", "s3cret", model=weights, log=log) as keyed, \
            Server(weir, "-np", "2", "-c", "16384", "--mmproj", "fake:", "--alias", "fake", model="fake:n_ctx_train=16384,eos_every=30", log=log) as fake:
        model = server.get("/v1/models").json["data"][0]["id"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("WEIR_", "OPENAI_", "ANTHROPIC_", "LLM_", "OLLAMA_")) and not k.lower().endswith("_proxy")}
        environment.update(WEIR_URL=server.url, WEIR_KEYED_URL=keyed.url, WEIR_MODEL=model, WEIR_CLIENTS=folder, WEIR_KV_EVENTS=f"ipc://{sockets}/kv", WEIR_KV_REPLAY=f"ipc://{sockets}/replay",
                           WEIR_FAKE_URL=fake.url, WEIR_FAKE_MODEL="fake", WEIR_PICTURE="data:image/png;base64," + base64.b64encode(png()).decode(),
                           PYTHONDONTWRITEBYTECODE="1", OPENAI_API_KEY="any", LANGCHAIN_TRACING_V2="false")
        environment.update({name: os.environ[name] for name in ["WEIR_SCHEMAS"] if name in os.environ}, WEIR_TEST_SEED=str(seed()))
        for name in [name for name in sys.argv[1:] or CLIENTS if name != "guide"]:
            print("---- " + name, flush=True)
            script, packages = CLIENTS[name]
            command = command_of(script)
            if command is None:
                continue
            environment["PYTHONPATH"] = os.path.join(folder, "python", packages)
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            print(done.stdout, end="", flush=True)
            good, bad = 0, 1
            last = done.stdout.strip().splitlines()[-1:] or [""]
            words = last[0].split()
            if len(words) == 4 and words[1] == "passed," and words[3] == "failed":
                good, bad = int(words[0]), int(words[2])
            passed, failed = passed + good, failed + (bad or (1 if done.returncode else 0))
    if not sys.argv[1:] or "guide" in sys.argv[1:]:
        print("---- guide", flush=True)
        play_guide(folder)
    passed, failed = passed + results["passed"], failed + results["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
