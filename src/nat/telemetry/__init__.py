"""Traces for other programs: what a rollout recorded, as spans, and the threads that send them.

`names` are the attributes, `llm_spans` and `rollout_spans` make spans of intermediate steps, `sender` is the bounded
queue of one exporter, `otlp` and `span_file` are the exporters. All of it is off unless `general.telemetry.tracing`
names an exporter.
"""
