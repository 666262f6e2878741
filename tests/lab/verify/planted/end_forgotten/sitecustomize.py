"""A decision is noted as finished, and none of the tasks' transactions is ended."""

from planting import plant


def change(driver):
    driver.Driver.finish = lambda self, decision: self.log.append_finished(decision.number)


plant("sparkonce.connectors.kafka_sink.driver", change)
