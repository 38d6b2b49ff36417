#!/usr/bin/env python3
"""docs_site.py PAGES CONFIG: writes the input of MkDocs.

Copies the files of the repository that pages link to into PAGES, at the same places, so that every link works
as it does in the repository, and writes CONFIG, whose navigation is that of docs/README.md: its headings and
the pages in their tables.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def links(page):
    """The files that a page links to, below the repository's root."""
    for match in LINK.finditer((ROOT / page).read_text()):
        target = match.group(1) or match.group(3)
        if "://" not in target:
            yield Path(os.path.normpath(Path(page).parent / target))


def reachable(first):
    found, left = set(), [Path(first)]
    while left:
        page = left.pop()
        if page in found:
            continue
        found.add(page)
        if page.suffix == ".md":
            left += links(page)
    return found


def title(page):
    return re.search(r"^# (.+)$", (ROOT / page).read_text(), re.MULTILINE).group(1).replace("`", "")


def entries(pages):
    return [{title(page): page} for page in pages]


def navigation():
    """[{heading: [{title: page}]}], from docs/README.md."""
    nav = [{"weir": "README.md"}]
    text = (ROOT / "docs" / "README.md").read_text()
    for heading, body in re.findall(r"^###? (.+)\n((?:(?!^##).*\n)*)", text, re.MULTILINE):
        targets = (os.path.normpath(Path("docs") / (m.group(1) or m.group(3))) for m in LINK.finditer(body))
        nav.append({heading: entries(target for target in dict.fromkeys(targets) if target.endswith(".md"))})
    results = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "bench" / "results").glob("*.md"))
    nav.append({"Measurements": entries(results)})
    nav += [{"Changes": "CHANGELOG.md"}, {"Reference of the C API": "reference/index.html"}]
    return nav


def main():
    pages, config = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(pages, ignore_errors=True)
    tracked = set(subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n"))
    for file in sorted(reachable("README.md") | {Path("bench/results")}):
        names = [name for name in tracked if name == str(file) or name.startswith(f"{file}/")]
        for name in names:
            (pages / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, pages / name)
            if name.endswith(".md"):  # MkDocs takes one word behind a fence; others are for the tests
                text = (pages / name).read_text()
                (pages / name).write_text(re.sub(r"^(```\w+) .*$", r"\1", text, flags=re.MULTILINE))
    (pages / "site.css").write_text(".rst-content .wy-table-responsive table td { white-space: normal; }\n")
    config.write_text(json.dumps({
        "site_name": "weir",
        "docs_dir": str(pages.resolve()),
        "site_dir": str((config.parent / "site").resolve()),
        "use_directory_urls": False,
        "theme": {"name": "readthedocs", "highlightjs": False},
        "extra_css": ["site.css"],
        "validation": {"anchors": "warn"},
        "markdown_extensions": ["tables", "fenced_code"],
        "nav": navigation(),
    }, indent=1))


main()
