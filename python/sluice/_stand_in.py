"""What `sluice launch` takes for its worker when the worker is the process that has started the launcher (``_private.py``)."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as worker:
    worker.connect(sys.argv[1])
    variables = {name: value for name, value in os.environ.items() if name.startswith("SLUICE_")}
    worker.sendall((json.dumps(variables) + "\n").encode())
    # Ends with the worker.
    while worker.recv(1):
        pass
