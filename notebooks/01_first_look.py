# %% [markdown]
# # 1 · First look
#
# A cluster puts every input into one log, and every member records it. The log is data: Spark opens it as a table,
# with a row for each frame. This notebook opens one, counts what is in it, and looks at how much came when.
#
# The recording is made first if it is not there: three members on this machine serve thirteen hours of web requests in
# some ten seconds. Meanwhile their leader is killed, and later the power of all of them is cut.

# %%
from demo import recorded_morning

morning = recorded_morning()
print(morning.tell())

# %% [markdown]
# A member's directory is all that Spark needs; it finds the log among the recordings by itself.

# %%
from trimaran.archive.spark import create_session

spark = create_session("first look")
member = morning.member(morning.survivor_member_id)
log = spark.read.format("aeron_archive").load(str(member))
log.printSchema()

# %% [markdown]
# A row is a frame as it lies on disk: its place in the log (`position`, in bytes), its header, and the fields that the
# message in it begins with. A condition on `position` opens only the segment files concerned.

# %%
first = log.where("position < 1000").select(
    "position", "frame_length", "template_id", "cluster_session_id", "timestamp"
)
first.toPandas()

# %% [markdown]
# Which messages are there, how many and how long? Templates are those of Aeron's cluster schema.

# %%
from trimaran.archive.spark.analyses import payload_histogram, payload_sizes

sizes = payload_sizes(log).toPandas()
sizes[["template_id", "message", "messages", "length_min", "length_p50", "length_max", "log_bytes", "overhead_share"]]

# %% [markdown]
# **What to see:** nearly all messages are requests of 64 to 255 bytes: a host, a time and the address of a page.

# %%
from trimaran.archive.report import figures

lengths = payload_histogram(log, bin_bytes=16).toPandas().merge(sizes[["template_id", "message"]])
figures.payload_sizes(lengths)

# %% [markdown]
# The same log in SQL: the entries of each leadership term.

# %%
log.createOrReplaceTempView("log")
query = (
    "SELECT leadership_term_id AS term, count(*) AS messages, min(timestamp) AS begin, max(timestamp) AS end FROM log"
)
spark.sql(f"{query} WHERE leadership_term_id IS NOT NULL GROUP BY 1 ORDER BY 1").toPandas()

# %% [markdown]
# How much came when? **What to see:** the rhythm of the morning, quiet until five and busy at ten; and a hole where
# the power was cut, after which everything that had waited comes at once. Where the leader was killed there is hardly
# a dent.

# %%
from trimaran.archive.spark.analyses import session_traffic

figures.throughput(session_traffic(log, interval="200 milliseconds").toPandas())

# %% [markdown]
# Is the recording sound? Every checksum was verified on the way. What cannot be read would be listed here.

# %%
from trimaran.archive.spark import problems

problems(spark, str(member)).toPandas()

# %% [markdown]
# Without Spark the same rows come as Arrow batches: for pandas, Polars and DuckDB.

# %%
from trimaran import archive

table = archive.frames(member / "archive", recording_id=0).read_all()
print(f"{table.num_rows:,} frames, {log.count():,} by Spark")
