"""OpenTelemetry: spans of each batch, from the four Python processes that work on it. Off unless the environment asks.

A batch is planned in one process of the driver, begun and committed in two others, and read and written in workers of
the executors. Nothing that Spark passes between them has room for the context of a trace. So its ids are computed, from
what each of them knows: the ids of the query, the run and the batch (`spans`). What a process knows only in part
travels on: the planner's times in a file beside the driver (`plans`), those of the beginning with the sink and the
tasks' messages.

`export` sends spans to a collector in a thread of its own: a collector that is slow or gone costs spans, not time.
"""
