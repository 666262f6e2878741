"""The asyncio part of the broker: sockets and timers around the handlers."""
