"""The versions of the agents, by name: those of pins.txt; a client that is compiled has its own beside its sources."""
# SPDX-License-Identifier: Apache-2.0
import os
import re

here = os.path.dirname(os.path.abspath(__file__))


def version_of(name, kind, package):
    if kind in ("npm", "pip"):
        return re.split("@|==", package)[-1]
    with open(os.path.join(here, os.pardir, "clients", name, "go.mod" if kind == "go" else "Cargo.toml")) as f:
        return re.search(re.escape(package) + r'\D*[ =v"]([0-9][0-9.]*)', f.read())[1]


def versions():
    with open(os.path.join(here, "pins.txt")) as f:
        return {name: version_of(name, kind, package) for name, kind, package, *_ in map(str.split, f)}
