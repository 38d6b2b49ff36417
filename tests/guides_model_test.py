"""The commands in README.md and docs/guides, with the default model (support/guide.py has the rules). Those of clients.md need
other programs and are left to tests/clients, those of pages about Python to python_test."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/support"))
from checks import finish  # noqa: E402
from guide import Guide  # noqa: E402
from serve import need_server  # noqa: E402

WEIR, MODEL = os.path.abspath(os.environ["WEIR_BIN"]), os.environ["WEIR_TEST_MODEL"]


def play(page):
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        (home / ".cache/weir/models").mkdir(parents=True)
        (home / ".cache/weir/models" / os.path.basename(MODEL)).symlink_to(MODEL)
        (home / "work").mkdir()
        path = f"{os.path.dirname(WEIR)}{os.pathsep}{os.environ['PATH']}"
        env = {"HOME": str(home), "PATH": path, "HF_HUB_OFFLINE": "1", "no_proxy": "127.0.0.1"}
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN"):
            os.environ.pop(name, None)
        Guide(page, home / "work", WEIR, "default", env).play()


def main():
    need_server(WEIR)
    elsewhere = ("clients.md", "python.md", "from-llama-cpp-python.md", "ten-thousand-prompts.md")
    pages = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))) if page.name not in elsewhere]
    chosen = [page for page in pages if not sys.argv[1:] or page.name in sys.argv[1:]]
    for page in chosen:
        play(page)
    finish()


if __name__ == "__main__":
    main()
