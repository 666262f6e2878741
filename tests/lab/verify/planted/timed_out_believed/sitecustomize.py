"""A transaction that Kafka has aborted counts as committed."""

from planting import plant


def change(driver):
    fates = driver.Driver.fates

    def believing(self, transactions):
        found = fates(self, transactions)
        return {each: driver.Fate.COMMITTED if fate is driver.Fate.GONE else fate for each, fate in found.items()}

    driver.Driver.fates = believing


plant("sparkonce.connectors.kafka_sink.driver", change)
