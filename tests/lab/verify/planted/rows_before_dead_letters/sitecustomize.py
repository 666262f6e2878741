"""The rows of a batch are made visible before its dead letters, and offsets with them."""

import dataclasses

from planting import plant


def change(stream_sink):
    commit = stream_sink.StreamSink.commit

    def commit_in_reverse(self, messages, batch_id):
        self._targets = self._targets[::-1]
        turned = [
            None
            if message is None
            else dataclasses.replace(
                message, plans=message.plans[::-1], parts=message.parts[::-1], counts=message.counts[::-1]
            )
            for message in messages
        ]
        commit(self, turned, batch_id)

    stream_sink.StreamSink.commit = commit_in_reverse


plant("sparkonce.connectors.sinks.stream_sink", change)
