# %% [markdown]
# # 6 · Live
#
# The same log while it is being written: a query follows a running cluster, and goes on when the leader is killed. The
# cluster is started here, three members and six clients, and ends with the notebook.

# %%
from demo import LiveCluster
from trimaran.archive.spark import create_session

spark = create_session("live")
live = LiveCluster()
live

# %% [markdown]
# The stream reads the members' directories, whichever has what is wanted, and asks the members how far the log is
# committed: nothing else is shown. Each batch is noted with the time at which it came.

# %%
from datetime import UTC, datetime

stream = spark.readStream.format("aeron_archive").option("messages", "true").option("commitFrom", live.commit_from)
batches = []


def note(batch, batch_id):
    batches.append((datetime.now(UTC), batch.select("position", "template_id", "timestamp").toPandas()))


checkpoint = str(live.directory / "checkpoint")
query = stream.load(live.path).writeStream.option("checkpointLocation", checkpoint).foreachBatch(note).start()
query.processAllAvailable()

# %% [markdown]
# Now the clients come. Some requests later the leader is killed; they and the query go on with the next one.

# %%
live.begin_load()
live.wait_for_answers(10_000)
killed = live.kill_leader()
print(f"member {killed.member_id} was killed, member {live.leader_member_id} leads")

# %% [markdown]
# When all requests are answered, the query is given the time to read the rest, and everything ends.

# %%
answered = live.wait_for_answers()
query.processAllAvailable()
query.stop()
live.stop()
print(f"{answered:,} requests answered, {len(batches)} batches")

# %% [markdown]
# Nothing lost, nothing twice? What the query got, against the log of a member that is still there.

# %%
import pandas as pd

got = pd.concat([rows for _, rows in batches])
log = spark.read.format("aeron_archive").option("messages", "true").load(str(live.member(live.leader_member_id)))
recorded = log.where(f"position <= {got['position'].max()}").select("position").toPandas()
print(f"{len(got):,} messages, {got['position'].nunique():,} positions, {len(recorded):,} in the log")

# %% [markdown]
# **What to see:** the messages of clients in each half second. The death of the leader is a dent at most: another one
# leads before the half second is over.

# %%
from demo import figures as web_figures

web_figures.arrivals(got, killed.at, interval_s=0.5)

# %% [markdown]
# **What to see:** how old the newest message of a batch was when the query had it: a few tenths of a second on a quiet
# machine, and no more while there was no leader.

# %%
web_figures.lags(batches)
