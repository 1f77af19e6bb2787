"""What every server of riskad shares: where it listens, and what it lets no request do.

| file | knows |
|---|---|
| `binding` | where a server listens, by which names it is called, and when that needs TLS |
| `guarding` | headers of requests and answers, secrets, refusals |
| `listening` | the web server itself, which waits for no slow client; it alone imports uvicorn |
"""

from riskad._lazy import lazy_modules

__getattr__, __dir__ = lazy_modules(__name__, __path__)
