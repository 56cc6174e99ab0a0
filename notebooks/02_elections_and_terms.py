# %% [markdown]
# # 2 · Elections and terms
#
# Who led when, how leadership changed hands, and why. The log says the first; why an election began, only the members
# know, and they say so in what they print.

# %%
from demo import recorded_morning
from trimaran.archive.spark import create_session

morning = recorded_morning()
spark = create_session("elections")
log = spark.read.format("aeron_archive").load(str(morning.member(morning.survivor_member_id)))
print(morning.tell())

# %% [markdown]
# Each leader's first entry in the log is a `NewLeadershipTermEvent`; the rest of a term's rows come from all entries.

# %%
from trimaran.archive.spark.analyses import term_timeline

terms = term_timeline(log).toPandas()
terms[["leadership_term_id", "leader_member_id", "start_position", "stop_position", "messages", "hand_over_us"]]

# %% [markdown]
# **What to see:** three terms. At the first change leadership is handed over in a fraction of a second: the others
# notice the dead leader by its closed connections. The second change takes seconds: nobody was left who could lead.

# %%
from trimaran.archive.report import figures

figures.term_timeline(terms)

# %% [markdown]
# The members' own logs add the reasons: who noticed what first, and how long the election itself took.

# %%
from trimaran.archive.spark.analyses import elections, read_node_logs

node_logs = read_node_logs(spark, [str(path) for path in sorted(morning.directory.glob("node-*.log"))])
changes = elections(log, node_logs).toPandas()
changes[
    ["leadership_term_id", "leader_before", "leader_after", "gap_us", "election_us", "start_reason", "start_detail"]
]

# %% [markdown]
# **What to see:** the thick bar is the time in which nothing was appended to the log, the thin one in it the election.
# After the power cut most of the time goes by before there is anybody who could elect.

# %%
figures.elections(changes)

# %% [markdown]
# An election is a walk through Aeron's 18 states. **What to see:** members canvass, one is nominated and wins the
# ballot; the member that comes back catches up before it follows.

# %%
from trimaran.archive.spark.analyses import election_states

figures.election_states(election_states(node_logs).toPandas())
