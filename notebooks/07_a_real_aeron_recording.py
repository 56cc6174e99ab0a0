# %% [markdown]
# # 7 · A real Aeron recording
#
# Nothing so far needs this project's own members. Here is what one member of a real Aeron Cluster 1.52.2, in Java,
# left on disk: three members, two leaders killed, two snapshots. The same lines open it.

# %%
from demo import aeron_member
from trimaran.archive.report import figures
from trimaran.archive.spark import create_session, log_messages, problems

member = aeron_member()
spark = create_session("aeron")
log = spark.read.format("aeron_archive").load(str(member))
print(sorted(path.name for path in (member / "archive").iterdir()))

# %% [markdown]
# What is in the log, message by message?

# %%
from trimaran.archive.spark.analyses import payload_histogram, payload_sizes

sizes = payload_sizes(log).toPandas()
sizes[["template_id", "message", "messages", "frames", "length_max", "log_bytes", "overhead_share"]]

# %% [markdown]
# **What to see:** lengths from nothing to thousands of bytes. Aeron's frames here have at most 1,408 bytes, so longer
# messages are fragmented; these bars count whole messages.

# %%
figures.payload_sizes(payload_histogram(log).toPandas().merge(sizes[["template_id", "message"]]))

# %% [markdown]
# **What to see:** three terms, each with another leader, and some six seconds without one in between: these members
# notice that a leader is dead by its silence.

# %%
from trimaran.archive.spark.analyses import term_timeline

terms = term_timeline(log).toPandas()
figures.term_timeline(terms)

# %% [markdown]
# Every message of Aeron's schema has typed columns: here each leader's first entry, as Aeron's own class wrote it.

# %%
from trimaran.cluster.messages import NewLeadershipTermEvent

log_messages(log, NewLeadershipTermEvent).toPandas().T

# %% [markdown]
# Snapshots are recordings, too. The consensus module's newest one says which sessions were open when it was taken.

# %%
from trimaran.cluster.messages import ClusterSessionSnapshot

snapshots = spark.read.format("aeron_archive").option("recordingId", "all").option("messages", "true").load(str(member))
sessions = log_messages(snapshots.where("stream_id = 107"), ClusterSessionSnapshot).toPandas()
sessions[["recording_id", "cluster_session_id", "opened_log_position", "response_channel"]]

# %% [markdown]
# **What to see:** two sessions that outlived two leaders; they were still open when the cluster was stopped.

# %%
from trimaran.archive.spark.analyses import session_lives

figures.session_lives(session_lives(log).toPandas())

# %% [markdown]
# Is it sound? Nothing is listed.

# %%
problems(spark, str(member)).toPandas()
