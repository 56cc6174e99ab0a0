# %% [markdown]
# # 3 · Sessions and traffic
#
# Who talked to the cluster, for how long and how evenly; and what it was about: web requests, by hour and by host, and
# those that were refused because a host had used up its quota of ten a minute.

# %%
from demo import recorded_morning
from trimaran.archive.report import figures
from trimaran.archive.spark import create_session

morning = recorded_morning()
spark = create_session("sessions")
member = morning.member(morning.survivor_member_id)
log = spark.read.format("aeron_archive").load(str(member)).persist()

# %% [markdown]
# A session begins and ends with an entry in the log; its principal is the name that the client gave.

# %%
from trimaran.archive.spark.analyses import session_lives

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
from trimaran.archive.spark.analyses import session_traffic

figures.inter_arrival(session_traffic(log, interval=None).toPandas())

# %% [markdown]
# When was the log busiest, and when silent? **What to see:** the busiest tenths of a second follow the silent ones:
# clients send what had to wait.

# %%
from trimaran.archive.spark.analyses import bursts, gaps

figures.bursts_and_gaps(bursts(log, window="100 milliseconds").toPandas(), gaps(log, longer_than_us=100_000).toPandas())

# %% [markdown]
# ## The web requests
#
# What clients say to a service is theirs; `decode_payload` gives it as columns, here as text. A web request is a host,
# the time, and a page.

# %%
from trimaran.archive.spark import decode_payload

decode_payload(log.where("position < 3000"), str, requests=True).select(
    "position", "request_sequence", "payload"
).toPandas()

# %% [markdown]
# What the service answered is not in the log, but follows from it: the log is replayed to the service on the
# executors, one task for each snapshot, and what it says is written down.

# %%
from demo.web import REQUEST_KEY, count_decisions, decisions, web_requests

decided = web_requests(log).join(decisions(spark, member), REQUEST_KEY).persist()
decided.groupBy("decision").count().orderBy("decision").toPandas()

# %% [markdown]
# **What to see:** the traffic as the web server saw it, four times as much at ten as at midnight. Refusals come with
# it.

# %%
from demo import figures as web_figures

web_figures.requests_by_hour(count_decisions(decided, "hour").orderBy("hour").toPandas())

# %% [markdown]
# Who was refused? **What to see:** no host stands out. The fifteen that were refused most often have a quarter of all
# refusals, and of most of them more was allowed than refused.

# %%
by_host = count_decisions(decided, "host").orderBy("denied", "allowed", ascending=False).limit(15).toPandas()
web_figures.hosts(by_host)

# %% [markdown]
# A timer watches each refused host until it has been quiet for 250 ms. Which fired is in the log; which were set, the
# replay knows. **What to see:** they fire within milliseconds of their time, but for those that were due while nobody
# led.

# %%
from examples.quota_watch import QuotaWatch
from examples.replays_on_spark import scheduled_timers
from trimaran.archive.spark.analyses import timers

watched = timers(log, scheduled_timers(spark, member, QuotaWatch, bound="recorded")).toPandas()
figures.timers(watched)

# %% [markdown]
# ## Groups
#
# A cluster with groups has several logs. Here the first two thousand of these requests go to a member with two groups,
# each host's to the group that owns the host. Its directory is one DataFrame with a column `group`.
#
# **What to see:** how many messages each group logs over time. Hosts, not requests, are divided evenly: a busy host is
# in one group.

# %%
from demo import recorded_groups
from trimaran.archive.spark.analyses import group_traffic

groups = spark.read.format("aeron_archive").load(str(recorded_groups()))
by_group = group_traffic(groups, interval="100 milliseconds").toPandas()
figures.group_throughput(by_group)
