"""The consensus module as a pure state machine: no clock, no file, no socket, no await.

Read `effects` and `events` (out and in), `vocabulary.election_state` (the table), `election`, then `consensus_module`
(the contract). `roles` has what a leader and a follower do in a term. The log's bytes are in `log`: `log_buffer`
(window), `log_publisher` (leader), `log_receiver` (follower).
"""
