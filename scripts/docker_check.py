#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds by the Dockerfile like `docker build`, without its engine, and then runs the program built.

usage: docker_check.py [DOCKERFILE]

Each FROM debian:SUITE-slim is a clean Debian of debootstrap's, RUN runs in it by chroot, COPY copies the files that git knows. Then the
program runs as the image's user on a model without weights, and HEALTHCHECK's command asks it. The user must own a volume for
downloads, and weir bench must run. What a build fetches, and a llama.cpp that fits, are taken from the cache where they are there. Needs
root, debootstrap and a mirror ($WEIR_DEBIAN_MIRROR, else this machine's); 77: something of that is missing."""
import fnmatch
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weir")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def say(text):
    print("weir: " + text, file=sys.stderr, flush=True)


def instructions(path):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^#.*\n", "", file.read(), flags=re.M)
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.strip():
            yield line.split(None, 1)


class Image:
    def __init__(self, root):
        self.root, self.folder, self.user = root, "/", None
        self.health = self.entry = None
        self.env, self.volumes = {}, []

    def inside(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def command(self, words, user=None, more=None):
        as_user = [f"--userspec={user}"] if user else []
        home = ["HOME=/home/" + user] if user else ["HOME=/", "XDG_CACHE_HOME=/cache"]
        home += [f"{name}={value}" for name, value in dict(self.env, **(more or {})).items()]
        return ["chroot", *as_user, self.root, "/usr/bin/env", "-i", "PATH=" + PATH, *home, "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8",
                "sh", "-c", 'cd "$0" && exec "$@"', self.folder, *words]


class Build:
    def __init__(self, work):
        self.work, self.images, self.mounted = work, {}, []
        self.base = {}

    def debian(self, suite):
        """A clean one, copied: the second FROM costs seconds."""
        if suite not in self.base:
            root = os.path.join(self.work, "base-" + suite)
            mirror = os.environ.get("WEIR_DEBIAN_MIRROR") or subprocess.run(
                "apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1", shell=True, capture_output=True,
                text=True).stdout.strip()
            say(f"a clean Debian ({suite})")
            done = subprocess.run(["debootstrap", "--variant=minbase", suite, root, mirror], stdout=subprocess.DEVNULL)
            if done.returncode != 0:
                say("debootstrap has no mirror, or failed")
                sys.exit(77 if not os.path.isdir(root + "/var/lib/dpkg") else 1)
            for name in ("apt.conf", "apt.conf.d"):
                if os.path.exists("/etc/apt/" + name):
                    subprocess.run(["cp", "-rT", "/etc/apt/" + name, os.path.join(root, "etc/apt", name)], check=True)
            shutil.copy("/etc/resolv.conf", root + "/etc/resolv.conf")
            self.base[suite] = root
        root = os.path.join(self.work, f"image{len(self.images)}")
        subprocess.run(["cp", "-a", self.base[suite], root], check=True)
        if subprocess.run(["mount", "-t", "proc", "proc", root + "/proc"], stderr=subprocess.DEVNULL).returncode == 0:
            self.mounted.append(root + "/proc")
        return Image(root)

    def copy(self, image, words):
        *sources, target = [word for word in words if not word.startswith("--")]
        target = os.path.join(image.folder, target)
        stage = next((w[len("--from="):] for w in words if w.startswith("--from=")), None)
        if stage is not None:
            os.makedirs(os.path.dirname(image.inside(target)), exist_ok=True)
            shutil.copy2(self.images[stage].inside(sources[0]), image.inside(target))
            return
        os.makedirs(image.inside(target), exist_ok=True)
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if sources == ["."]:
                to = os.path.join(image.inside(target), name)
            elif any(fnmatch.fnmatch(name, source) for source in sources):
                to = os.path.join(image.inside(target), os.path.basename(name))
            else:
                continue
            os.makedirs(os.path.dirname(to), exist_ok=True)
            if os.path.exists(os.path.join(ROOT, name)):
                shutil.copy2(os.path.join(ROOT, name), to)
        # What a build would fetch and compile for minutes.
        kept = image.inside("/cache/weir")
        if os.path.isdir(kept):
            return
        os.makedirs(kept + "/llama")
        for path in [p for pattern in ("llhttp", "page_libs", "llama/src-*", "llama/build-release-*") for p in glob.glob(os.path.join(CACHE, pattern))]:
            if os.path.isdir(path):
                subprocess.run(["cp", "-a", path, os.path.join(kept, os.path.relpath(os.path.dirname(path), CACHE))], check=True)

    def run(self, dockerfile):
        image = None
        for word, rest in instructions(dockerfile):
            say(f"{word} {rest[:100]}")
            if word == "FROM":
                name = re.fullmatch(r"debian:(\w+)-slim(?: AS (\w+))?", rest)
                image = self.debian(name.group(1))
                self.images[name.group(2) or "last"] = image
            elif word == "WORKDIR":
                image.folder = rest
                os.makedirs(image.inside(rest), exist_ok=True)
            elif word == "COPY":
                self.copy(image, rest.split())
            elif word == "RUN":
                subprocess.run(image.command(["sh", "-c", rest], image.user), check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
            elif word == "USER":
                image.user = rest
            elif word == "ENV":
                name, value = rest.split("=", 1)
                image.env[name] = value
            elif word == "VOLUME":
                image.volumes.append(rest)
            elif word == "HEALTHCHECK":
                image.health = json.loads(rest[rest.index("["):])
            elif word == "ENTRYPOINT":
                image.entry = json.loads(rest)
            else:
                assert word == "EXPOSE", word
        return image

    def close(self):
        for path in self.mounted:
            subprocess.run(["umount", path], check=False)


def use(image):
    """The image's entry point with a model, until its health check is green, and an answer."""
    port = {"WEIR_PORT": "18080"}
    for volume in image.volumes:
        if subprocess.run(image.command(["test", "-w", volume], image.user)).returncode != 0:
            say(f"its user cannot write into the volume {volume}")
            return False
    if not image.volumes or not any(image.env.get("XDG_CACHE_HOME") == volume for volume in image.volumes):
        say("downloads are in no volume")
        return False
    bench = [image.entry[0], "bench", "schedule", "--ticks", "20", "--slots", "2", "--cache-nodes", "10"]
    if subprocess.run(image.command(bench, image.user), stdout=subprocess.DEVNULL).returncode != 0:
        say("weir bench does not run")
        return False
    server = subprocess.Popen(image.command([*image.entry, "-m", "fake:"], image.user, port), stdin=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if server.poll() is not None:
                say(f"the server ended with {server.returncode}")
                return False
            if subprocess.run(image.command(image.health, image.user, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.2)
        else:
            say("its health check stays red")
            return False
        done = subprocess.run(image.command([image.entry[0], "ps", "--url", "http://127.0.0.1:18080"], image.user), capture_output=True, text=True)
        print(done.stdout + done.stderr, end="")
        return done.returncode == 0 and "0 running" in done.stdout
    finally:
        if server.poll() is None:
            server.terminate()
        server.wait(60)


def main():
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        say("this needs root and debootstrap")
        return 77
    work = tempfile.mkdtemp(prefix="weir-docker-")
    build = Build(work)
    try:
        image = build.run(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "Dockerfile"))
        if not use(image):
            return 1
    finally:
        build.close()
        shutil.rmtree(work, ignore_errors=True)
    say("built, started, asked and stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
