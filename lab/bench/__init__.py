"""Benchmarks of sparkonce beside its peers: Apache Kafka, Spark's JVM Kafka connector, Delta's JVM sink.

Theory of operation: each benchmark has two sides, ours and the peer, both warm and both up at once; they are measured
in turn (A B A B), so that what else happens on the machine falls on both. The figure is the ratio of the medians.
`results` holds what was found and says it. `brokers` lists the benchmarks of the broker: `throughput` (Kafka's own
tools), `requests` (small things), `scale` (connections, groups, partitions; `chart` draws them), `ready` (starts and
recovery); `sides` has the two brokers and the turns, `tools` and `wire` the clients. `pipelines` drives two Spark
sessions, each in a process of its own (`spark_side`); `direct` does so for the direct path, with `growth`,
`task_memory` and a program without Spark (`loop`); `guarantees` sets our exactly-once beside our at-least-once.
"""
