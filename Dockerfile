# weir serve in an image: docker build -t weir . && docker run -p 8080:8080 -v /models:/models weir -m /models/model.gguf
# Port, keys and TLS as variables (-e WEIR_PORT=9000), since the health check reads them, too. Downloads: -v weir-cache:/var/cache/weir.
# SPDX-License-Identifier: Apache-2.0
FROM debian:bookworm-slim AS build
WORKDIR /weir
# What is fetched, and llama.cpp, come first, so that a change of weir's sources does not fetch and build them again.
COPY scripts/deps.sh scripts/lib.sh scripts/llhttp.sh scripts/page_libs.sh scripts/
COPY scripts/llama.sh scripts/llama*.patch scripts/llama_targets.cmake scripts/mtmd_checked.py scripts/
COPY src/llama/tensor.h src/llama/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && scripts/deps.sh run && \
    scripts/llhttp.sh && scripts/page_libs.sh && scripts/llama.sh --media
COPY . .
RUN scripts/build.sh release weir_cli weir_bench

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates curl libcurl4 libedit2 libflac12 libjansson4 libjpeg62-turbo libmpg123-0 libncursesw6 libpng16-16 libssl3 libstdc++6 \
    libtinfo6 libwebp7 && rm -rf /var/lib/apt/lists/* && useradd -m weir && install -d -o weir -g weir /var/cache/weir
COPY --from=build /weir/build/release/weir /usr/local/bin/weir
COPY --from=build /weir/build/release/weir-bench /usr/local/libexec/weir/weir-bench
COPY --from=build /weir/build/release/licenses/LICENSES.txt /usr/local/share/doc/weir/LICENSES.txt
ENV XDG_CACHE_HOME=/var/cache/weir
VOLUME /var/cache/weir
USER weir
EXPOSE 8080
HEALTHCHECK --start-period=120s CMD ["sh", "-c", "curl -fsSk -m 20 --noproxy '*' ${WEIR_API_KEY:+-H \"Authorization: Bearer $WEIR_API_KEY\"} http${WEIR_TLS_CERT:+s}://127.0.0.1:${WEIR_PORT:-8080}/health"]
ENTRYPOINT ["/usr/local/bin/weir", "serve", "--host", "0.0.0.0"]
