"""Analyses of a cluster's log: functions from DataFrames to DataFrames. `docs/analyses.md` shows each of them.

What happened: `summary`, `term_timeline`, `leaders`, `elections`, `session_traffic`, `session_lives`, `timers`,
`bursts`, `gaps`, `payload_sizes`, `payload_histogram`, and of groups `group_traffic`; what members tell besides:
`read_node_logs`, `election_states`, `member_elections`, `refusals`. What is wrong: `integrity`, `divergence`,
`differing_frames`, `compare_members`.
"""

from .divergence import compare_members as compare_members
from .divergence import differing_frames as differing_frames
from .divergence import divergence as divergence
from .elections import elections as elections
from .groups import group_traffic as group_traffic
from .integrity import integrity as integrity
from .log_events import new_terms as new_terms
from .log_events import sessions_closed as sessions_closed
from .log_events import sessions_opened as sessions_opened
from .node_logs import election_states as election_states
from .node_logs import member_elections as member_elections
from .node_logs import read_node_logs as read_node_logs
from .node_logs import refusals as refusals
from .rhythm import bursts as bursts
from .rhythm import gaps as gaps
from .sessions import session_lives as session_lives
from .sessions import session_traffic as session_traffic
from .sizes import payload_histogram as payload_histogram
from .sizes import payload_sizes as payload_sizes
from .summary import summary as summary
from .terms import leaders as leaders
from .terms import term_timeline as term_timeline
from .timers import timers as timers
from .whole_messages import whole_messages as whole_messages
