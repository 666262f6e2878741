"""A source that lost its checkpoint begins at the latest offsets, and not at the stored ones."""

from planting import plant


def change(planner):
    initial = planner.Planner.initial

    def at_latest(self, rule):
        partitions = self.refresh()
        if not self._stored(partitions, partitions)[0]:
            return initial(self, rule)
        latest = self.ask(dict.fromkeys(partitions, planner.LATEST))
        positions = {tp: planner.Position(at, at) for tp, at in latest.items()}
        return planner.SourceOffset(self._options.source, positions)

    planner.Planner.initial = at_latest


plant("sparkonce.connectors.kafka_source.planner", change)
