"""A server of S3 on loopback, by moto, which has an environment of its own.

`nox -s spark` makes it, and RISKAD_MOTO names its server.
"""

import os
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

from support import PATIENCE

MOTO = os.environ.get("RISKAD_MOTO")
KEY, SECRET = "AKIAQ7RISKADKEY42", "wJalrXUtnFEMIq7riskadSECRET"


@contextmanager
def s3_server():
    """Give the settings of a process that reaches a server with an empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}", subprocess.DEVNULL
    command = [MOTO, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=log, stderr=log) as server:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT"))
                break
            except OSError:
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.1)
        try:
            yield {
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_ENDPOINT_URL": address,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        finally:
            server.terminate()
