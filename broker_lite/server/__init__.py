"""The asyncio shell: sockets and timers around the handlers."""
