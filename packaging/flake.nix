# Nix: nix run 'git+file:///path/to/weir?dir=packaging' -- run -p "Why is the sky blue?"
# SPDX-License-Identifier: Apache-2.0
{
  description = "Streaming inference engine on llama.cpp";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    llama-cpp = {
      url = "github:ggml-org/llama.cpp/v0.5.0";
      flake = false;
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      llama-cpp,
    }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.stdenv.mkDerivation {
          pname = "weir";
          version = "0.1.0";
          src = ./..;

          nativeBuildInputs = with pkgs; [
            cmake
            git
            ninja
            pkg-config
            python3
          ];
          buildInputs = with pkgs; [
            curl
            flac
            jansson
            libedit
            libjpeg
            libpng
            libwebp
            llhttp
            mpg123
            ncurses
            openssl
          ];

          # weir's scripts call CMake. They find the pinned sources where they would have put them, and fetch nothing; without npm the
          # server's page shows answers as plain text.
          dontUseCmakeConfigure = true;
          postPatch = "patchShebangs scripts";
          preBuild = ''
            export XDG_CACHE_HOME=$PWD/.cache
            mkdir -p $XDG_CACHE_HOME/weir/llama
            cp -r --no-preserve=mode ${llama-cpp} $XDG_CACHE_HOME/weir/llama/src-fd570ef54b10
          '';
          buildPhase = ''
            runHook preBuild
            scripts/build.sh release weir_install
            runHook postBuild
          '';
          installPhase = ''
            runHook preInstall
            PREFIX=$out scripts/install.sh
            runHook postInstall
          '';

          meta = {
            description = "Streaming inference engine on llama.cpp";
            homepage = "https://example.org/weir";
            license = pkgs.lib.licenses.asl20;
            mainProgram = "weir";
          };
        };
      });
    };
}
