"""Requests sent straight into a web application, without a server."""


async def request(app, scope, chunks):
    """Send a request whose body comes in these chunks: status, headers and body of the answer."""
    chunks, told = list(chunks), []

    async def receive():
        body = chunks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(chunks)}

    async def send(message):
        told.append(message)

    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in told[0]["headers"]}
    return told[0]["status"], head, b"".join(message.get("body", b"") for message in told[1:])


def scope_of(method, path, headers):
    """What a server says of a request; headers without a value are left out."""
    path, _, query = path.partition("?")
    raw = [(n.encode(), v.encode("latin-1")) for n, v in headers.items() if v is not None]
    return {
        **{"type": "http", "http_version": "1.1", "scheme": "http", "method": method},
        **{"path": path, "raw_path": path.encode(), "query_string": query.encode()},
        **{"headers": raw, "root_path": "", "server": ("127.0.0.1", 4711)},
        "client": ("127.0.0.1", 1),
    }
