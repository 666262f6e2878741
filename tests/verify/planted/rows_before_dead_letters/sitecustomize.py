"""The rows of a batch are made visible before its dead letters, and offsets with them."""

from dataclasses import replace

from planting import plant


def change(stream_sink):
    commit = stream_sink.StreamSink.commit

    def commit_in_reverse(self, messages, batch_id):
        self._targets = self._targets[::-1]
        turned = [
            replace(message, plans=message.plans[::-1], parts=message.parts[::-1]) if message is not None else None
            for message in messages
        ]
        commit(self, turned, batch_id)

    stream_sink.StreamSink.commit = commit_in_reverse


plant("sparkonce.connectors.sinks.stream_sink", change)
