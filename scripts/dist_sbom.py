#!/usr/bin/env python3
"""dist_sbom.py VERSION SECONDS FOLDER: what is inside a release, as SPDX 2.3 in JSON, on stdout.

Licenses are those of THIRD_PARTY.md, versions those of the scripts that pin them. The archives in FOLDER are its files, with their hashes.
"""
# SPDX-License-Identifier: Apache-2.0
import datetime
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def tables():
    """The rows of THIRD_PARTY.md's tables: [first cell, license, ...]"""
    for line in (ROOT / "THIRD_PARTY.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] != "Part" and not cells[0].startswith("---"):
            yield cells


def licenses():
    """part: license. A cell is "MIT", or "MIT; entities BSD-2-Clause" for a row of several parts."""
    known = {}
    for names, cell, *_others in tables():
        usual, *others = cell.split("; ")
        parts = re.split(r", | with | and |; on ARM also ", names)
        for part in parts:
            known[part] = usual
        for other in others:
            part, license = other.rsplit(" ", 1)
            if part not in known:
                sys.exit(f"THIRD_PARTY.md: {part} has a license and no row")
            known[part] = license
    return known


def value(script, name):
    found = re.search(rf"(?:^|\s){name}=(\S+)", (ROOT / "scripts" / script).read_text())
    if found is None:
        sys.exit(f"scripts/{script} has no {name}=")
    return found.group(1)


def parts():
    """(name, version, download location, SHA-256 of what is downloaded or None)"""
    tag = value("llama.sh", "upstream_tag")
    yield "llama.cpp", tag, f"git+https://github.com/ggml-org/llama.cpp@{tag}", None
    yield "ggml", tag, f"git+https://github.com/ggml-org/llama.cpp@{tag}", None
    for name in ("nlohmann/json", "llamafile's sgemm", "YaRN", "ggllm.cpp", "Arm Optimized Routines", "OpenVINO", "Pillow"):
        yield name, f"in llama.cpp {tag}", f"git+https://github.com/ggml-org/llama.cpp@{tag}", None
    package = value("llhttp.sh", "package")
    yield "llhttp", f"in {package}", "pkg:pypi/" + package.replace("==", "@"), value("llhttp.sh", "sha256")
    pins = re.search(r"packages='\n(.*?)'", (ROOT / "scripts/page_libs.sh").read_text(), re.DOTALL)
    for line in pins.group(1).splitlines():
        name, npm, sha256 = line.split()[:3]
        full = {"highlight": "highlight.js", "katex": "KaTeX"}.get(name, name)
        yield full, npm.rsplit("@", 1)[1], "pkg:npm/" + npm, sha256


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name)


def package(name, version, license, location, sha256=None):
    entry = {
        "SPDXID": spdx_id(name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION" if location.startswith("pkg:") else location,
        "filesAnalyzed": False,
        "licenseConcluded": license,
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "supplier": "NOASSERTION",
    }
    if sha256:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256}]
    if location.startswith("pkg:"):
        locator = location.replace("pkg:npm/@", "pkg:npm/%40")
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]
    return entry


def main():
    version, seconds, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    known = licenses()
    packages = [package("weir", version, "Apache-2.0", "NOASSERTION")]
    for name, its_version, location, sha256 in parts():
        if name not in known:
            sys.exit(f"THIRD_PARTY.md has no row for {name}")
        packages.append(package(name, its_version, known[name], location, sha256))
    unlisted = known.keys() - {entry["name"] for entry in packages}
    if unlisted:
        sys.exit(f"scripts/dist_sbom.py does not list {', '.join(sorted(unlisted))} of THIRD_PARTY.md")
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-weir"}]
    for entry in packages[1:]:
        relations.append({"spdxElementId": "SPDXRef-weir", "relationshipType": "CONTAINS", "relatedSpdxElement": entry["SPDXID"]})
    files = []
    for path in sorted(folder.glob("weir-*.tar.gz")):
        data = path.read_bytes()
        files.append({
            "SPDXID": spdx_id("file-" + path.name),
            "fileName": "./" + path.name,
            "checksums": [{"algorithm": name, "checksumValue": hashlib.new(name.lower(), data).hexdigest()} for name in ("SHA1", "SHA256")],
            "licenseConcluded": "NOASSERTION",
            "copyrightText": "NOASSERTION",
        })
        relations.append({"spdxElementId": files[-1]["SPDXID"], "relationshipType": "GENERATED_FROM", "relatedSpdxElement": "SPDXRef-weir"})
    contents = json.dumps([packages, files], sort_keys=True).encode()
    json.dump({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"weir-{version}",
        "documentNamespace": f"https://example.org/weir/spdx/{version}/{hashlib.sha256(contents).hexdigest()}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: weir-dist_sbom.py"],
        },
        "packages": packages,
        "files": files,
        "relationships": relations,
    }, sys.stdout, indent=1)
    print()


main()
