# SPDX-License-Identifier: Apache-2.0
"""Threads of a process that stand still for as long as a test wants, by ptrace(2)."""
import ctypes
import errno
import os

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
ALL = 0x40000000  # __WALL: children that are threads
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def threads(pid, name):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as f:
            if f.read().strip() == name:
                found.append(int(task))
    return found


def trace(request, thread):
    if libc.ptrace(request, thread, None, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Held:
    """These threads of a child stand still until they are released, by the thread of the test that holds them."""

    def __init__(self, pid, name):
        self.threads = []
        try:
            for thread in threads(pid, name):
                trace(SEIZE, thread)
                self.threads.append(thread)
                trace(INTERRUPT, thread)
                os.waitpid(thread, ALL)
        except OSError:
            self.release()
            raise

    def release(self):
        for thread in self.threads:
            trace(DETACH, thread)
        self.threads = []


def may_hold(pid, name):
    """Whether this system lets a test do that."""
    try:
        Held(pid, name).release()
    except OSError as e:
        if e.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            return False
        raise
    return True
