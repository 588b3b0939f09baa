# syntax=docker/dockerfile:1
# Builds the wheel and its pinned dependencies apart, so that the image holds neither a compiler nor the sources.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/recalld
COPY requirements/server.lock requirements/server.lock
RUN /opt/recalld/bin/pip install --no-cache-dir --require-hashes -r requirements/server.lock
COPY pyproject.toml README.md LICENSE ./
COPY pyclient pyclient
COPY service service
RUN /opt/recalld/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM python:3.11-slim
# The home is not the volume: what a library keeps in the home of its user must not lie among the data.
RUN useradd --system --uid 10001 --home-dir /home/recalld --create-home recalld \
    && install -d -o recalld -g recalld /data
COPY --from=build /opt/recalld /opt/recalld
ENV PATH=/opt/recalld/bin:$PATH \
    RECALLD_DATA=/data \
    RECALLD_LISTEN=0.0.0.0:50051 \
    # glibc keeps an arena per thread; two are enough and keep resident memory flat.
    MALLOC_ARENA_MAX=2
USER recalld
VOLUME /data
EXPOSE 50051
# With TLS, override it and add --tls-ca.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
  CMD ["recalld", "health", "--target", "127.0.0.1:50051", "--timeout", "3"]
ENTRYPOINT ["recalld"]
CMD ["serve"]
