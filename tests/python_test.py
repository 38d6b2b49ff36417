"""The Python package: builds and installs it as `pip install ./python` does, but with this build's library; then its own tests, the
examples of its pages, and its types. WEIR_PYTHON names another python; its packages are pinned in python/tests/packages.txt.

WEIR_INTEGRATIONS=1: instead the tests of packages that are built on `openai`, which are pinned in python/tests/integrations.txt, and with
them those of weir.openai. They have an older `openai` than the others, whose HTTP clients come from another package."""

# SPDX-License-Identifier: Apache-2.0
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["WEIR_BUILD_DIR"])
sys.path.insert(0, str(ROOT / "tests/support"))
from checks import check, finish, leave_out  # noqa: E402
from guide import Guide  # noqa: E402

PYTHON = os.environ.get("WEIR_PYTHON", sys.executable)
PYRIGHT = "pyright@1.1.405"
INTEGRATIONS = os.environ.get("WEIR_INTEGRATIONS") == "1"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weir/python"


def run(*command, **more):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def cached(name, key, make):
    """A folder of the user's cache that `make` fills once; None with a line where it cannot."""
    folder = CACHE / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            for old in CACHE.glob(f"{name}-*"):
                if time.time() - old.stat().st_mtime > 7 * 86400:
                    shutil.rmtree(old, ignore_errors=True)
            for command in make(folder):
                done = run(*command)
                if done.returncode != 0:
                    print(done.stdout[-2000:])
                    leave_out(f"{name} cannot be installed here")
                    return None
            (folder / "complete").touch()
    return folder


def environment():
    """A virtual environment with the packages that the package and its tests need."""
    version = run(PYTHON, "-c", "import sys; print(sys.version)").stdout
    name = "integrations" if INTEGRATIONS else "packages"
    pins = ROOT / f"python/tests/{name}.txt"
    return cached(
        name,
        pins.read_text() + version + PYTHON,
        lambda folder: (
            (PYTHON, "-m", "venv", folder),
            (folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--no-cache-dir", "-r", pins),
        ),
    )


def install(python):
    """Into a folder of the build, which it returns."""
    site = BUILD / "python/site"
    shutil.rmtree(site, ignore_errors=True)
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    done = run(
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        "-C",
        f"build-dir={BUILD / 'python/build'}",
        "-C",
        f"cmake.define.WEIR_BUILD={BUILD}",
        ROOT / "python",
        env=env,
    )
    check("pip installs the package", done.returncode == 0, done.stdout[-4000:])
    return site if done.returncode == 0 else None


def test_behaviour(python, site):
    names = sys.argv[1:] or (["test_openai", "test_integrations", "test_batch"] if INTEGRATIONS else ["discover"])
    done = run(
        python,
        "-X",
        "faulthandler",
        "-m",
        "unittest",
        *names,
        cwd=ROOT / "python/tests",
        timeout=2000,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    print(done.stdout[-20000:])
    check("the package's tests", done.returncode == 0, f"status {done.returncode}")


def test_types(python, site):
    """Of the package, and of a program that uses it."""
    if not shutil.which("npm"):
        return leave_out("no npm: types are not checked")
    pyright = cached(
        "pyright",
        PYRIGHT,
        lambda folder: (
            ("mkdir", "-p", folder),
            ("npm", "install", "--prefix", folder, "--no-save", "--no-package-lock", "--no-audit", "--no-fund", PYRIGHT),
        ),
    )
    if pyright is None:
        return None
    stage = BUILD / "python/types"
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(site / "weir", stage / "src/weir", ignore=shutil.ignore_patterns("*.so*", "bin"))
    (stage / "tests").mkdir()
    shutil.copy(ROOT / "python/tests/typed.py", stage / "tests")
    shutil.copy(ROOT / "python/pyproject.toml", stage)
    done = run(pyright / "node_modules/.bin/pyright", "--pythonpath", python, "-p", stage)
    check("strict types", done.returncode == 0, done.stdout)
    return None


def test_example(python, site):
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [python, ROOT / "examples/prompts.py", "fake:eos_every=9"], input="a\n\nb\na\n", capture_output=True, text=True, env=env
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    check("examples/prompts.py answers each line", len(lines) == 3 and lines[0] == lines[2] != lines[1], done.stdout, done.stderr)


def test_pages(python, site):
    """The examples of the guide and the README, with the default model."""
    model = pathlib.Path(os.environ["WEIR_TEST_MODEL"])
    guides = [ROOT / f"docs/guides/{name}.md" for name in ("python", "from-llama-cpp-python", "ten-thousand-prompts")]
    for page in (*guides, ROOT / "python/README.md"):
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            (home / ".cache/weir/models").mkdir(parents=True)
            (home / ".cache/weir/models" / model.name).symlink_to(model)
            (home / "work").mkdir()
            path = os.pathsep.join((str(python.parent), str(site / "weir/bin"), os.environ["PATH"]))
            env = {"HOME": folder, "PATH": path, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}
            Guide(page, home / "work", site / "weir/bin/weir", "default", env).play()


def main():
    if os.environ.get("WEIR_SANITIZED"):
        print("note: a sanitizer's library needs a program of its own: left out")
        sys.exit(77)
    header = "import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
    if run(PYTHON, "-c", header).returncode != 0:
        print("note: no Python.h (Debian: python3-dev): left out")
        sys.exit(77)
    folder = environment()
    if folder is None:
        sys.exit(77)
    python = folder / "bin/python"
    site = install(python)
    if site:
        test_behaviour(python, site)
    if site and not INTEGRATIONS:
        test_example(python, site)
        test_pages(python, site)
        test_types(python, site)
    finish()


if __name__ == "__main__":
    main()
