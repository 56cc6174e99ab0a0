from trimaran import ClusteredService


class Service(ClusteredService):
    async def on_request(self, session, timestamp, payload):  # expect: coroutine-callback
        return bytes(payload)

    def on_timer_event(self, correlation_id, timestamp):
        yield correlation_id  # expect: coroutine-callback
