import os

from trimaran import ClusteredService


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        limit = int(os.environ["LIMIT"])  # expect: environment
        region = os.getenv("REGION", "eu")  # expect: environment
        return f"{limit}{region}".encode()
