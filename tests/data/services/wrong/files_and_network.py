import socket
import subprocess
from pathlib import Path

from trimaran import ClusteredService


class Service(ClusteredService):
    def __init__(self):
        self.path = Path("/tmp/prices")

    def on_request(self, session, timestamp, payload):
        with open("/tmp/audit", "ab") as file:  # expect: file
            file.write(payload)
        prices = self.path.read_text()  # expect: file
        socket.create_connection(("127.0.0.1", 80))  # expect: network
        subprocess.run(["true"])  # expect: process
        return prices.encode()
