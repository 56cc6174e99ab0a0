"""What a worker or an operator does with the outboxes of a cluster.

calls  questions and settlements, as coroutines     lanes  which effect is next, without I/O
"""
