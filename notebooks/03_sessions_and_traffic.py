# %% [markdown]
# # 3 · Sessions and traffic
#
# Who talked to the cluster, for how long and how evenly; and what it was about: web requests, by hour and by host, and
# those that were refused because a host had used up its quota of ten a minute.

# %%
from archive.report import figures
from archive.spark import create_session
from notebooks.demo import recorded_morning

morning = recorded_morning()
spark = create_session("sessions")
member = morning.member(morning.survivor_member_id)
log = spark.read.format("aeron_archive").load(str(member)).persist()

# %% [markdown]
# A session begins and ends with an entry in the log; its principal is the name that the client gave.

# %%
from archive.spark.analyses import session_lives

lives = session_lives(log).toPandas()
lives[["cluster_session_id", "encoded_principal", "state", "close_reason", "messages", "longest_idle_us"]]

# %% [markdown]
# **What to see:** six front ends are there all morning, through both changes of leadership. A monitor comes every hour
# and leaves at once. One client was never heard of again, and the cluster closed its session.

# %%
figures.session_lives(lives)

# %% [markdown]
# How evenly does a session send? **What to see:** half of the messages follow within a millisecond or so, because
# front ends send what is due every ten; the longest silence of each is the power cut.

# %%
from archive.spark.analyses import session_traffic

figures.inter_arrival(session_traffic(log, interval=None).toPandas())

# %% [markdown]
# When was the log busiest, and when silent? **What to see:** the busiest tenths of a second follow the silent ones:
# clients send what had to wait.

# %%
from archive.spark.analyses import bursts, gaps

figures.bursts_and_gaps(bursts(log, window="100 milliseconds").toPandas(), gaps(log, longer_than_us=100_000).toPandas())
