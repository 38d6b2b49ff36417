# SPDX-License-Identifier: Apache-2.0
"""A network for one test: its own namespace, in which the loopback interface has addresses that are not loopback's."""
import ctypes
import fcntl
import os
import socket
import struct

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SET_ADDRESS, SET_FLAGS = 0x8916, 0x8914  # SIOCSIFADDR, SIOCSIFFLAGS
UP, RUNNING = 0x1, 0x40
libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags):
    if libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def enter(addresses):
    """For the calling process, which has one thread, and its children from now on. OSError: it may not."""
    user, group = os.getuid(), os.getgid()
    try:
        unshare(NEW_NETWORK)
    except PermissionError:
        unshare(NEW_USER | NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
    with socket.socket() as s:
        fcntl.ioctl(s, SET_FLAGS, struct.pack("16sh14x", b"lo", UP | RUNNING))
        for i, address in enumerate(addresses):
            fcntl.ioctl(s, SET_ADDRESS, struct.pack("16sHH4s8x", f"lo:{i + 1}".encode(), socket.AF_INET, 0, socket.inet_aton(address)))
