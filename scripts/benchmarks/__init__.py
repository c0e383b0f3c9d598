"""The measurements behind scripts/bench.

figures      values, spreads, limits, tables
machine      the machine that they were measured on
worker       a process that runs one contender
interleaved  contenders that take turns
trainers     the training steps of each contender; samplers: their sampling (both run inside a worker)
steps, sampling, cli_latency, plan_accuracy, logging_overhead, busy, sweep, lessons: the commands
"""
