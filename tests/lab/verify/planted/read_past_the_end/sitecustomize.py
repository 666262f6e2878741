"""A task takes the record after its range, too, if it was fetched."""

from planting import plant


def change(decode):
    rows = decode.RecordDecoder.rows

    def one_more(self, data, scanned, start, end, aborted=()):
        return rows(self, data, scanned, start, end + 1, aborted)

    decode.RecordDecoder.rows = one_more


plant("sparkonce.connectors.kafka_source.decode", change)
