# Homebrew's formula, for a tap: `brew install --build-from-source ./weir.rb` or `brew install --HEAD weir`.
# SPDX-License-Identifier: Apache-2.0
class Weir < Formula
  desc "Streaming inference engine on llama.cpp"
  homepage "https://example.org/weir" # where the sources are published
  license "Apache-2.0"
  head "https://example.org/weir.git", branch: "main"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "node" => :build
  depends_on "pkgconf" => :build
  depends_on "flac"
  depends_on "jansson"
  depends_on "jpeg-turbo"
  depends_on "libpng"
  depends_on "llhttp"
  depends_on "mpg123"
  depends_on "openssl@3"
  depends_on "webp"

  uses_from_macos "python" => :build
  uses_from_macos "curl"
  uses_from_macos "libedit"
  uses_from_macos "ncurses"

  # weir is built from llama.cpp's sources, which it would fetch by itself where a build may.
  resource "llama.cpp" do
    url "https://github.com/ggml-org/llama.cpp.git", tag: "v0.5.0"
  end

  def install
    # The pinned sources where the build looks for them, so that it patches them.
    resource("llama.cpp").stage(buildpath/"cache/weir/llama/src-fd570ef54b10")
    ENV["XDG_CACHE_HOME"] = buildpath/"cache"
    ENV["PREFIX"] = prefix
    system "scripts/install.sh"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/weir version") unless build.head?
    assert_match(/\S/, shell_output("#{bin}/weir run -m fake: -p Hello -n 8 --ignore-eos -q"))
    (testpath/"test.c").write <<~C
      #include <weir/weir.h>
      int main(void) { return weir_version()[0] == 0; }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-lweir", "-o", "test"
    system "./test"
  end
end
