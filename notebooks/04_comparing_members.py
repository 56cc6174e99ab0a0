# %% [markdown]
# # 4 · Comparing members
#
# Up to the commit position every member has recorded the same bytes. Whether that is so is a query over two logs. Here
# are two ways of going apart: a tail that never committed, and a single wrong bit.

# %%
from demo import recorded_morning, silently_changed_copy
from trimaran.archive.report import figures
from trimaran.archive.spark import create_session

morning = recorded_morning()
spark = create_session("comparing")
logs = {f"member {i}": spark.read.format("aeron_archive").load(str(path)) for i, path in morning.members.items()}

# %% [markdown]
# Each with each. Two members are equal to the last byte; the one that differs from both is the one that went astray:
# it led when the power was cut.

# %%
from trimaran.archive.spark.analyses import compare_members

pairs = compare_members(logs).toPandas()
pairs[["member_a", "member_b", "verdict", "stop_a", "stop_b", "diverges_at", "differences", "differing_frames"]]

# %% [markdown]
# **What to see:** the third member's log is the same up to the power cut. Then it has entries that nobody else has,
# and lacks all that came later.

# %%
figures.divergence(pairs)

# %% [markdown]
# What are these entries? Side by side, the first frames of that range: requests that the lost leader had recorded and
# not committed, and what the next leader wrote there instead. No client was ever told that one of them was done.

# %%
from trimaran.archive.spark.analyses import differing_frames

lost, survivor = logs[f"member {morning.lost_member_id}"], logs[f"member {morning.survivor_member_id}"]
shown = ["leadership_term_id", "cluster_session_id", "timestamp"]
tail = differing_frames(lost, survivor).selectExpr(
    "position", *(f"{m}.{name} AS {m}_{name}" for m in "ab" for name in shown)
)
tail.limit(8).toPandas()

# %% [markdown]
# The option `committed` stops at the position up to which the member's own files prove that its log is committed. Read
# like this, it is a part of the others'.

# %%
from trimaran.archive.spark.analyses import divergence

committed = (
    spark.read.format("aeron_archive").option("committed", "true").load(str(morning.member(morning.lost_member_id)))
)
divergence(committed, survivor).select("verdict", "stop_a", "stop_b", "diverges_at").toPandas()

# %% [markdown]
# ## One wrong bit
#
# A copy of a member, in which one bit of one request is another one. Its checksum was made to fit, so the file looks
# sound: only the other members know better.

# %%
copy = silently_changed_copy(morning)
changed = spark.read.format("aeron_archive").load(str(copy.directory))
found = differing_frames(changed, survivor).toPandas()
found[["position", "differences", "checksum_a", "checksum_b", "first_byte"]]

# %% [markdown]
# Found in some five megabytes of log: the position of the frame, and the first byte that differs. What do the two say?

# %%
for member, frame in (("copy", found["a"][0]), ("member", found["b"][0])):
    print(f"{member:6} {bytes(frame['payload'])[48:].decode()!r}")
print(f"changed at position {copy.position}, byte {copy.payload_offset}")
