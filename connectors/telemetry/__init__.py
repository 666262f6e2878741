"""OpenTelemetry: spans of each batch, from the four Python processes that work on it. Off unless enabled.

A batch is planned in one process of the driver, begun and committed in two others, and read and written in workers of
the executors. Nothing that Spark passes between them can carry a trace context. So its ids are computed, from
what each process knows: the ids of the query, the run and the batch (`spans`). What only some processes know
is passed on: the planner's times in a file beside the driver (`plans`), those of the beginning with the sink and the
tasks' messages.

`export` sends spans to a collector in a separate thread: a slow or missing collector costs spans, not time.
"""
