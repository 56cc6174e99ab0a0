# %% [markdown]
# # 4 · Comparing members
#
# Up to the commit position every member has recorded the same bytes. Whether that is so is a query: join the logs by
# position. Here are two members that did go apart: one with a tail that never committed, one in which a byte is wrong.

# %%
from archive.spark import create_session
from archive.spark.analyses import compare_members, differing_frames, divergence
from notebooks.demo import recorded_morning, silently_changed_copy

morning = recorded_morning()
spark = create_session("comparing")
logs = {
    f"member {i}": spark.read.format("aeron_archive").load(str(directory)) for i, directory in morning.members.items()
}

# %% [markdown]
# Each with each. **What to see:** two members are equal; the third differs from both, so it is the one that went
# astray.

# %%
pairs = compare_members(logs).toPandas()
pairs[["member_a", "member_b", "verdict", "identical_to", "diverges_at", "differences", "only_in_a", "only_in_b"]]
