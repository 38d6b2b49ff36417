"""A model's file that becomes shorter during a pass: the program ends with a message, and not by a signal without one.
models_faults_test.py has a file that becomes shorter between passes, which is noticed."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
need_server(WEIR)



def cut(path):
    """Cuts the file in the middle of a pass. The exit code, what the program said, and the log; None: the pass had not begun, and the cut was noticed."""
    shutil.copy(os.environ["WEIR_TEST_MODEL"], path)
    # llama.cpp's kernels read all weights where the file is mapped.
    server = Server(WEIR, "-np", "1", "-c", "2048", model=path, env=environment(WEIR_KERNELS="off"))
    connection = server.connect()
    connection.request("POST", "/v1/completions", {"prompt": "zebra xylophone quartz " * 200, "max_tokens": 1})
    server.wait_for(lambda metrics: metrics["weir_slots_prefilling"] == 1)
    server.process.send_signal(signal.SIGSTOP)
    os.truncate(path, 4096)
    server.process.send_signal(signal.SIGCONT)
    try:
        status = connection.head()[0]
    except OSError:
        return server.wait(), [e["message"] for e in server.lines if e["event"] == "text"], server.lines
    check("or it is noticed", status == 503, status)
    server.stop()
    return None


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.gguf")
    ended = None
    for _ in range(5):
        ended = ended or cut(path)
    code, said, lines = ended or (None, [], [])
    check("it ends, with a status of its own", code == 1, code)
    check("and one line that names the file", len(said) == 1 and path in said[0] and "shorter" in said[0] and said[0].endswith("\n"), lines[-3:])

finish()
