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

# %% [markdown]
# ## The web requests
#
# What clients say is theirs; `decode_payload` gives it as columns. Here it is text: a host, a time and a page, with
# tabs between.

# %%
from pyspark.sql import functions as F

from archive.spark import decode_payload
from notebooks.demo.traffic import MIDNIGHT_S

fields = F.split("payload", "\t")
hour = F.floor((fields[1].cast("long") - MIDNIGHT_S) / 3600).alias("hour")
requests = decode_payload(log, str, requests=True)
requests = requests.select(
    "cluster_session_id", "request_sequence", fields[0].alias("host"), hour, fields[2].alias("url")
)

# %% [markdown]
# What the service answered is not in the log, but it follows from it: the log is replayed to the service, and the
# answers are written down. `request_sequence` says which request an answer belongs to.

# %%
from notebooks.demo import answers

answered = requests.join(answers(spark, member), ["cluster_session_id", "request_sequence"]).persist()
answered.groupBy("decision").count().toPandas()

# %% [markdown]
# **What to see:** the traffic of the morning as the web server saw it: four times as much at ten as at midnight, when
# people in America are at work. Refusals come with it, and most in the busiest hours.

# %%
from notebooks.demo import figures as web_figures

by_hour = (
    answered.groupBy("hour").pivot("decision", ["allowed", "denied"]).count().na.fill(0).orderBy("hour").toPandas()
)
web_figures.requests_by_hour(by_hour)

# %% [markdown]
# Who was refused? **What to see:** a handful of hosts has most of the refusals: proxies, behind which many people sit,
# and programs that fetch page after page.

# %%
by_host = answered.groupBy("host").pivot("decision", ["allowed", "denied"]).count().na.fill(0)
by_host = by_host.orderBy(F.desc("denied"), "host").limit(15).toPandas()
web_figures.hosts(by_host)

# %% [markdown]
# A timer watches each refused host until it has been quiet for 250 ms. The log has the timers that fired; the replay
# knows which were set. **What to see:** all fire within some milliseconds of their time, but for those that were due
# while nobody led.

# %%
