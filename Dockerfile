# weir serve in an image: docker build -t weir . && docker run -p 8080:8080 -v /models:/models weir -m /models/model.gguf
# SPDX-License-Identifier: Apache-2.0
FROM debian:bookworm-slim AS build
WORKDIR /weir
COPY . .
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && scripts/deps.sh run && scripts/build.sh release weir_cli

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates libcurl4 libedit2 libflac12 libjansson4 libjpeg62-turbo libmpg123-0 libncursesw6 libpng16-16 libssl3 libstdc++6 \
    libtinfo6 libwebp7 && rm -rf /var/lib/apt/lists/* && useradd -m weir
COPY --from=build /weir/build/release/weir /usr/local/bin/weir
COPY --from=build /weir/build/release/licenses/LICENSES.txt /usr/local/share/doc/weir/LICENSES.txt
USER weir
EXPOSE 8080
HEALTHCHECK --start-period=120s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["/usr/local/bin/weir", "serve", "--host", "0.0.0.0"]
