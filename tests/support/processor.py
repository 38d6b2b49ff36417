# SPDX-License-Identifier: Apache-2.0
"""The processor time of another process."""
import time


class Process:
    """Seconds of all its threads, those that have ended included."""

    def __init__(self, pid):
        self.clock = ~pid << 3 | 2  # as clock_getcpuclockid has it

    def used(self):
        return time.clock_gettime(self.clock)

    def settle(self, rest=0.15):
        """The time used once the process does next to nothing for `rest` seconds."""
        before = self.used()
        while True:
            time.sleep(rest)
            now = self.used()
            if now - before < 0.1 * rest:
                return now
            before = now
