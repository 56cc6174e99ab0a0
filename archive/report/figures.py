"""The standard figures: each takes what an analysis of `analyses` gives, as a small pandas frame.

    from trimaran.archive.report import captions, figures
    frame = analyses.term_timeline(log).toPandas()
    figures.term_timeline(frame)            # a matplotlib Figure, which a notebook shows by itself
    captions.term_timeline(frame)           # a sentence that says what there is to see

A frame is of one recording, with the columns that the function names; others are left alone. All axes have their units,
times are UTC. Nothing depends on pyplot or on the user's settings of matplotlib, and the same frame gives the same
figure. A frame without rows gives axes that say so.
"""

from .group_figures import group_throughput as group_throughput
from .leader_figures import election_states as election_states
from .leader_figures import elections as elections
from .leader_figures import term_timeline as term_timeline
from .session_figures import divergence as divergence
from .session_figures import session_lives as session_lives
from .session_figures import timers as timers
from .theme import Chart as Chart
from .theme import to_png as to_png
from .theme import to_svg as to_svg
from .traffic_figures import bursts_and_gaps as bursts_and_gaps
from .traffic_figures import inter_arrival as inter_arrival
from .traffic_figures import payload_sizes as payload_sizes
from .traffic_figures import throughput as throughput
