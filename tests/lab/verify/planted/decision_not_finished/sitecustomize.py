"""A driver that starts does not finish what the one before it had decided."""

from planting import plant


def change(driver):
    def recover(self, *timeouts):
        self.log.ensure()
        identity = self.claim(*timeouts[:1])
        self.abort_open(self.scope.prefix)
        return identity

    driver.Driver.recover = recover


plant("sparkonce.connectors.kafka_sink.driver", change)
