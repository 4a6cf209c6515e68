# SPDX-License-Identifier: Apache-2.0
# An image with Tessera as a wheel: `docker build -t tessera .`, then `docker run --rm -v $PWD:/models tessera run
# model.onnx --random-inputs 1`. The first stage builds the wheel as `./dev` would; the second has Python and the wheel.
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git
COPY . /tessera
WORKDIR /tessera
RUN ./dev setup && .venv/bin/pip wheel --no-deps --wheel-dir /wheel .

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheel /wheel
RUN python3 -m venv /opt/tessera && /opt/tessera/bin/pip install --no-cache-dir /wheel/*.whl && rm -r /wheel
ENV PATH=/opt/tessera/bin:$PATH
WORKDIR /models
ENTRYPOINT ["tessera"]
CMD ["doctor"]
