"""Models by name over HTTPS: a hub with a certificate of an authority that was made for this test. Nothing else is contacted."""
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

WEIR = os.environ["WEIR_BIN"]
VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
scratch = tempfile.TemporaryDirectory()
content = os.urandom(300000)
n_caches = 0


def pull(hub, *words, name="hf:o/m", **more):
    global n_caches
    n_caches += 1
    clean = {k: v for k, v in environment(HF_HUB_CACHE=os.path.join(scratch.name, f"cache{n_caches}"), HF_ENDPOINT=hub.url, HOME=scratch.name, **more).items()
             if not k.startswith("HF_") or k in ("HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN")}
    for name_of in VARIABLES:
        if name_of not in more:
            clean.pop(name_of, None)
    for proxy in ("http_proxy", "https_proxy", "all_proxy"):
        clean.pop(proxy, None)
        clean.pop(proxy.upper(), None)
    return subprocess.run([WEIR, "pull", "-q", *words, name], capture_output=True, text=True, env=clean, timeout=PATIENCE, stdin=subprocess.DEVNULL)


def expect(name, done, code, *parts):
    check(name, done.returncode == code and all(p in done.stderr for p in parts) and "Sanitizer" not in done.stderr, f"exit {done.returncode}, expected {code}",
          done.stdout, done.stderr)


def same(done):
    path = done.stdout.strip()
    if done.returncode != 0:
        return False
    with open(path, "rb") as file:
        return file.read() == content


def main():
    if shutil.which("openssl") is None:
        print("skipped: no openssl")
        return 77
    authority, other = Authority(scratch.name), Authority(scratch.name, "other")
    hub = Hub(tls=authority.server())
    hub.repo("o/m", {"m-Q8_0.gguf": content})
    done = pull(hub)
    if "without libcurl" in done.stderr:
        print("skipped: this weir was built without libcurl")
        return 77
    expect("an authority that nobody knows", done, 1, "cannot be verified", "certificate", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    check("  which is asked nothing, and once only", hub.requests() == [] and hub.n_connections == 1, hub.requests(), hub.n_connections)
    for variable, value in zip(VARIABLES, (authority.file, authority.file, authority.folder)):
        done = pull(hub, **{variable: value})
        check(variable + " names it", same(done), done)
    check("all of it over https, from hub and store", {role for role, _, _ in hub.requests()} == {"hub", "store"}, hub.requests())
    check("CURL_CA_BUNDLE is heard first", same(pull(hub, CURL_CA_BUNDLE=authority.file, SSL_CERT_FILE=other.file)))
    expect("also where it is the wrong one", pull(hub, CURL_CA_BUNDLE=other.file, SSL_CERT_FILE=authority.file), 1, "cannot be verified")
    expect("another authority", pull(hub, SSL_CERT_FILE=other.file), 1, "cannot be verified")
    expect("a file that is not there", pull(hub, SSL_CERT_FILE=os.path.join(scratch.name, "none.pem")), 1, "cannot be verified")
    check("empty variables are none", same(pull(hub, CURL_CA_BUNDLE="", SSL_CERT_FILE=authority.file)))
    hub.repo("o/gated", {"m-Q8_0.gguf": content}, gated=True)
    check("a token", same(pull(hub, name="hf:o/gated", SSL_CERT_FILE=authority.file, HF_TOKEN="good")))
    sent = [(role, "Authorization" in headers) for role, path, headers in hub.requests() if "o/gated" in path]
    check("  goes to the hub alone", set(sent) == {("hub", True), ("store", False)}, sent)
    plain = Hub()
    hub.repo("o/weak", {"m-Q8_0.gguf": content}, redirect=plain.store_url)
    expect("https does not become http", pull(hub, name="hf:o/weak", SSL_CERT_FILE=authority.file), 1, "from https to something else")
    check("  of which the other side hears nothing", plain.requests() == [], plain.requests())
    elsewhere = Hub(tls=authority.server("DNS:elsewhere.example"))
    elsewhere.repo("o/m", {"m-Q8_0.gguf": content})
    expect("a certificate for another name", pull(elsewhere, SSL_CERT_FILE=authority.file), 1, "cannot be verified")
    for one in (hub, plain, elsewhere):
        one.close()
    finish()


sys.exit(main())
