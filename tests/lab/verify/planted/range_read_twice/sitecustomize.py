"""A task of the sink reads its first range a second time."""

from planting import plant


def change(source):
    def rows(self):
        from sparkonce.connectors.kafka_source.reading import read_ranges

        return read_ranges(self.options, [*self.wanted, self.wanted[0]])

    source.DirectReading.rows = rows


plant("sparkonce.connectors.direct.source", change)
