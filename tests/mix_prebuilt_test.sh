#!/usr/bin/env bash
# The Elixir package as Hex has it, in an application on a machine without a C compiler: mix takes the native part from an archive, by its
# checksum. It refuses an archive with another one; without an archive it builds, or says what is missing. A file server on loopback has them.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$WEIR_SOURCE_DIR"
. scripts/lib.sh

library=$WEIR_BUILD_DIR/elixir/c_src/weir_nif.so
have mix || { echo "no mix"; exit 77; }
[ -f "$library" ] && [ -z "${WEIR_SANITIZED:-}" ] || { echo "no native part for a plain VM in this build"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
passed=0
ok() { passed=$((passed + 1)); }
version=$(sed -n 's/^  @version "\(.*\)"$/\1/p' elixir/mix.exs)
name=weir-nif-$version-linux-$(uname -m)

# ---- What is published: the archive, and a package with its checksum ----
mkdir -p "$work/published/$name" "$work/package"
cp "$library" "$WEIR_BUILD_DIR/licenses/LICENSES.txt" "$work/published/$name/"
tar -czf "$work/published/$name.tar.gz" -C "$work/published" "$name"
sum=$(sha256 "$work/published/$name.tar.gz")
for file in $(sed -n 's/^ *files: ~w(\(.*\)) ++ checksums()$/\1/p' elixir/mix.exs); do
    cp -r "elixir/$file" "$work/package/"
done
[ -f "$work/package/prebuilt.exs" ] || die "the list of the package's files is not found in mix.exs"
checksum() { printf '%%{"%s.tar.gz" => "sha256:%s"}\n' "$name" "$1" >"$work/package/checksum.exs"; }
checksum "$sum"
python3 -u - "$work" >"$work/port" 2>"$work/requests" <<'PYTHON' &
import functools, http.server, sys

handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1] + "/published")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_address[1])
server.serve_forever()
PYTHON
server=$!
until [ -s "$work/port" ] || ! kill -0 "$server" 2>/dev/null; do sleep 0.05; done
url=http://127.0.0.1:$(cat "$work/port")

# ---- The application, on a PATH without compilers and what drives them ----
mkdir "$work/bin"
tr ':' '\n' <<<"$PATH" | tac | while read -r folder; do
    [ ! -d "$folder" ] || find "$folder/" -mindepth 1 -maxdepth 1 ! -type d -executable -exec ln -sf -t "$work/bin" {} + 2>/dev/null || true
done
find "$work/bin" \( -name '*gcc*' -o -name '*g++*' -o -name '*clang*' -o -name 'c++*' -o -name cc -o -name 'c[89]9*' -o -name '*cpp*' -o -name '*ld' \
    -o -name 'ld.*' -o -name '*-as' -o -name as -o -name '*make' -o -name ninja -o -name ccache -o -name tcc \) ! -name 'erl_child_setup' -delete
mkdir -p "$work/app/lib" "$work/app/test"
cat >"$work/app/mix.exs" <<END
defmodule Try.MixProject do
  use Mix.Project
  def project, do: [app: :try, version: "1.0.0", deps: [{:weir, path: "$work/package"}]]
end
END
echo 'ExUnit.start()' >"$work/app/test/test_helper.exs"
cat >"$work/app/test/try_test.exs" <<'END'
defmodule TryTest do
  use ExUnit.Case
  @moduletag timeout: :infinity

  test "a model answers" do
    {:ok, model} = Weir.load_model("fake:")
    {:ok, text} = Weir.chat(model, [%{role: "user", content: "Name three rivers."}], max_tokens: 8)
    assert is_binary(text) and text != ""
  end
end
END
unset WEIR_BACKEND WEIR_LLAMA_DIR WEIR_LLAMA_FLAGS WEIR_WITH_RPC WEIR_WITH_ROUTER
unset MIX_ENV MIX_BUILD_PATH MIX_TARGET MIX_DEPS_PATH WEIR_DIR WEIR_PRESET LLAMA_BACKEND LLAMA_CMAKE_ARGS WEIR_BUILD
unset CC CXX CMAKE_TOOLCHAIN_FILE
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
in_app() { # in_app COMMAND...: 0, or its status; what it says is in $work/said
    (cd "$folder" && env PATH="$work/bin" LC_ALL=C.UTF-8 XDG_CACHE_HOME="$work/cache" MIX_HOME="$work/mix" WEIR_NIF_URL="$url" "$@") >"$work/said" 2>&1 </dev/null
}
folder=$work/app
says() { grep -qF -- "$1" "$work/said" || die "expected \"$1\" in: $(cat "$work/said")"; }
requests() { grep -c 'GET /weir-nif' "$work/requests" || true; }
! in_app bash -c 'command -v cc || command -v gcc || command -v clang || command -v make || command -v cmake' || die "there is a compiler: $(cat "$work/said")"

in_app sh -c 'mix deps.get && mix test' || die "mix test failed: $(cat "$work/said")"
says "downloading the native part from $url/$name.tar.gz"
says "1 test, 0 failures"
cmp "$library" "$work/app/_build/test/lib/weir/priv/weir_nif.so"
cmp "$WEIR_BUILD_DIR/licenses/LICENSES.txt" "$work/app/_build/test/lib/weir/priv/LICENSES.txt"
ok

# The step alone, in the package's own folder, is quicker.
folder=$work/package
step=(mix compile.weir_nif --force)
taken=_build/dev/lib/weir/priv/weir_nif.so
# Another environment takes it from the cache.
in_app "${step[@]}" || die "it fails: $(cat "$work/said")"
[ "$(requests)" -eq 1 ] && cmp "$library" "$folder/$taken" || die "it was downloaded $(requests) times"
ok
# Nothing to do: it reads neither the cache nor the network.
mv "$work/cache" "$work/away"
in_app mix compile.weir_nif || die "it fails: $(cat "$work/said")"
[ "$(requests)" -eq 1 ] && [ ! -e "$work/cache" ] || die "it was downloaded again"
mv "$work/away" "$work/cache"
ok
# A cached archive that was damaged is downloaded again.
printf x >>"$work/cache/weir/nif/$name.tar.gz"
in_app "${step[@]}" || die "a damaged archive in the cache: $(cat "$work/said")"
[ "$(requests)" -eq 2 ] && [ "$(sha256 "$work/cache/weir/nif/$name.tar.gz")" = "$sum" ] || die "the damaged archive stays"
ok

fails() { # fails SENTENCE COMMAND...
    ! in_app "${@:2}" || die "it should fail with \"$1\": $(cat "$work/said")"
    says "$1"
    ok
}
checksum "$(printf '%064d' 7)"
rm -rf "$work/cache"
fails "it is damaged or not the one that was published, and is not used" "${step[@]}"
[ ! -e "$work/cache/weir/nif/$name.tar.gz" ] || die "the refused archive was kept"
checksum "$sum"
mv "$work/published/$name.tar.gz" "$work/published/gone"
fails "answers 404; to build it, set WEIR_DIR to the folder of weir's C library" "${step[@]}"
fails "weir's C library is not above the Elixir package" env LLAMA_BACKEND=cuda "${step[@]}"
fails "weir's C library is not above the Elixir package" env WEIR_BUILD=1 "${step[@]}"
fails "weir's C library is not above the Elixir package" env CC=gcc "${step[@]}"
fails "weir's C library is not above the Elixir package" env MIX_TARGET=rpi4 "${step[@]}"
fails "the native part of weir cannot be had" env WEIR_NIF_URL="http://user:secret@${url#http://}" "${step[@]}"
! grep -q secret "$work/said" || die "it prints a password: $(cat "$work/said")"
rm "$work/package/checksum.exs"
fails "weir's C library is not above the Elixir package" "${step[@]}"
# With the library's source above it, a download that fails is followed by a build.
checksum "$sum"
rm -rf "$folder/_build"
mkdir -p "$work/source/scripts"
cp -r "$work/package" "$work/source/elixir"
cat >"$work/source/scripts/build.sh" <<END
mkdir -p "$work/source/build/release/elixir/c_src" "$work/source/build/release/licenses"
cp "$library" "$work/source/build/release/elixir/c_src/"
cp "$WEIR_BUILD_DIR/licenses/LICENSES.txt" "$work/source/build/release/licenses/"
END
folder=$work/source/elixir
in_app "${step[@]}" || die "no build after a download that failed: $(cat "$work/said")"
says "answers 404; the native part is built instead"
cmp "$library" "$folder/$taken"
ok
# The next compilation takes that build, and downloads nothing.
before=$(requests)
in_app mix compile.weir_nif || die "it fails: $(cat "$work/said")"
[ "$(requests)" -eq "$before" ] || die "a download that failed is tried again at each compilation"
ok
[[ $(in_app elixir -r "$work/package/prebuilt.exs" -e 'IO.puts(Weir.Prebuilt.url("x-1.0.0-rc.1.tgz", "1.0.0-rc.1"))'; cat "$work/said") == */v1.0.0-rc.1/x-1.0.0-rc.1.tgz ]] ||
    die "the address of a release before 1.0.0: $(cat "$work/said")"
ok
echo "$passed passed, 0 failed"
