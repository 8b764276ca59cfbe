# The service with its worker, MCP server, policies, hosted models and spans. The store is in the volume /data.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
# System libraries that the slim image lacks: for the policy engine and the local model.
RUN apt-get update && apt-get install -y --no-install-recommends libatomic1 libgomp1 && rm -rf /var/lib/apt/lists/*
ARG EXTRAS=age,litellm,mcp,otel,postgres,qdrant,rego,worker
# The same versions as in the tests.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=requirements.lock,target=/requirements.lock \
    pip install --no-cache-dir --constraint /requirements.lock "$(echo /wheels/*.whl)[${EXTRAS}]"
RUN useradd --system --uid 10001 --home-dir /data contexture && install -d -m 0700 -o contexture /data
USER contexture
WORKDIR /data
VOLUME /data
ENV CONTEXTURE_HOME=/data/store CONTEXTURE_HOST=0.0.0.0 PYTHONUNBUFFERED=1
EXPOSE 8420
# The service listens beyond this container only once there is a key: contexture keys add NAME
HEALTHCHECK --start-period=60s --interval=15s --timeout=5s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8420/ready', timeout=4)"]
ENTRYPOINT ["contexture"]
CMD ["serve"]
