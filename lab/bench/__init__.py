"""Benchmarks of sparkonce beside its peers: Apache Kafka, Spark's JVM Kafka connector, Delta's JVM sink.

Theory of operation: each benchmark has two sides, ours and the peer, both warm and both running; they are measured
in turn (A B A B), so that other load on the machine affects both. The figure is the ratio of the medians.
`results` holds and prints the figures. `brokers` lists the benchmarks of the broker: `throughput` (Kafka's own
tools), `requests` (single requests), `scale` (connections, groups, partitions; `chart` draws them), `ready` (starts and
recovery); `sides` has the two brokers and the turns, `tools` and `wire` the clients. `pipelines` drives two Spark
sessions, each in its own process (`spark_side`); `direct` does so for the direct path, with `growth`,
`task_memory` and a program without Spark (`loop`); `guarantees` compares our exactly-once and at-least-once.
"""
