# A model behind HTTP. docs/howto/serve.md says how to build and run this.
FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN python -m venv /opt/riskad && /opt/riskad/bin/pip install --no-cache-dir -c constraints.txt '.[app]'

FROM python:3.11-slim
COPY --from=build /opt/riskad /opt/riskad
ENV PATH="/opt/riskad/bin:$PATH"
USER 10001:10001
EXPOSE 8000
HEALTHCHECK CMD ["python", "-I", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["riskad", "serve"]
CMD ["/models/model.riskad", "--host", "0.0.0.0", "--insecure", "--name", "localhost", "--name", "127.0.0.1"]
