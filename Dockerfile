# weir serve in an image: docker build -t weir . && docker run -p 8080:8080 -v /models:/models weir -m /models/model.gguf
# SPDX-License-Identifier: Apache-2.0
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates cmake curl g++ gcc git libcurl4-openssl-dev libjansson-dev libwebsockets-dev make ninja-build npm \
    patch pkg-config python3 python3-pip && rm -rf /var/lib/apt/lists/*
WORKDIR /weir
COPY . .
RUN scripts/build.sh release weir_cli

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates libcurl4 libjansson4 libstdc++6 libwebsockets17 && rm -rf /var/lib/apt/lists/* && useradd -m weir
COPY --from=build /weir/build/release/weir /usr/local/bin/weir
USER weir
EXPOSE 8080
HEALTHCHECK --start-period=120s CMD ["/usr/local/bin/weir", "version"]
ENTRYPOINT ["/usr/local/bin/weir", "serve", "--host", "0.0.0.0"]
