"""The worker that `sluice launch` starts where the worker is a process of somebody else (``_private.py``): its stand-in."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as worker:
    worker.connect(os.path.join(sys.argv[1], os.environ["SLUICE_RANK"]))
    variables = {name: value for name, value in os.environ.items() if name.startswith("SLUICE_")}
    worker.sendall((json.dumps(variables) + "\n").encode())
    try:
        left = worker.recv(1)
    except ConnectionError:
        left = b""
    # Nobody starts the worker again, so its job cannot go on without it. The folder is rank 0's, and gone with it.
    if not left and os.path.isdir(sys.argv[1]):
        open(os.path.join(sys.argv[1], "lost"), "w").close()
