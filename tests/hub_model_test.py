"""A model from a hub over HTTPS, as a person has it: `weir run -m hf:…` downloads it with a bar, answers as the file does, and then works offline."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from authority import Authority  # noqa: E402
from checks import PATIENCE, check, environment, finish  # noqa: E402
from hub_server import Hub  # noqa: E402
from terminal import Terminal  # noqa: E402

WEIR, MODEL = os.environ["WEIR_BIN"], os.environ["WEIR_TEST_MODEL"]
ASK = ["-p", "Name a river.", "-n", "12", "--temp", "0", "-t", "1", "-c", "512"]


def main():
    if shutil.which("openssl") is None:
        print("skipped: no openssl")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        hub = Hub(tls=authority.server())
        with open(MODEL, "rb") as file:
            hub.repo("test/Smol-GGUF", {"smol-Q4_1.gguf": file.read(), "README.txt": b"x"})
        clean = {k: v for k, v in environment(HOME=folder, XDG_CACHE_HOME=folder + "/xdg", HF_ENDPOINT=hub.url, SSL_CERT_FILE=authority.file).items()
                 if k.lower() not in ("http_proxy", "https_proxy", "all_proxy", "hf_home", "hf_hub_cache", "hf_token", "hf_hub_offline", "curl_ca_bundle")}

        def weir(*words, **more):
            return subprocess.run([WEIR, *words], capture_output=True, text=True, env=dict(clean, **more), timeout=PATIENCE, stdin=subprocess.DEVNULL)

        wanted = weir("run", "-q", "-m", MODEL, *ASK)
        done = weir("run", "-m", "hf:test/Smol-GGUF:Q4_1", *ASK)
        if "without libcurl" in done.stderr:
            print("skipped: this weir was built without libcurl")
            return 77
        check("it is downloaded, and answers as the file does", done.returncode == 0 and done.stdout == wanted.stdout and len(wanted.stdout) > 10 and
              "100 %" in done.stderr, wanted, done)
        n = len(hub.requests())
        done = weir("run", "-q", "-m", "hf:test/Smol-GGUF", *ASK)
        check("the second time nothing is downloaded", done.returncode == 0 and done.stdout == wanted.stdout and
              not [path for role, path, _ in hub.requests()[n:] if role == "store"], done)
        terminal = Terminal([WEIR, "run", "-m", "hf:test/Smol-GGUF", *ASK], 100, 24, dict(clean, HF_HUB_CACHE=folder + "/other", TERM="xterm-256color"))
        bar = terminal.wait_for(lambda screen: any("█" in line and "%" in line for line in screen.lines()), PATIENCE)
        code = terminal.finish(PATIENCE)
        check("on a terminal: a bar, and then the answer alone", bar and code == 0 and not any("█" in line for line in terminal.screen.lines()) and
              wanted.stdout.strip()[:40] in " ".join(terminal.screen.lines()), terminal.screen.lines())
        terminal.close()
        hub.close()
        done = weir("run", "-q", "-m", "hf:test/Smol-GGUF:Q4_1", "--offline", *ASK)
        check("and offline, without the hub", done.returncode == 0 and done.stdout == wanted.stdout, done)
        done = weir("info", "-m", "hf:test/Smol-GGUF:Q4_1", "--offline")
        check("weir info tells the model", done.returncode == 0 and "vocabulary" in done.stdout, done)
    finish()


sys.exit(main())
