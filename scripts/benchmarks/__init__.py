"""The measurements behind scripts/bench.

figures   values, spreads, limits, tables
machine   what they were measured on
worker    a process of one contender (this side asks for turns), contest: contenders taking turns
trainers  the training steps of each contender, samplers their sampling: what runs inside a worker
steps     sampling   program   sweep   lessons: the commands
"""
