import asyncio
import threading

from trimaran import ClusteredService


class Service(ClusteredService):
    def on_session_message(self, session, timestamp, payload):
        threading.Thread(target=self.work).start()  # expect: thread
        asyncio.get_running_loop().call_later(1, self.work)  # expect: event-loop

    def work(self):
        pass
