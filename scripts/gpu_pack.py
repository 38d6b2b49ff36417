#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folder that travels to a machine without network, where scripts/gpu.sh prove builds weir and measures it.

usage: gpu_pack.py pack FOLDER MODEL LLHTTP SOURCE... | unpack FOLDER PROOF

pack writes FOLDER/pack and the default model in parts, FOLDER/model-1 and so on. SOURCE is llama.cpp's pin as scripts/llama.sh keeps
it, and its patched copies. The development files of weir's libraries come from the Debian packages that scripts/deps.sh names,
with all that they depend on but the C library's, which the other machine has. unpack lays out PROOF/cache (as ~/.cache/weir),
PROOF/system (include, lib, bin) and PROOF/models. It needs nothing but Python."""
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LARGEST = 50_000_000  # bytes of the pack, and of a part of the model
# What a build and the tests read of llama.cpp, its notices included, and a vocabulary of 128,256 tokens.
BUILT = ("include", "src", "ggml", "common", "vendor", "cmake", "tools", "licenses", "models/templates", "scripts/ui-assets.cmake", "CMakeLists.txt",
         "LICENSE", "AUTHORS")
VOCABULARY = "models/ggml-vocab-llama-bpe.gguf"
# Backends of ggml that no step here builds.
UNUSED = re.compile(r"ggml/src/ggml-(cann|et|hexagon|metal|musa|opencl|openvino|sycl|virtgpu|webgpu|zdnn|zendnn)/")
# The other machine's compiler has these, and a second C library beside its own would be found first.
ITS_OWN = re.compile(r"(libc6|libc-|libcrypt1|libcrypt-|linux-libc|libgcc|libstdc|gcc-|rpcsvc|libtirpc|libnsl|perl|libperl|debconf|dpkg|libdpkg|tar$)")


# ---- Debian's packages ------------------------------------------------------------------------------------

def wanted_packages():
    text = (ROOT / "scripts/deps.sh").read_text(encoding="utf-8")
    names = re.findall(r"^ *library (\S+)", text, re.M)
    return sorted(set(names) - {"libzmq3-dev"}) + ["pkgconf"]


def download(folder):
    """The wanted packages and all that they depend on, as for a system that has none."""
    status = folder / "status"
    status.touch()
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    words = ["-o", "APT::Sandbox::User=root", "-o", f"Dir::State::status={status}", "-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1"]
    subprocess.run(["apt-get", "-qq", *words, "-y", "--download-only", "--no-install-recommends", "install", *wanted_packages()],
                   check=True, stdout=sys.stderr)
    return sorted(path for path in archives.glob("*.deb") if not ITS_OWN.match(path.name))


def place(name):
    """Where a file of a package lies in the pack's system; None: it is not needed."""
    parts = pathlib.PurePosixPath(name).parts
    parts = parts[1:] if parts[:1] == (".",) else parts
    if parts[:2] == ("usr", "include"):
        rest = [part for part in parts[2:] if not part.endswith("-linux-gnu")]
        return "/".join(["include", *rest])
    if parts[:1] == ("usr",):
        parts = parts[1:]
    if parts[:1] == ("lib",) and len(parts) > 2 and parts[1].endswith("-linux-gnu"):
        if len(parts) == 3 and re.search(r"\.so(\.|$)", parts[2]):
            return f"lib/{parts[2]}"
        if parts[2] == "pkgconfig" and len(parts) == 4:
            return f"lib/pkgconfig/{parts[3]}"
    if parts[:2] == ("share", "pkgconfig") and len(parts) == 3:
        return f"lib/pkgconfig/{parts[2]}"
    return "bin/pkgconf" if parts == ("bin", "pkgconf") else None


def relocated(text):
    """A .pc file whose folders are those below @SYSTEM@."""
    text = re.sub(r"/[a-z0-9_]+-linux-gnu\b", "", text)
    return re.sub(r"(^|[=:\s]|-[IL])/usr(?=/|\s|$)", r"\1@SYSTEM@", text, flags=re.M)


def add(tar, name, data, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def pack_system(path):
    names = []
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(path, "w:xz") as out:
        for package in download(pathlib.Path(scratch)):
            names.append(package.name)
            listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
            with tarfile.open(fileobj=io.BytesIO(listed)) as files:
                for member in files:
                    where = place(member.name)
                    if where is None or member.isdir():
                        continue
                    if member.issym():
                        link = tarfile.TarInfo(where)  # those of libraries lie in one folder now
                        link.type = tarfile.SYMTYPE
                        link.linkname = os.path.basename(member.linkname) if where.startswith("lib/") else member.linkname
                        out.addfile(link)
                        continue
                    data = files.extractfile(member).read()
                    if where.startswith("lib/pkgconfig/"):
                        data = relocated(data.decode()).encode()
                    add(out, where, data, member.mode & 0o777)
    return names


# ---- llama.cpp --------------------------------------------------------------------------------------------

def built_files(source):
    for top in (*BUILT, VOCABULARY):
        path = source / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(source).as_posix()
            if file.is_file() and not UNUSED.match(name):
                yield name


def pack_llama(path, sources):
    """The first source whole; of the others, the files that differ. Names are those of the cache: llama/SOURCE/FILE."""
    first = pathlib.Path(sources[0])
    with tarfile.open(path, "w:xz") as out:
        whole = {}
        for name in built_files(first):
            whole[name] = (first / name).read_bytes()
            add(out, f"{first.name}/{name}", whole[name], (first / name).stat().st_mode & 0o777)
        for source in map(pathlib.Path, sources[1:]):
            for name in built_files(source):
                data = (source / name).read_bytes()
                if whole.get(name) != data:
                    add(out, f"{source.name}/{name}", data, (source / name).stat().st_mode & 0o777)


def pack_folder(path, folder, name):
    with tarfile.open(path, "w:xz") as out:
        out.add(folder, name)


# ---- The two commands -------------------------------------------------------------------------------------

def tell(folder):
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"weir: {folder}: {size / 1e6:.1f} MB", file=sys.stderr)
    if size > LARGEST:
        sys.exit(f"weir: {folder} has more than {LARGEST / 1e6:.0f} MB, which is what may travel at once")


def pack(folder, sources, llhttp, model):
    target = folder / "pack"
    shutil.rmtree(folder, ignore_errors=True)
    target.mkdir(parents=True)
    packages = pack_system(target / "system.tar.xz")
    pack_llama(target / "llama.tar.xz", sources)
    pack_folder(target / "llhttp.tar.xz", llhttp, pathlib.Path(llhttp).name)
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(target.iterdir()))).hexdigest()
    (target / "index.json").write_text(json.dumps({"digest": digest, "sources": [pathlib.Path(s).name for s in sources], "packages": packages}, indent=1))
    tell(target)
    data = pathlib.Path(model).read_bytes()
    parts = -(-len(data) // (LARGEST - 100_000))
    step = -(-len(data) // parts)
    for i in range(parts):
        part = folder / f"model-{i + 1}"
        part.mkdir()
        (part / pathlib.Path(model).name).write_bytes(data[i * step:(i + 1) * step])
        (part / "index.json").write_text(json.dumps({"parts": parts, "sha256": hashlib.sha256(data).hexdigest()}))
        tell(part)


def extract(path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path) as tar:
        tar.extractall(folder)


def unpack_system(folder, proof):
    system = proof / "system"
    extract(folder / "pack/system.tar.xz", system)
    for file in (system / "lib/pkgconfig").iterdir():
        if file.is_file() and not file.is_symlink():
            file.write_text(file.read_text().replace("@SYSTEM@", str(system)))
    tool = system / "bin/pkg-config"
    tool.write_text(f'#!/bin/sh\nPKG_CONFIG_LIBDIR={system}/lib/pkgconfig LD_LIBRARY_PATH={system}/lib exec {system}/bin/pkgconf "$@"\n')
    tool.chmod(0o755)


def unpack_model(folder, proof):
    """True once all parts are there and are the file that was packed."""
    parts = sorted(folder.glob("model-*"), key=lambda part: int(part.name[6:]))
    if not parts:
        return False
    index = json.loads((parts[0] / "index.json").read_text())
    name = next(file.name for file in parts[0].iterdir() if file.suffix == ".gguf")
    target = proof / "models" / name
    if target.exists():
        return True
    if len(parts) < index["parts"]:
        return False
    data = b"".join((part / name).read_bytes() for part in parts)
    if hashlib.sha256(data).hexdigest() != index["sha256"]:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = target.with_suffix(".new")
    whole.write_bytes(data)
    whole.rename(target)
    return True


def unpack_objects(folder, proof):
    """The objects of the GPU's backend that came back from a machine before."""
    for path in sorted((folder / "objects").glob("objects-*.tar.xz")):
        stamp = proof / f"unpacked-{path.name}"
        if not stamp.exists():
            extract(path, proof / "objects")
            stamp.touch()


def unpack(folder, proof):
    index = json.loads((folder / "pack/index.json").read_text())
    stamp = proof / "unpacked"
    if not stamp.exists() or stamp.read_text() != index["digest"]:
        llama = proof / "cache/weir/llama"
        for old in (llama, proof / "backend", proof / "objects"):
            shutil.rmtree(old, ignore_errors=True)
        for old in proof.glob("unpacked-*"):
            old.unlink()
        extract(folder / "pack/llama.tar.xz", llama)
        first, *others = index["sources"]
        for name in others:
            (llama / name).rename(llama / "changed")
            shutil.copytree(llama / first, llama / name)
            shutil.copytree(llama / "changed", llama / name, dirs_exist_ok=True)
            shutil.rmtree(llama / "changed")
        extract(folder / "pack/llhttp.tar.xz", proof / "cache/weir/llhttp")
        unpack_system(folder, proof)
        stamp.write_text(index["digest"])
    unpack_objects(folder, proof)
    return unpack_model(folder, proof)


def refuse_a_space():
    if re.search(r"\s", str(ROOT)):
        sys.exit(f"weir: the path of this tree, {ROOT}, has a space, which flags for compilers cannot have; move the tree")


def main():
    refuse_a_space()
    what, folder, *words = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    if what == "pack":
        model, llhttp, *sources = words
        pack(folder, sources, llhttp, model)
    else:
        print("the default model is there" if unpack(folder, pathlib.Path(words[0]).resolve()) else "without the default model")


if __name__ == "__main__":
    main()
