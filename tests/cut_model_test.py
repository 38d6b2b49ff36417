"""A model's file that becomes shorter while weir computes with it: the program ends with a message, and not by a signal without one."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, results  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
need_server(WEIR)

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.gguf")
    shutil.copy(os.environ["WEIR_TEST_MODEL"], path)
    server = Server(WEIR, "-np", "1", "-c", "512", model=path, patience=180)
    ask = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
    check("it answers", server.post("/v1/completions", ask).status == 200)
    os.truncate(path, 4096)
    try:
        status = server.post("/v1/completions", dict(ask, prompt="Quite another text, of words that were not asked for: zebra, xylophone, quartz.")).status
    except (OSError, ConnectionError):
        status = None
    code = server.wait()
    said = [e["message"] for e in server.lines if e["event"] == "text"]
    check("then it ends, with a status of its own", status is None and code == 1, status, code)
    check("and one line that names the file", len(said) == 1 and path in said[0] and "shorter" in said[0] and said[0].endswith("\n"), server.lines[-3:])

print(f"{results['passed']} passed, {results['failed']} failed")
sys.exit(results["failed"] > 0)
