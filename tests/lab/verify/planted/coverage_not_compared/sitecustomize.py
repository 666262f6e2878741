"""What tasks have read is not compared with Spark's log; and of several ranges one is missing, as after a filter."""

from planting import plant


def leave_out(hand_over):
    rows = hand_over.HandOver.rows
    hand_over.HandOver.rows = lambda self, wanted: rows(self, list(wanted)[:1])


def skip(stream_sink):
    stream_sink.check_coverage = lambda batch, parts: None


plant("sparkonce.connectors.kafka_source.hand_over", leave_out)
plant("sparkonce.connectors.sinks.stream_sink", skip)
